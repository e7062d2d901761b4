"""Records as brokers send them: one after another, whole, as they lie in the commit log.

The boundaries follow from the sizes alone, which chain the records together; all other fields are
the codec's business. A size that leads outside of what was received is a broken answer.
"""

from __future__ import annotations

import struct

import numpy as np

from broker_core.clients.remoting.command import Body
from broker_core.clients.remoting.frame import RemotingProtocolError
from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.codec.gather import integers

_SIZE = struct.Struct(">i")


def record_starts(body: Body) -> list[int]:
    """Where each record of an answer begins; ValueError if sizes lead astray."""
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
    return starts


def record_frames(body: Body, who: str) -> FrameBatch:
    """The records of an answer, of any queues; RemotingProtocolError if it is broken."""
    try:
        starts = np.array(record_starts(body), dtype=np.int64)
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
