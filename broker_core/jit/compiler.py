"""What kernels are made of: how they are compiled, and how they touch bytes.

Nothing here checks bounds. A kernel looks at sizes before it touches what they lead to.
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
"""How early a row's memory is announced.

Records of one queue lie far apart where others lie between them: each would be waited for.
"""

if numba.config.DISABLE_JIT:
    message = "Numba is told not to compile (NUMBA_DISABLE_JIT)"
    raise ImportError(message, name="numba")


_SHARED = (Path(__file__), Path(__file__).resolve().parent.parent / "codec" / "layout.py")


def _version() -> str:
    """A digest of all that kernels are made of.

    Numba looks at the file that a kernel stands in to see whether what it kept is stale. Parts and
    constants of other files are compiled into it too, so the kernel's name says what they were.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent
    for path in [*sorted(folder.rglob("*_kernels.py")), *_SHARED]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_VERSION = _version()


def kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for arguments of these types, or load what was compiled before.

    It runs without the interpreter's lock. RuntimeError if what is compiled can't be kept.
    """
    compile_now = numba.njit(result(*arguments), cache=True, nogil=True, error_model="numpy")

    def ready(function: Function) -> Function:
        function.__qualname__ += f"_{_VERSION}"
        compiled: Function = compile_now(function)
        return compiled

    return ready


def inlined(function: Function) -> Function:
    """Compile a function that kernels are made of into each that calls it.

    A call would hand over every array as seven words, and count who holds it.
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
            found = builder.load(builder.bitcast(address, word.as_pointer()), align=1)
            return builder.bswap(found) if swap else found

        return number(data, types.int64), generate

    return intrinsic(load)


def _storing(width: int, number: Any) -> Any:
    def store(typing: Any, data: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = ir.IntType(8 * width)
            address = _address(context, builder, signature.args[0], *values[:2])
            place = builder.bitcast(address, word.as_pointer())
            builder.store(builder.bswap(values[2]), place, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, number), generate

    return intrinsic(store)


if TYPE_CHECKING:
    from numpy.typing import NDArray

    def load_byte(data: NDArray[Any], at: int) -> int:
        """The byte at a place: unlike data[at], no place counts from the end."""

    def load_i16(data: NDArray[Any], at: int) -> int:
        """The big-endian integer at a place."""

    def load_i32(data: NDArray[Any], at: int) -> int:
        """The same, of four bytes."""

    def load_i64(data: NDArray[Any], at: int) -> int:
        """The same, of eight bytes."""

    def load_word(data: NDArray[Any], at: int) -> Any:
        """Eight bytes as an unsigned number, the first byte lowest."""

    def store_i16(data: NDArray[Any], at: int, value: int) -> None:
        """Put a big-endian integer at a place."""

    def store_i32(data: NDArray[Any], at: int, value: int) -> None:
        """The same, of four bytes."""

    def store_i64(data: NDArray[Any], at: int, value: int) -> None:
        """The same, of eight bytes."""

    def copy(target: NDArray[Any], at: int, source: NDArray[Any], start: int, count: int) -> None:
        """Put `count` bytes of the source at a place of the target."""

    def prefetch(data: NDArray[Any], at: int) -> None:
        """Say that a place, which may be anywhere, is going to be read."""

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

        place = types.int64
        return types.void(target, place, source, place, place), generate

    @intrinsic
    def prefetch(typing: Any, data: Any, at: Any) -> Any:
        """See above."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, values[0])
            place = builder.gep(array.data, [values[1]])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
            ask = builder.module.declare_intrinsic("llvm.prefetch", (), kind)
            builder.call(ask, [place, number(0), number(3), number(1)])  # to read, keep, data
            return context.get_dummy_value()

        return types.void(data, types.int64), generate
