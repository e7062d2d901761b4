"""Records as brokers send them: one after another, whole, as they lie in the commit log.

The boundaries follow from the sizes alone, which chain the records together; all other fields are
the codec's business. A size that leads outside of what was received is a broken answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.codec.spans import integers
from broker_core.jit import kernels
from broker_core.wire.remoting.command import Body
from broker_core.wire.remoting.frame import RemotingProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZE = struct.Struct(">i")
_LARGE_BYTES = 1 << 20
"""From here on a compiled loop is worth loading."""


def record_starts(body: Body) -> NDArray[np.int64]:
    """Where each record of an answer begins; ValueError if sizes lead astray."""
    if len(body) >= _LARGE_BYTES and kernels.is_available():
        found = _heads_compiled(body)
        if found is not None:
            return found.starts
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


class RecordHeads(NamedTuple):
    """Where records lie, their queue offsets, and the bits of all their system flags."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    flags: int


def record_heads(body: Body) -> RecordHeads:
    """What the heads of an answer's records say; ValueError if sizes lead astray."""
    if len(body) >= _LARGE_BYTES and kernels.is_available():
        found = _heads_compiled(body)
        if found is not None:
            return found
    buffer = np.frombuffer(body, dtype=np.uint8)
    starts = record_starts(body)
    flags = integers(buffer, starts + layout.SYS_FLAG, ">i4")
    return RecordHeads(
        starts,
        np.diff(starts, append=len(buffer)).astype(np.int32),
        integers(buffer, starts + layout.QUEUE_OFFSET, ">i8"),
        int(np.bitwise_or.reduce(flags)),
    )


def _heads_compiled(body: Body) -> RecordHeads | None:
    """The same by a kernel; None if sizes lead astray."""
    from broker_core.codec.scan_kernels import follow_heads

    buffer = np.frombuffer(body, dtype=np.uint8)
    most = len(buffer) // layout.MIN_RECORD_BYTES
    starts, sizes = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int32)
    offsets = np.empty(most, dtype=np.int64)
    found, end, flags = follow_heads(buffer, starts, sizes, offsets)
    if end != len(buffer):
        return None
    # There was room for many more.
    return RecordHeads(starts[:found].copy(), sizes[:found].copy(), offsets[:found].copy(), flags)


def record_frames(body: Body, peer: str) -> FrameBatch:
    """The records of an answer, of any queues; RemotingProtocolError if it is broken."""
    try:
        heads = record_heads(body)
    except ValueError as error:
        raise broken_records(peer, error) from error
    return FrameBatch(
        buffer=np.frombuffer(body, dtype=np.uint8),
        starts=heads.starts,
        sizes=heads.sizes,
        offsets=heads.offsets,
        name=peer,
        verify=True,
    )


def broken_records(peer: str, error: Exception) -> RemotingProtocolError:
    """The error for an answer that is no row of records."""
    return RemotingProtocolError(f"{peer} sent records that do not fit together: {error}.")
