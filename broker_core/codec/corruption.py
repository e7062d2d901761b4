"""Saying in words why a record was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.codec import layout
from broker_core.codec.record import decode_record
from broker_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch


def corrupt(frames: FrameBatch, row: int, what: str = "") -> CorruptRecordError:
    """The error that names record `row` of a batch and what is wrong with it."""
    start = int(frames.starts[row])
    place = start + (frames.origin or 0)
    where = f"{frames.name or 'a received batch'}, physical offset {place}"
    if frames.queue is not None:
        where += f" (queue {frames.queue}, offset {int(frames.offsets[row])})"
    reason = what or _reason(frames, start, int(frames.sizes[row]))
    message = f"Corrupt record in {where}: {reason}. Run `rocketmq-broker check` on the store."
    return CorruptRecordError(message, frames.name, place)


def _reason(frames: FrameBatch, start: int, size: int) -> str:
    """What a scalar look at the record finds; only one that is not fine by itself gets that far."""
    if start < 0 or start + size > len(frames.buffer) or size < layout.MIN_RECORD_BYTES:
        return f"its {size} bytes do not fit the {len(frames.buffer)} bytes that are there"
    try:
        record = decode_record(frames.buffer[start:].data)
    except CorruptRecordError as error:
        return str(error.__cause__)
    stored = int.from_bytes(frames.buffer[start : start + 4].tobytes(), "big")
    if stored != size:
        return f"its size is {stored}, the consume queue says {size}"
    if frames.origin is not None and record.physical_offset != start + frames.origin:
        return f"it says that it lies at {record.physical_offset}"
    return (
        f"it is message {record.queue_offset} of {record.topic}/{record.queue_id},"
        f" not the one looked for"
    )
