"""Records in answers: one after another, whole, as in the commit log.

The boundaries follow from the sizes alone, which chain the records together; all other fields are
the codec's business. A size that leads outside of the answer makes it a broken one.

Answers from 1 MiB on are read by a compiled loop where kernels are available (`_heads_compiled`),
smaller ones by the plain loop of `record_starts`: there loading the kernel does not pay.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.codec.spans import integers
from broker_core.jit import availability
from broker_core.wire.remoting.command import Body
from broker_core.wire.remoting.frame import RemotingProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZE = struct.Struct(">i")
_LARGE_BYTES = 1 << 20
"""Size from which a compiled loop is worth loading."""


def record_starts(body: Body) -> NDArray[np.int64]:
    """Return the position of each record in an answer; ValueError if sizes lead outside of it."""
    if len(body) >= _LARGE_BYTES and availability.is_available():
        found = _heads_compiled(body)
        if found is not None:
            return found.starts
    starts: list[int] = []
    # Locals: this loop runs once for each record.
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
    """Positions, sizes and queue offsets of records; `flags` has the bits of all system flags."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    flags: int


def record_heads(body: Body) -> RecordHeads:
    """Return the heads of an answer's records, by NumPy; by `_heads_compiled` from 1 MiB on.

    ValueError if sizes lead outside of the answer.
    """
    if len(body) >= _LARGE_BYTES and availability.is_available():
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
    """Return the heads of an answer's records, by a compiled loop: the twin of `record_heads`.

    Runs for answers from 1 MiB on. None if sizes lead outside of the answer: the plain loop then
    words the error.
    """
    from broker_core.codec.scan_kernels import follow_heads

    buffer = np.frombuffer(body, dtype=np.uint8)
    most = len(buffer) // layout.MIN_RECORD_BYTES
    starts, sizes = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int32)
    offsets = np.empty(most, dtype=np.int64)
    found, end, flags = follow_heads(buffer, starts, sizes, offsets)
    if end != len(buffer):
        return None
    # The arrays have room for the smallest records possible; copies let that memory go.
    return RecordHeads(starts[:found].copy(), sizes[:found].copy(), offsets[:found].copy(), flags)


def record_frames(body: Body, peer: str) -> FrameBatch:
    """Return the records of an answer, of any queues; RemotingProtocolError if it is broken."""
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
    """Return the error for an answer whose records do not fit together."""
    return RemotingProtocolError(f"{peer} sent records that do not fit together: {error}.")
