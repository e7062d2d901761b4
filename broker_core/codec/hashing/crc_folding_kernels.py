"""CRC-32 by multiplying without carries, for processors that have an instruction for it.

A text is a polynomial over bits, and its CRC what a division by another one leaves. Sixteen bytes
are worth what they leave behind sixteen more, so they are multiplied by that power of x and added
to the next sixteen; four such sums run side by side over long texts. What is left at the end is
made 32 bits by two more steps of the same kind and a division that is a multiplication (Barrett's).

Bits are mirrored, as CRC-32 has them: the lowest bit of the first byte is the highest power.
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
    """What x to this power leaves, mirrored, and shifted as products of mirrored numbers are.

    >>> hex(power(64))
    '0x163cd6124'
    """
    rest = 1
    for _ in range(exponent):
        rest <<= 1
        rest ^= _WHOLE * (rest >> _DEGREE)
    return _mirrored(rest, _DEGREE) << 1


def quotient() -> int:
    """How often the polynomial goes into x to the 64th, mirrored.

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
    """Whether what Numba compiles for has the instruction."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


if TYPE_CHECKING:

    def fold(data: NDArray[np.uint8], start: int, blocks: int, state: Any) -> Any:
        """The state of a CRC-32 after so many blocks from a place on; one at least."""

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
    """Writes the instructions of `fold`."""

    def __init__(self, builder: Any, base: Any) -> None:
        self._builder = builder
        self._base = base
        kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)])
        name = "llvm.x86.pclmulqdq"
        self._multiply = cgutils.get_or_insert_function(builder.module, kind, name)

    def generate(self, blocks: Any, state: Any) -> Any:
        """The state after all blocks."""
        builder = self._builder
        near = _pair(power(4 * _DEGREE + _DEGREE), power(4 * _DEGREE - _DEGREE))
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
        """Sum up whole groups of blocks side by side, and then the sums."""
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
        """A block, with what is before it added."""
        builder = self._builder
        low, high = self._product(total, powers, 0x00), self._product(total, powers, 0x11)
        return builder.xor(builder.xor(low, high), block)

    def _reduced(self, total: Any, near: Any) -> Any:
        """What is left of sixteen bytes."""
        builder = self._builder
        halves = _pair(0xFFFFFFFF, 0xFFFFFFFF)
        # To eight bytes and four, to eight, to four.
        total = builder.xor(self._behind(total, 8), self._product(total, near, 0x10))
        low = self._product(builder.and_(total, halves), _pair(power(2 * _DEGREE), 0), 0x00)
        total = builder.xor(self._behind(total, 4), low)
        division = _pair(_mirrored(_WHOLE, _DEGREE + 1), quotient())
        times = self._product(builder.and_(total, halves), division, 0x10)
        whole = self._product(builder.and_(times, halves), division, 0x00)
        left = builder.bitcast(builder.xor(total, whole), ir.VectorType(_HALF, 4))
        return builder.extract_element(left, _HALF(1))

    def _product(self, one: Any, other: Any, which: int) -> Any:
        """The product of two words: the digits of `which` choose them, the lower one of `one`."""
        return self._builder.call(self._multiply, [one, other, ir.IntType(8)(which)])

    def _behind(self, pair: Any, count: int) -> Any:
        """A pair without its first bytes, zeros at its end."""
        builder, octets = self._builder, ir.VectorType(ir.IntType(8), BLOCK_BYTES)
        places = ir.Constant(
            ir.VectorType(_HALF, BLOCK_BYTES), list(range(count, count + BLOCK_BYTES))
        )
        nothing = ir.Constant(octets, [0] * BLOCK_BYTES)
        moved = builder.shuffle_vector(builder.bitcast(pair, octets), nothing, places)
        return builder.bitcast(moved, _PAIR)

    def _block(self, number: Any) -> Any:
        builder = self._builder
        place = builder.gep(self._base, [builder.mul(number, _WORD(BLOCK_BYTES))])
        return builder.load(builder.bitcast(place, _PAIR.as_pointer()), align=1)


def _pair(low: int, high: int) -> Any:
    return ir.Constant(_PAIR, [low, high])
