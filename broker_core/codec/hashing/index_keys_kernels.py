"""Hashes of tags and index keys, record by record; the twin of dispatch.py's and index_keys.py's.

Only for ASCII texts, whose bytes are the UTF-16 units that Java hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from broker_core.codec.properties.search_kernels import KEYS, announce, is_ascii, search
from broker_core.jit.compiler import (
    AHEAD_ROWS,
    BOOLEAN,
    BYTES,
    INT32S,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    SPANS,
    inlined,
    kernel,
    load_byte,
    load_word,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.properties.columns import DispatchValues
    from broker_core.codec.properties.search_kernels import Keys

BOOLEANS = types.Array(types.boolean, 1, "C", readonly=True)
SEEDS = types.UniTuple(INT32S, 2)

_TAGS, _KEYS, _UNIQUE = range(3)
_SPACE = 0x20
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
# Bytes, pairs and fours of a word, one in two of them; and how far each is from the next.
_BYTES, _PAIRS, _FOURS = (
    np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF)
)
_1, _2, _4 = (np.uint64(8 * byte) for byte in (1, 2, 4))
_POWER_1, _POWER_2, _POWER_4, _POWER_8 = (np.uint64(31**power) for power in (1, 2, 4, 8))


@inlined
def hash_of_word(word: Any) -> Any:
    """The hash of eight bytes, the lowest first: of pairs, of fours made of them, of all.

    A pair comes to less than 2**13 and four bytes to less than 2**23, so none runs into the next.
    """
    pairs = (word & _BYTES) * _POWER_1 + ((word >> _1) & _BYTES)
    fours = (pairs & _PAIRS) * _POWER_2 + ((pairs >> _2) & _PAIRS)
    return (fours & _FOURS) * _POWER_4 + (fours >> _4)


@inlined
def java_hash(data: NDArray[np.uint8], start: int, length: int, seed: Any) -> Any:
    """The hash of data[start : start + length] behind a text whose hash is `seed`.

    Of 64 bits, of which the lower 32 are Java's. Eight bytes a step, so that a step waits for one
    multiplication and not for eight.
    """
    value = np.uint64(seed)
    at, end = start, start + length
    while at + 8 <= end:
        value = value * _POWER_8 + hash_of_word(load_word(data, at))
        at += 8
    while at < end:
        value = value * _POWER_1 + np.uint64(load_byte(data, at))
        at += 1
    return value


@inlined
def as_int32(value: Any) -> Any:
    """The lower 32 bits as Java's signed int."""
    return np.int32(np.uint32(value & np.uint64(0xFFFFFFFF)))


@inlined
def as_stored(value: Any) -> Any:
    """The non-negative form that index files store."""
    number = np.int64(as_int32(value))
    if number == -(1 << 31):
        return np.int32(0)
    return np.int32(abs(number))


@inlined
def end_of_key(data: NDArray[np.uint8], begin: int, end: int) -> int:
    """Where the key that begins at a place ends: at a space, or with the text."""
    at = begin
    while at < end and load_byte(data, at) != _SPACE:
        at += 1
    return at


@inlined
def put_keys(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    seed: Any,
    row: int,
    key_rows: NDArray[np.int64],
    key_hashes: NDArray[np.int32],
    count: int,
) -> int:
    """Put the hashes of keys between spaces behind `count` others.

    The number of hashes then; -1 if there is no room for one more than them.
    """
    while begin < end:
        stop = end_of_key(data, begin, end)
        if stop > begin:
            if count + 2 > len(key_rows):
                return -1
            key_rows[count] = row
            key_hashes[count] = as_stored(java_hash(data, begin, stop - begin, seed))
            count += 1
        begin = stop + 1
    return count


