"""Transactions on the wire: batches, receipts and half messages (types.py), packed and unpacked."""

from __future__ import annotations

from broker_core.types import (
    BatchRef,
    HalfMessage,
    LogicalOffset,
    PhysicalOffset,
    Prepared,
    Receipt,
)
from broker_core.wire.core import broker_pb2 as pb


def pack_batch(batch: BatchRef) -> pb.Batch:
    """Return the wire message of a batch's name."""
    return pb.Batch(owner=batch.owner, name=batch.name, number=batch.number)


def unpack_batch(message: pb.Batch) -> BatchRef:
    """Return a batch's name."""
    return BatchRef(message.owner, message.name, message.number)


def pack_prepared(prepared: Prepared) -> pb.Prepared:
    """Return the wire message of what one call prepared."""
    return pb.Prepared(start=prepared.start, end=prepared.end)


def unpack_prepared(message: pb.Prepared) -> Prepared:
    """Return what one call prepared."""
    return Prepared(LogicalOffset(message.start), LogicalOffset(message.end))


def pack_receipt(receipt: Receipt) -> pb.Receipt:
    """Return the wire message of a receipt."""
    return pb.Receipt(
        batch=pack_batch(receipt.batch),
        attempt=receipt.attempt,
        prepared=[pack_prepared(each) for each in receipt.prepared if each.start != each.end],
    )


def unpack_receipt(message: pb.Receipt, batch: BatchRef) -> Receipt:
    """Return a receipt of a batch, which its own must equal; without ranges that hold nothing."""
    return Receipt(
        batch,
        message.attempt,
        tuple(unpack_prepared(each) for each in message.prepared if each.start != each.end),
    )


def pack_half(half: HalfMessage) -> pb.HalfMessage:
    """Return the wire message of a half message's handle."""
    return pb.HalfMessage(
        topic=half.topic,
        queue_id=half.queue_id,
        transaction_id=half.transaction_id,
        group=half.group,
        half_offset=half.half_offset,
        physical_offset=half.physical_offset,
    )


def unpack_half(message: pb.HalfMessage) -> HalfMessage:
    """Return a half message's handle."""
    return HalfMessage(
        message.topic,
        message.queue_id,
        message.transaction_id,
        message.group,
        LogicalOffset(message.half_offset),
        PhysicalOffset(message.physical_offset),
    )
