"""Search for properties by name, in one walk over each text: the compiled twin of search.py.

Runs for batches of at least WORTH_ROWS texts, and inside the kernels that decode records or
hash their keys. Ends of properties (0x02) are looked for in 64 bytes at a time: one vector
comparison gives a bit for each byte. What lies between two of them has a name that is asked for if
it begins with the name and 0x01, and goes on: the rest is its value, whatever bytes it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from broker_core.codec.property_names import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from broker_core.jit import arguments
from broker_core.jit.compiler import (
    AHEAD_ROWS,
    BYTES,
    INT64S,
    INT64S_OUT,
    LINE_BYTES,
    inlined,
    kernel,
    load_byte,
    load_word,
    prefetch,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = tuple[
        NDArray[np.uint8],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.uint64],
        NDArray[np.uint64],
    ]
    """Names with 0x01 behind them, one after another: data, starts, lengths.

    Then the first eight bytes of each as a number, and which of its bits count.
    """

BLOCK_BYTES = 64
"""Bytes compared at once; a buffer that is shorter can't be searched."""

WORDS = types.Array(types.uint64, 1, "C", readonly=True)
KEYS = types.Tuple((BYTES, INT64S, INT64S, WORDS, WORDS))

_WORD_BYTES = 8
_VALUE_END = ord(PROPERTY_SEPARATOR)
_LAST_ASCII = 0x7F
_NEVER_BYTES = 1 << 62
_TEXT_LINES = 3
_ONE, _NONE = np.uint64(1), np.uint64(0)
_HEAD_BYTES = 6
_HEAD = np.uint64((1 << 8 * _HEAD_BYTES) - 1)
_SIEVE_SLOTS = 4096
_SIEVE_FACTOR = 0x9E3779B97F4A7C15
_SIEVE_SHIFT = 52
"""Leaves twelve bits of a product of 64: the slots of the sieve."""


if TYPE_CHECKING:

    def value_ends(data: NDArray[np.uint8], at: int) -> Any:
        """Tell which of the 64 bytes from a position on are 0x02; the lowest bit is the first's."""

    def high_bytes(data: NDArray[np.uint8], at: int) -> Any:
        """Tell which of the 64 bytes from a position on are not ASCII."""

    def lowest_bit(bits: Any) -> int:
        """Return the number of the lowest bit that is set; one must be."""

