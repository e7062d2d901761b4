"""The reply to an append: offsets, sizes and queues of its messages (types.AppendResult).

Integers are little-endian, so that the arrays can be used as they are.

    0   magic             u32   "RMQP"
    4   version           u32   1
    8   count             u64   N messages
    16  store_timestamp   i64   milliseconds since 1970, one for all of them
    24  queue_offsets     i64   N of them
        physical_offsets  i64   N of them
        sizes             i32   N of them
        queue_ids         i32   N of them

N is 0 for an append with `without_places`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import RequestError
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from broker_core.store.few_records import FewPlaces

MAGIC = int.from_bytes(b"RMQP", "little")
VERSION = 1
HEAD = struct.Struct("<IIQq")
ROW_BYTES = 8 + 8 + 4 + 4


def pack_few_places(places: FewPlaces) -> bytes:
    """Return the reply for a few messages: the twin of `pack_append_result` without arrays."""
    queue_ids, queue_offsets, physical_offsets, sizes, store_ms = places
    count = len(sizes)
    return HEAD.pack(MAGIC, VERSION, count, store_ms) + struct.pack(
        f"<{2 * count}q{2 * count}i", *queue_offsets, *physical_offsets, *sizes, *queue_ids
    )


def pack_append_result(result: AppendResult) -> bytes:
    """Return the reply for a batch."""
    head = HEAD.pack(MAGIC, VERSION, len(result.sizes), result.store_timestamp_ms)
    return b"".join(
        (
            head,
            result.queue_offsets.astype("<i8").data,
            result.physical_offsets.astype("<i8").data,
            result.sizes.astype("<i4").data,
            result.queue_ids.astype("<i4").data,
        )
    )


def unpack_append_result(message: bytes) -> AppendResult:
    """Return the result in a reply; raise RequestError unless all of it adds up."""
    if len(message) < HEAD.size:
        raise _refused(message)
    magic, version, count, store_ms = HEAD.unpack_from(message)
    if (magic, version) != (MAGIC, VERSION) or len(message) != HEAD.size + count * ROW_BYTES:
        raise _refused(message)
    at = HEAD.size
    return AppendResult(
        queue_offsets=np.frombuffer(message, "<i8", count, at),
        physical_offsets=np.frombuffer(message, "<i8", count, at + 8 * count),
        sizes=np.frombuffer(message, "<i4", count, at + 16 * count),
        queue_ids=np.frombuffer(message, "<i4", count, at + 20 * count),
        store_timestamp_ms=store_ms,
    )


def _refused(message: bytes) -> RequestError:
    return RequestError(
        f"The answer to an append can't be read: {len(message)} bytes that begin with "
        f"{message[:8].hex()}. Both ends must be of one version."
    )
