"""CRC-32 by multiplication without carries, for x86 processors that have PCLMULQDQ.

Problem: by tables, each step of a CRC waits for look-ups in memory.

Outline: a text is a polynomial over bits, and its CRC the remainder of a division by the CRC's
polynomial. A block of 16 bytes that 16 more bytes follow has the remainder of itself times x^128,
so it is multiplied by that power (modulo the polynomial, hence 32 bits) and added to the next
block: it is *folded*. Long texts fold four sums side by side, each into the block four further on
(x^512), so that a multiplication does not wait for the one before. The last 16 bytes are reduced to
32 bits by two more folds and Barrett's division, which is two multiplications.

Invariants: addition is exclusive or. Bits are mirrored, as CRC-32 has them: the lowest bit of the
first byte is the highest power. A product of mirrored numbers comes out shifted by one bit, which
`power` makes up for.

Numba has no such instruction, so `_Folding` writes LLVM's; the constants are computed here and not
copied from elsewhere. Where `can_fold` says no, crc_kernels.py steps by tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POLYNOMIAL = 0xEDB88320
BLOCK_BYTES = 16
_LANES = 4
_DEGREE = 32
_WORD = ir.IntType(64)
_HALF = ir.IntType(32)
_PAIR = ir.VectorType(_WORD, 2)


def _mirrored(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2)


_WHOLE = _mirrored(POLYNOMIAL, _DEGREE) | 1 << _DEGREE


def power(exponent: int) -> int:
    """Return the remainder of x to a power, mirrored, and shifted by the one bit of products.

    >>> hex(power(64))
    '0x163cd6124'
    """
    rest = 1
    for _ in range(exponent):
        rest <<= 1
        rest ^= _WHOLE * (rest >> _DEGREE)
    return _mirrored(rest, _DEGREE) << 1


def quotient() -> int:
    """Return the quotient of x to the 64th by the polynomial, mirrored, for Barrett's division.

    >>> hex(quotient())
    '0x1f7011641'
    """
    rest, found = 1 << 2 * _DEGREE, 0
    for bit in range(_DEGREE, -1, -1):
        if rest >> (bit + _DEGREE) & 1:
            rest ^= _WHOLE << bit
            found |= 1 << bit
    return _mirrored(found, _DEGREE + 1)


def can_fold() -> bool:
    """Tell whether the processor that Numba compiles for has PCLMULQDQ."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


if TYPE_CHECKING:

    def fold(data: NDArray[np.uint8], start: int, blocks: int, state: Any) -> Any:
        """Return the state of a CRC-32 after `blocks` blocks from `start` on, at least one."""

