"""Hashes of tags and index keys, record by record: the twin of index_keys.py and java.py.

Run by `_hashes_compiled` in dispatch_request.py for batches that are worth it. Only for ASCII
texts, whose bytes are the UTF-16 units that Java hashes; any other text makes a kernel return -1,
and the twin hashes the whole batch.
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

    from broker_core.codec.properties.join import DispatchValues
    from broker_core.codec.properties.search_kernels import Keys

BOOLEANS = types.Array(types.boolean, 1, "C", readonly=True)
SEEDS = types.UniTuple(INT32S, 2)

_TAGS, _KEYS, _UNIQUE = range(3)
_SPACE = 0x20
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
# Every second byte, pair and four bytes of a word; and the distance from each to the next, in bits.
_BYTES, _PAIRS, _FOURS = (
    np.uint64(mask) for mask in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF)
)
_1, _2, _4 = (np.uint64(8 * byte) for byte in (1, 2, 4))
_POWER_1, _POWER_2, _POWER_4, _POWER_8 = (np.uint64(31**power) for power in (1, 2, 4, 8))


@inlined
def hash_of_word(word: Any) -> Any:
    """Return the hash of eight ASCII bytes, the lowest first: of pairs, then fours, then all.

    All sums of a step are computed in one multiplication. A pair is less than 2**13 and four bytes
    less than 2**23, so no sum runs into its neighbour.
    """
    pairs = (word & _BYTES) * _POWER_1 + ((word >> _1) & _BYTES)
    fours = (pairs & _PAIRS) * _POWER_2 + ((pairs >> _2) & _PAIRS)
    return (fours & _FOURS) * _POWER_4 + (fours >> _4)


@inlined
def java_hash(data: NDArray[np.uint8], start: int, length: int, seed: Any) -> Any:
    """Return the hash of data[start : start + length] behind a text whose hash is `seed`.

    The lower 32 of its 64 bits are Java's hash. Eight bytes a step, so that a step waits for one
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
    """Return the lower 32 bits as Java's signed int."""
    return np.int32(np.uint32(value & np.uint64(0xFFFFFFFF)))


@inlined
def as_stored(value: Any) -> Any:
    """Return the non-negative form that index files store; the twin of `index_hash`."""
    number = np.int64(as_int32(value))
    if number == -(1 << 31):
        return np.int32(0)
    return np.int32(abs(number))


@inlined
def end_of_key(data: NDArray[np.uint8], begin: int, end: int) -> int:
    """Return where the key that begins at `begin` ends: at a space, or with the text."""
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
    """Write the hashes of keys between spaces behind `count` others; return the new count.

    -1 if there would be no room left for the tag's hash, which may follow.
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
    """Write each record's tags code, and (row, hash) of its index keys; return the number of keys.

    `texts` are the starts and lengths of the records' properties, `names` the names of tags, keys
    and unique keys, `seeds` the hashes of `topic#` and `topic#T#` for each topic. -1 if a value is
    not ASCII, or there are more keys than room.
    """
    starts, lengths = texts
    rows, room = len(starts), len(key_rows)
    found = np.empty(3, dtype=np.int64)
    sizes = np.empty(3, dtype=np.int64)
    count = 0
    for row in range(rows):
        # Records of one queue lie far apart: without this each would be waited for.
        if row + AHEAD_ROWS < rows:
            announce(data, starts[row + AHEAD_ROWS])
        search(data, starts[row], lengths[row], names, found, sizes)
        # Only what is hashed has to be ASCII; other properties may hold any text.
        if not is_ascii(data, found[_TAGS], sizes[_TAGS]):
            return -1
        tags_codes[row] = as_int32(java_hash(data, found[_TAGS], sizes[_TAGS], 0))
        if not indexed[row]:
            continue
        code = codes[row]
        seed = seeds[0][code]
        if count + 2 > room or not is_ascii(data, found[_UNIQUE], sizes[_UNIQUE]):
            return -1
        if sizes[_UNIQUE]:
            key_rows[count] = row
            key_hashes[count] = as_stored(java_hash(data, found[_UNIQUE], sizes[_UNIQUE], seed))
            count += 1
        begin = found[_KEYS]
        end = begin + sizes[_KEYS]
        if not is_ascii(data, begin, end - begin):
            return -1
        count = put_keys(data, begin, end, seed, row, key_rows, key_hashes, count)
        if count < 0:
            return -1
        if index_tags and sizes[_TAGS]:
            key_rows[count] = row
            key_hashes[count] = as_stored(
                java_hash(data, found[_TAGS], sizes[_TAGS], seeds[1][code])
            )
            count += 1
    return count


@kernel(BOOLEAN, BYTES, types.uint64)
def lacks(data: NDArray[np.uint8], byte: int) -> bool:
    """Tell whether all bytes are ASCII and none is this one, itself ASCII."""
    pattern = _ONES * np.uint64(byte)
    seen = np.uint64(0)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = load_word(data, at)
        # The byte that is looked for becomes 0 and borrows, which sets its high bit. Another byte
        # can be borrowed from only behind such a one, so a false hit never comes alone.
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
    values: DispatchValues,
    are_single: bool,
    codes: NDArray[np.int32],
    indexed: NDArray[np.bool_],
    seeds: tuple[NDArray[np.int32], NDArray[np.int32]],
    index_tags: bool,
    tags_codes: NDArray[np.int64],
    key_rows: NDArray[np.int64],
    key_hashes: NDArray[np.int32],
) -> int:
    """Do the work of `hash_properties` for values already known, all of them ASCII.

    `are_single` says that no row's keys contain a space: each is one key.
    """
    tags, tags_at, tags_lengths = values[_TAGS]
    keys, keys_at, keys_lengths = values[_KEYS]
    unique, unique_at, unique_lengths = values[_UNIQUE]
    count = 0
    for row in range(len(codes)):
        tags_codes[row] = as_int32(java_hash(tags, tags_at[row], tags_lengths[row], 0))
        if not indexed[row]:
            continue
        # One row has a unique key, a tag, and a key if keys are single: room for three.
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
