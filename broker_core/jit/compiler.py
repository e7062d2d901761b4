"""Compiler of kernels: the decorators `kernel` and `inlined`, argument types, and access to bytes.

Nothing here checks bounds. A kernel looks at a size before it touches what the size leads to.

Records are unaligned and big-endian, and indexing a NumPy array in a kernel checks for negative
positions. So bytes are read and written by intrinsics: one unaligned load or store, and one swap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
INT32S = types.Array(types.int32, 1, "C", readonly=True)
INT32S_OUT = types.Array(types.int32, 1, "C")
INT64S = types.Array(types.int64, 1, "C", readonly=True)
INT64S_OUT = types.Array(types.int64, 1, "C")
INT64 = types.int64
BOOLEAN = types.boolean
SPANS = types.Tuple((BYTES, INT64S, INT64S))
"""Data, starts, lengths."""

LINE_BYTES = 64
AHEAD_ROWS = 8
"""Rows ahead of the current one whose memory is prefetched.

Records of one queue lie far apart where records of others lie between them: the processor's own
prefetcher does not find them, and each would be waited for.
"""

# Intrinsics can't run as Python: to the door this is a missing Numba, and the twins do the work.
if numba.config.DISABLE_JIT:
    message = "Numba is told not to compile (NUMBA_DISABLE_JIT)"
    raise ImportError(message, name="numba")


# Beside the kernels themselves: positions of fields are constants in them.
_SHARED = (Path(__file__), Path(__file__).resolve().parent.parent / "codec" / "layout.py")


def _version() -> str:
    """Return a digest of all source that kernels are compiled from.

    Numba compares only the kernel's own file to tell whether its cache is stale. Inlined functions
    and constants of other files are compiled into a kernel too, so the digest is part of its name.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent
    for path in [*sorted(folder.rglob("*_kernels.py")), *_SHARED]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_VERSION = _version()


def kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for arguments of these types, or load it from the cache.

    The kernel runs without the interpreter's lock. RuntimeError if no folder can hold the cache.
    """
    compile_now = numba.njit(result(*arguments), cache=True, nogil=True, error_model="numpy")

    def ready(function: Function) -> Function:
        # Numba names its cache files after the qualified name.
        function.__qualname__ += f"_{_VERSION}"
        compiled: Function = compile_now(function)
        return compiled

    return ready


def inlined(function: Function) -> Function:
    """Compile a function into each kernel that calls it.

    A call would pass every array as seven words, and count references.
    """
    compiled: Function = numba.njit(function, nogil=True, error_model="numpy", forceinline=True)
    return compiled


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at])


def _loading(width: int, number: Any, *, swap: bool) -> Any:
    def load(typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = ir.IntType(8 * width)
            address = _address(context, builder, signature.args[0], *values)
            # Fields of records lie at any address: align=1.
            found = builder.load(builder.bitcast(address, word.as_pointer()), align=1)
            return builder.bswap(found) if swap else found

        return number(data, types.int64), generate

    return intrinsic(load)


def _storing(width: int, number: Any) -> Any:
    def store(typing: Any, data: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = ir.IntType(8 * width)
            address = _address(context, builder, signature.args[0], *values[:2])
            target = builder.bitcast(address, word.as_pointer())
            builder.store(builder.bswap(values[2]), target, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, number), generate

    return intrinsic(store)


if TYPE_CHECKING:
    from numpy.typing import NDArray

    def load_byte(data: NDArray[Any], at: int) -> int:
        """Return the byte at a position; unlike data[at], none counts from the end."""

    def load_i16(data: NDArray[Any], at: int) -> int:
        """Return the big-endian integer of two bytes at a position."""

    def load_i32(data: NDArray[Any], at: int) -> int:
        """Return the big-endian integer of four bytes at a position."""

    def load_i64(data: NDArray[Any], at: int) -> int:
        """Return the big-endian integer of eight bytes at a position."""

    def load_word(data: NDArray[Any], at: int) -> Any:
        """Return eight bytes as an unsigned number, the first byte lowest."""

    def store_i16(data: NDArray[Any], at: int, value: int) -> None:
        """Write a big-endian integer of two bytes at a position."""

    def store_i32(data: NDArray[Any], at: int, value: int) -> None:
        """Write a big-endian integer of four bytes at a position."""

    def store_i64(data: NDArray[Any], at: int, value: int) -> None:
        """Write a big-endian integer of eight bytes at a position."""

    def copy(target: NDArray[Any], at: int, source: NDArray[Any], start: int, count: int) -> None:
        """Copy `count` bytes of the source to a position of the target."""

    def prefetch(data: NDArray[Any], at: int) -> None:
        """Prefetch the cache line at a position; one outside the array does no harm."""

else:
    load_byte = _loading(1, types.uint8, swap=False)
    load_i16 = _loading(2, types.int16, swap=True)
    load_i32 = _loading(4, types.int32, swap=True)
    load_i64 = _loading(8, types.int64, swap=True)
    load_word = _loading(8, types.uint64, swap=False)
    store_i16 = _storing(2, types.int16)
    store_i32 = _storing(4, types.int32)
    store_i64 = _storing(8, types.int64)

    @intrinsic
    def copy(typing: Any, target: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
        """See above."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            to = _address(context, builder, signature.args[0], *values[:2])
            origin = _address(context, builder, signature.args[2], *values[2:4])
            cgutils.raw_memcpy(builder, to, origin, values[4], 1)
            return context.get_dummy_value()

        position = types.int64
        return types.void(target, position, source, position, position), generate

    @intrinsic
    def prefetch(typing: Any, data: Any, at: Any) -> Any:
        """See above."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            address = builder.gep(array.data, [values[1]])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
            ask = builder.module.declare_intrinsic("llvm.prefetch", (), kind)
            builder.call(ask, [address, number(0), number(3), number(1)])  # to read, keep, data
            return context.get_dummy_value()

        return types.void(data, types.int64), generate
