"""Records as brokers send them: one after another, whole, as they lie in the commit log.

The boundaries follow from the sizes alone, which chain the records together; all other fields are
the codec's business. A size that leads outside of what was received is a broken answer.

Following a chain takes a step for each record. So a long one is entered at many places at once,
wherever a record seems to begin, and all steps are taken together; what is found counts if each
entry's steps end exactly at the next entry, because then it is the same chain.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from broker_core.clients.remoting.command import Body
from broker_core.clients.remoting.frame import RemotingProtocolError
from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.codec.gather import integers, sliding

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZE = struct.Struct(">i")
_LARGE_BYTES = 32 * 1024
"""From here on entering at many places is worth it."""
_ENTRIES = 512
_MIN_STRIDE = 4096
_SEARCHED = 1024
"""So many bytes from each stride's start are searched for a record's beginning."""
_MAGIC = int(layout.MAGIC_V1)
_MAGIC_FIRST = _MAGIC >> 24


def record_starts(body: Body) -> NDArray[np.int64]:
    """Where each record of an answer begins; ValueError if sizes lead astray."""
    if len(body) >= _LARGE_BYTES:
        buffer = np.frombuffer(body, dtype=np.uint8)
        found = _follow(buffer, _entries(buffer))
        if found is not None:
            return found
    starts: list[int] = []
    append, unpack, smallest = starts.append, _SIZE.unpack_from, layout.MIN_RECORD_BYTES
    at, end = 0, len(body)
    last = end - smallest
    while at <= last:
        (size,) = unpack(body, at)
        if size < smallest:
            raise ValueError(f"record {len(starts)} says that it has {size} bytes")
        append(at)
        at += size
    if at != end:
        raise ValueError(f"{len(starts)} records take {at} bytes, {end} were received")
    return np.array(starts, dtype=np.int64)


def _entries(buffer: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The first record, and places all over the buffer where others seem to begin, in order."""
    stride = max(_MIN_STRIDE, len(buffer) // _ENTRIES)
    count = (len(buffer) - _SEARCHED - layout.MAGIC) // stride
    searched = np.ndarray(
        (count, _SEARCHED), np.uint8, buffer, offset=layout.MAGIC, strides=(stride, 1)
    )
    guessed = (searched == _MAGIC_FIRST).argmax(axis=1) + np.arange(count) * stride
    is_magic = integers(buffer, guessed + layout.MAGIC, ">u4") == _MAGIC
    is_magic[0] = False
    return np.concatenate(([0], guessed[is_magic]))


def _follow(buffer: NDArray[np.uint8], entries: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Where each record begins, from all entries at once; None if these do not make one chain."""
    found: list[NDArray[np.int64]] = []
    at, ends = entries, np.append(entries[1:], len(buffer))
    last = len(buffer) - layout.MIN_RECORD_BYTES
    size_at = sliding(buffer, ">i4")
    while len(at):
        if at[-1] > last:
            return None
        found.append(at)
        sizes = size_at[at]
        at = at + sizes
        if bool(((sizes < layout.MIN_RECORD_BYTES) | (at > ends)).any()):
            return None
        is_left = at < ends
        at, ends = at[is_left], ends[is_left]
    starts = np.concatenate(found)
    starts.sort()
    return starts


def record_frames(body: Body, who: str) -> FrameBatch:
    """The records of an answer, of any queues; RemotingProtocolError if it is broken."""
    try:
        starts = record_starts(body)
    except ValueError as error:
        raise broken_records(who, error) from error
    buffer = np.frombuffer(body, dtype=np.uint8)
    return FrameBatch(
        buffer=buffer,
        starts=starts,
        sizes=np.diff(starts, append=len(buffer)).astype(np.int32),
        offsets=integers(buffer, starts + layout.QUEUE_OFFSET, ">i8"),
        name=who,
        verify=True,
    )


def broken_records(who: str, error: Exception) -> RemotingProtocolError:
    """The error for an answer that is no row of records."""
    return RemotingProtocolError(f"{who} sent records that do not fit together: {error}.")