else:

    def _comparing(operator: str, byte: int) -> Any:
        def compare(typing: Any, data: Any, at: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                block = ir.VectorType(ir.IntType(8), BLOCK_BYTES)
                array = context.make_array(signature.args[0])(context, builder, values[0])
                address = builder.gep(array.data, [values[1]])
                address = builder.bitcast(address, block.as_pointer())
                other = ir.Constant(block, [byte] * BLOCK_BYTES)
                found = builder.icmp_unsigned(operator, builder.load(address, align=1), other)
                return builder.bitcast(found, ir.IntType(BLOCK_BYTES))

            return types.uint64(data, types.int64), generate

        return intrinsic(compare)

    value_ends = _comparing("==", _VALUE_END)
    high_bytes = _comparing(">", _LAST_ASCII)

    @intrinsic
    def lowest_bit(typing: Any, bits: Any) -> Any:
        """See above."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.cttz(values[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate


def keys_of(names: Sequence[str]) -> Keys:
    """Return what the properties of these names begin with."""
    keys = [(name + NAME_VALUE_SEPARATOR).encode() for name in names]
    data, bounds = arguments.joined(keys)
    # No property has a name that is empty or has a separator in it. Such a name gets a length that
    # no segment reaches, so that the loop needs no case for it.
    lengths = [
        _NEVER_BYTES
        if not name or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name
        else len(key)
        for name, key in zip(names, keys, strict=True)
    ]
    words = [int.from_bytes(key[:_WORD_BYTES], "little") for key in keys]
    masks = [(1 << 8 * min(len(key), _WORD_BYTES)) - 1 for key in keys]
    return (
        data,
        bounds,
        np.array(lengths, dtype=np.int64),
        np.array(words, dtype=np.uint64),
        np.array(masks, dtype=np.uint64),
    )


@inlined
def announce(data: NDArray[np.uint8], start: int) -> None:
    """Prefetch a text that will be searched soon: three lines, as long as most texts are."""
    for line in range(_TEXT_LINES):
        prefetch(data, start + line * LINE_BYTES)


@inlined
def search(
    data: NDArray[np.uint8],
    start: int,
    length: int,
    keys: Keys,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Find the value of each key in the text data[start : start + length].

    An absent one has the text's start and length 0. The data are at least BLOCK_BYTES long.
    """
    for key in range(len(keys[2])):
        starts[key] = start
        lengths[key] = 0
    end = start + length
    begin = start
    for block in range(start, end, BLOCK_BYTES):
        # Near the end of the data an earlier block is read, and its first bits are dropped: a block
        # beyond the end may be a page that is not mapped.
        at = min(block, len(data) - BLOCK_BYTES)
        bits = up_to(end - block, value_ends(data, at) >> np.uint64(block - at))
        while bits != _NONE:
            stop = block + lowest_bit(bits)
            bits &= bits - _ONE  # clears the lowest bit
            note(data, begin, stop, keys, starts, lengths)
            begin = stop + 1
    # The last property may lack its 0x02 (text.py).
    note(data, begin, end, keys, starts, lengths)


@inlined
def is_ascii(data: NDArray[np.uint8], start: int, length: int) -> bool:
    """Tell whether a text is ASCII; the data are at least BLOCK_BYTES long."""
    end = start + length
    seen = _NONE
    for block in range(start, end, BLOCK_BYTES):
        at = min(block, len(data) - BLOCK_BYTES)
        seen |= up_to(end - block, high_bytes(data, at) >> np.uint64(block - at))
    return bool(seen == _NONE)


@inlined
def up_to(count: int, bits: Any) -> Any:
    """Return the lowest `count` bits; the others become 0."""
    # A shift by 64 would be undefined.
    if count < BLOCK_BYTES:
        return bits & ((_ONE << np.uint64(count)) - _ONE)
    return bits


@inlined
def note(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    keys: Keys,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Note the value in data[begin:end], if that is a property with one of the keys.

    A later one overwrites an earlier one: of two entries with one name the last wins.
    """
    if begin >= end:
        return
    text, text_starts, sizes, words, masks = keys
    # Eight bytes are compared at once; which of them count is in the mask. Bytes behind a short
    # segment do no harm: its length is compared too.
    at = min(begin, len(data) - _WORD_BYTES)
    word = load_word(data, at) >> np.uint64(8 * (begin - at))
    for key in range(len(words)):
        if (word & masks[key]) == words[key]:
            size = sizes[key]
            if end - begin > size and is_rest(data, begin, text, text_starts[key], size):
                starts[key] = begin + size
                lengths[key] = end - begin - size


@inlined
def is_rest(
    data: NDArray[np.uint8], at: int, other: NDArray[np.uint8], start: int, length: int
) -> bool:
    """Tell whether two texts of one length are equal behind the first word."""
    for index in range(_WORD_BYTES, length):
        if load_byte(data, at + index) != load_byte(other, start + index):
            return False
    return True


def sieve_of(names: Sequence[str]) -> NDArray[np.uint8]:
    """Return a table that is 1 where the first six bytes of a name, with 0x01 behind it, hash to.

    All of them, if a name is shorter.
    """
    table = np.zeros(_SIEVE_SLOTS, dtype=np.uint8)
    for name in names:
        key = (name + NAME_VALUE_SEPARATOR).encode()
        if len(key) < _HEAD_BYTES:
            return np.ones(_SIEVE_SLOTS, dtype=np.uint8)
        head = int.from_bytes(key[:_HEAD_BYTES], "little")
        table[(head * _SIEVE_FACTOR % (1 << 64)) >> _SIEVE_SHIFT] = 1
    return table


@inlined
def may_be_named(data: NDArray[np.uint8], begin: int, sieve: NDArray[np.uint8]) -> bool:
    """Tell whether what begins at a position may have one of the names of a sieve."""
    at = min(begin, len(data) - _WORD_BYTES)
    word = load_word(data, at) >> np.uint64(8 * (begin - at))
    slot = ((word & _HEAD) * np.uint64(_SIEVE_FACTOR)) >> np.uint64(_SIEVE_SHIFT)
    return bool(load_byte(sieve, slot) != 0)


@kernel(types.int64, BYTES, INT64S, INT64S, BYTES, INT64S_OUT)
def sift_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    sieve: NDArray[np.uint8],
    rows: NDArray[np.int64],
) -> int:
    """Find the texts that may have a property with one of the names of a sieve; return how many.

    Nearly every other name is told apart by its first six bytes, so few are looked at again.
    """
    found = 0
    for row in range(len(starts)):
        if row + AHEAD_ROWS < len(starts):
            announce(data, starts[row + AHEAD_ROWS])
        start, end = starts[row], starts[row] + lengths[row]
        may = start < end and may_be_named(data, start, sieve)
        for block in range(start, end, BLOCK_BYTES):
            at = min(block, len(data) - BLOCK_BYTES)
            bits = up_to(end - block, value_ends(data, at) >> np.uint64(block - at))
            while bits != _NONE:
                begin = block + lowest_bit(bits) + 1
                bits &= bits - _ONE  # clears the lowest bit
                may |= begin < end and may_be_named(data, begin, sieve)
        if may:
            rows[found] = row
            found += 1
    return found


@kernel(types.void, BYTES, INT64S, INT64S, KEYS, INT64S_OUT, INT64S_OUT)
def find_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    keys: Keys,
    value_starts: NDArray[np.int64],
    value_lengths: NDArray[np.int64],
) -> None:
    """Search many texts; the value of key k in text i is element k * texts + i."""
    count, rows = len(keys[2]), len(starts)
    found_starts = np.empty(count, dtype=np.int64)
    found_lengths = np.empty(count, dtype=np.int64)
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            announce(data, starts[row + AHEAD_ROWS])
        search(data, starts[row], lengths[row], keys, found_starts, found_lengths)
        for key in range(count):
            value_starts[key * rows + row] = found_starts[key]
            value_lengths[key * rows + row] = found_lengths[key]