@kernel(
    INT64,
    BYTES,
    types.UniTuple(INT64S, 2),
    KEYS,
    INT32S,
    BOOLEANS,
    SEEDS,
    BOOLEAN,
    INT64S_OUT,
    INT64S_OUT,
    INT32S_OUT,
)
def hash_properties(
    data: NDArray[np.uint8],
    texts: tuple[NDArray[np.int64], NDArray[np.int64]],
    names: Keys,
    codes: NDArray[np.int32],
    indexed: NDArray[np.bool_],
    seeds: tuple[NDArray[np.int32], NDArray[np.int32]],
    index_tags: bool,
    tags_codes: NDArray[np.int64],
    key_rows: NDArray[np.int64],
    key_hashes: NDArray[np.int32],
) -> int:
    """Fill in each record's tags code, and (row, hash) of its index keys; the number of keys.

    `texts` are where the properties of records begin and how long they are; `names` those of tags,
    keys and unique keys; `seeds` the hashes of `topic#` and `topic#T#` for each topic. -1 if a
    value is not ASCII or there are more keys than room.
    """
    starts, lengths = texts
    rows, room = len(starts), len(key_rows)
    places = np.empty(3, dtype=np.int64)
    sizes = np.empty(3, dtype=np.int64)
    count = 0
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            announce(data, starts[row + AHEAD_ROWS])
        search(data, starts[row], lengths[row], names, places, sizes)
        if not is_ascii(data, places[_TAGS], sizes[_TAGS]):
            return -1
        tags_codes[row] = as_int32(java_hash(data, places[_TAGS], sizes[_TAGS], 0))
        if not indexed[row]:
            continue
        code = codes[row]
        seed = seeds[0][code]
        if count + 2 > room or not is_ascii(data, places[_UNIQUE], sizes[_UNIQUE]):
            return -1
        if sizes[_UNIQUE]:
            key_rows[count] = row
            key_hashes[count] = as_stored(java_hash(data, places[_UNIQUE], sizes[_UNIQUE], seed))
            count += 1
        begin = places[_KEYS]
        end = begin + sizes[_KEYS]
        if not is_ascii(data, begin, end - begin):
            return -1
        count = put_keys(data, begin, end, seed, row, key_rows, key_hashes, count)
        if count < 0:
            return -1
        if index_tags and sizes[_TAGS]:
            key_rows[count] = row
            key_hashes[count] = as_stored(
                java_hash(data, places[_TAGS], sizes[_TAGS], seeds[1][code])
            )
            count += 1
    return count


@kernel(BOOLEAN, BYTES, types.uint64)
def lacks(data: NDArray[np.uint8], byte: int) -> bool:
    """Whether no byte is this one, and all are ASCII as it is."""
    pattern = _ONES * np.uint64(byte)
    seen = np.uint64(0)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = load_word(data, at)
        # A byte that is found becomes 0 and borrows; others do only behind one that does.
        seen |= word | ((word ^ pattern) - _ONES)
    for at in range(whole, len(data)):
        last = np.uint64(load_byte(data, at))
        seen |= last | ((last ^ np.uint64(byte)) - np.uint64(1))
    return bool((seen & _HIGH_BITS) == 0)


@kernel(
    INT64,
    types.UniTuple(SPANS, 3),
    BOOLEAN,
    INT32S,
    BOOLEANS,
    SEEDS,
    BOOLEAN,
    INT64S_OUT,
    INT64S_OUT,
    INT32S_OUT,
)
def hash_values(
    named: DispatchValues,
    are_single: bool,
    codes: NDArray[np.int32],
    indexed: NDArray[np.bool_],
    seeds: tuple[NDArray[np.int32], NDArray[np.int32]],
    index_tags: bool,
    tags_codes: NDArray[np.int64],
    key_rows: NDArray[np.int64],
    key_hashes: NDArray[np.int32],
) -> int:
    """The same for records whose tags, keys and unique keys somebody knows, all of them ASCII.

    `are_single` says that no keys have a space in them.
    """
    tags, tags_at, tags_lengths = named[_TAGS]
    keys, keys_at, keys_lengths = named[_KEYS]
    unique, unique_at, unique_lengths = named[_UNIQUE]
    count = 0
    for row in range(len(codes)):
        tags_codes[row] = as_int32(java_hash(tags, tags_at[row], tags_lengths[row], 0))
        if not indexed[row]:
            continue
        if count + 3 > len(key_rows):
            return -1
        code = codes[row]
        seed = seeds[0][code]
        if unique_lengths[row]:
            key_rows[count] = row
            key_hashes[count] = as_stored(
                java_hash(unique, unique_at[row], unique_lengths[row], seed)
            )
            count += 1
        begin = keys_at[row]
        end = begin + keys_lengths[row]
        if not are_single:
            count = put_keys(keys, begin, end, seed, row, key_rows, key_hashes, count)
            if count < 0:
                return -1
        elif begin < end:
            key_rows[count] = row
            key_hashes[count] = as_stored(java_hash(keys, begin, end - begin, seed))
            count += 1
        if index_tags and tags_lengths[row]:
            key_rows[count] = row
            key_hashes[count] = as_stored(
                java_hash(tags, tags_at[row], tags_lengths[row], seeds[1][code])
            )
            count += 1
    return count