else:

    @intrinsic
    def fold(typing: Any, data: Any, start: Any, blocks: Any, state: Any) -> Any:
        """See above."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array, start, blocks, state = values
            source = context.make_array(signature.args[0])(context, builder, array)
            return _Folding(builder, builder.gep(source.data, [start])).generate(blocks, state)

        return types.uint32(data, types.int64, types.int64, types.uint32), generate


class _Folding:
    """The instructions of `fold`, as they are written into a function."""

    def __init__(self, builder: Any, base: Any) -> None:
        self._builder = builder
        self._base = base
        kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)])
        name = "llvm.x86.pclmulqdq"
        self._multiply = cgutils.get_or_insert_function(builder.module, kind, name)

    def generate(self, blocks: Any, state: Any) -> Any:
        """Write the whole loop; return the state after all blocks."""
        builder = self._builder
        near = _pair(power(4 * _DEGREE + _DEGREE), power(4 * _DEGREE - _DEGREE))
        # The state that came in is added to the first four bytes, as if it stood before them.
        first = builder.insert_element(_pair(0, 0), builder.zext(state, _WORD), _HALF(0))
        total = cgutils.alloca_once_value(builder, builder.xor(self._block(_WORD(0)), first))
        done = cgutils.alloca_once_value(builder, _WORD(1))
        with builder.if_then(builder.icmp_signed(">=", blocks, _WORD(2 * _LANES))):
            self._fold_lanes(blocks, total, near)
            builder.store(builder.and_(blocks, _WORD(-_LANES)), done)
        rest = cgutils.for_range_slice(builder, builder.load(done), blocks, _WORD(1))
        with rest as (at, _):
            builder.store(self._folded(builder.load(total), near, self._block(at)), total)
        return self._reduced(builder.load(total), near)

    def _fold_lanes(self, blocks: Any, total: Any, near: Any) -> None:
        """Fold whole groups of four blocks side by side, then the four sums into one."""
        builder = self._builder
        far = _pair(power(16 * _DEGREE + _DEGREE), power(16 * _DEGREE - _DEGREE))
        others = [self._block(_WORD(lane)) for lane in range(1, _LANES)]
        lanes = [total, *(cgutils.alloca_once_value(builder, other) for other in others)]
        last = builder.sub(blocks, _WORD(_LANES - 1))
        groups = cgutils.for_range_slice(builder, _WORD(_LANES), last, _WORD(_LANES))
        with groups as (at, _):
            for number, lane in enumerate(lanes):
                block = self._block(builder.add(at, _WORD(number)))
                builder.store(self._folded(builder.load(lane), far, block), lane)
        for lane in lanes[1:]:
            builder.store(self._folded(builder.load(total), near, builder.load(lane)), total)

    def _folded(self, total: Any, powers: Any, block: Any) -> Any:
        """Return a block with the sum before it folded in."""
        builder = self._builder
        low, high = self._product(total, powers, 0x00), self._product(total, powers, 0x11)
        return builder.xor(builder.xor(low, high), block)

    def _reduced(self, total: Any, near: Any) -> Any:
        """Return the remainder of 16 bytes."""
        builder = self._builder
        halves = _pair(0xFFFFFFFF, 0xFFFFFFFF)
        # From 16 bytes to 12, from 12 to 8.
        total = builder.xor(self._behind(total, 8), self._product(total, near, 0x10))
        low = self._product(builder.and_(total, halves), _pair(power(2 * _DEGREE), 0), 0x00)
        total = builder.xor(self._behind(total, 4), low)
        # Barrett: the quotient by one product, its multiple of the polynomial by another.
        division = _pair(_mirrored(_WHOLE, _DEGREE + 1), quotient())
        times = self._product(builder.and_(total, halves), division, 0x10)
        whole = self._product(builder.and_(times, halves), division, 0x00)
        left = builder.bitcast(builder.xor(total, whole), ir.VectorType(_HALF, 4))
        return builder.extract_element(left, _HALF(1))

    def _product(self, one: Any, other: Any, which: int) -> Any:
        """Return the product of two words; hex digits of `which` choose, the low one in `one`."""
        return self._builder.call(self._multiply, [one, other, ir.IntType(8)(which)])

    def _behind(self, pair: Any, count: int) -> Any:
        """Return a pair without its first `count` bytes, zeros at its end."""
        builder, octets = self._builder, ir.VectorType(ir.IntType(8), BLOCK_BYTES)
        positions = ir.Constant(
            ir.VectorType(_HALF, BLOCK_BYTES), list(range(count, count + BLOCK_BYTES))
        )
        nothing = ir.Constant(octets, [0] * BLOCK_BYTES)
        moved = builder.shuffle_vector(builder.bitcast(pair, octets), nothing, positions)
        return builder.bitcast(moved, _PAIR)

    def _block(self, number: Any) -> Any:
        builder = self._builder
        address = builder.gep(self._base, [builder.mul(number, _WORD(BLOCK_BYTES))])
        return builder.load(builder.bitcast(address, _PAIR.as_pointer()), align=1)


def _pair(low: int, high: int) -> Any:
    return ir.Constant(_PAIR, [low, high])
