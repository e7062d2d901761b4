"""Messages into a cluster: single ones, batches, and halves of transactions.

Queue numbers here are lanes (topics.py), and topics the names that the cluster knows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.clients.cluster.client_instance import ClientInstance
from broker_core.clients.cluster.send.broker_share import SendReceipt
from broker_core.clients.cluster.send.delayed import unscheduled
from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE, plan_send_units
from broker_core.clients.cluster.send.sender import Sender
from broker_core.clients.cluster.send.transactions import ClusterHalf, as_halves, half_message
from broker_core.codec import layout
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.legal_names import check_topic
from broker_core.codec.message import message_properties, single_message
from broker_core.codec.property_names import DELAY, DELAY_LEVELS_SECONDS
from broker_core.codec.spans import spans_of
from broker_core.errors import IllegalMessageError
from broker_core.types import AppendResult, LogicalOffset, PhysicalOffset, SendResult
from broker_core.wire.remoting.frame import RemotingProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import MessageBatch

_PART_BYTES = 64 * 1024 * 1024
_MODES_OF_FLUSH = (None, "async", "sync")


class MessageSender:
    """All that writes messages; thread-safe."""

    def __init__(self, directory: ClientInstance) -> None:
        self._directory = directory
        self._settings = directory.settings
        self.sender = Sender(directory)
        self._ids = UniqueIds()
        self._ids_lock = threading.Lock()

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None,
        keys: Sequence[str] | str | None,
        properties: Mapping[str, str] | None,
        lane: int | None,
        sharding_key: str | None,
        delay_level: int,
    ) -> SendResult:
        """Send one message and return where it lies; a delayed one lies there when it is due."""
        unique_key = self._unique_key()
        stored = message_properties(
            check_topic(topic),
            unique_key,
            tags=tags,
            keys=keys,
            properties=properties,
            sharding_key=sharding_key,
        )
        if delay_level:
            stored[DELAY] = _delay(topic, delay_level)
        message = single_message(
            topic, self._lane(topic, lane, sharding_key), body, stored, _now_ms()
        )
        (receipt,) = self._deliver(self._compressed(message), self._settings.producer_group, False)
        (physical_offset,) = _physical_offsets(receipt).tolist()
        return SendResult(
            topic=topic,
            broker_name=receipt.queue.broker_name,
            queue_id=receipt.answer.queue_id,
            queue_offset=LogicalOffset(receipt.answer.queue_offset),
            msg_id=unique_key,
            offset_msg_id=receipt.answer.message_ids,
            physical_offset=PhysicalOffset(physical_offset),
        )

    def append(self, messages: MessageBatch, flush: str | None) -> AppendResult:
        """Send a batch and wait until all of it is acknowledged.

        `sizes` of the result are as sent, without what brokers add; its time is ours.
        """
        if flush not in _MODES_OF_FLUSH:
            raise IllegalMessageError(f"flush={flush!r} is not a mode; give 'async' or 'sync'.")
        messages = unscheduled(messages)
        queue_ids = np.array(messages.queue_ids, dtype=np.int32)
        queue_offsets = np.zeros(len(messages), dtype=np.int64)
        physical_offsets = np.zeros(len(messages), dtype=np.int64)
        first = 0
        for part in messages.parts(_PART_BYTES):
            group = self._settings.producer_group
            for receipt in self._deliver(part, group, flush == "sync"):
                rows = receipt.piece.rows + first
                offset = receipt.answer.queue_offset
                queue_offsets[rows] = np.arange(offset, offset + len(rows))
                physical_offsets[rows] = _physical_offsets(receipt)
            first += len(part)
        return AppendResult(
            queue_ids, queue_offsets, physical_offsets, _record_sizes(messages), _now_ms()
        )

    def prepare(self, messages: MessageBatch, group: str) -> list[ClusterHalf]:
        """Send a batch as half messages of a producer group; where they lie, in order."""
        halves: list[ClusterHalf | None] = [None] * len(messages)
        for receipt in self._deliver(as_halves(messages, group), group, False):
            halves[int(receipt.piece.rows[0])] = half_message(receipt, group)
        return [half for half in halves if half is not None]

    def _deliver(self, messages: MessageBatch, group: str, is_sync: bool) -> list[SendReceipt]:
        settings = self._settings
        pieces = plan_send_units(messages, settings.batch_bytes, settings.max_message_size)
        receipts = self.sender.send(pieces, group, is_sync=is_sync)
        for receipt in receipts:
            if receipt.piece.is_visible:
                end = receipt.answer.queue_offset + len(receipt.piece.rows)
                self._directory.acknowledged.note(receipt.queue, end)
        return receipts

    def _lane(self, topic: str, lane: int | None, sharding_key: str | None) -> int:
        if lane is not None or not sharding_key:
            return ANY_WRITE_QUEUE if lane is None else lane
        lanes = self._directory.routes.find(topic).writable()
        return index_hash(java_hash(sharding_key)) % max(1, len(lanes))

    def _compressed(self, message: MessageBatch) -> MessageBatch:
        """A single message as the settings want it stored."""
        kind, (body,) = self._settings.compression, message.bodies.to_pylist()
        if kind == "none" or len(body) < self._settings.compression_threshold:
            return message
        packed = pa.array([compress(body, kind)], type=pa.binary())
        return replace(message, bodies=packed, sys_flags=compression_flags(kind))

    def _unique_key(self) -> str:
        with self._ids_lock:
            if self._ids.process_id != os.getpid():
                self._ids = UniqueIds()
            return self._ids.make(1).tobytes().decode()


def _delay(topic: str, level: int) -> str:
    if not 1 <= level <= len(DELAY_LEVELS_SECONDS):
        raise IllegalMessageError(
            f"Delay level {level} for topic {topic} is not one of 1 to {len(DELAY_LEVELS_SECONDS)}."
        )
    return str(level)


def _physical_offsets(receipt: SendReceipt) -> NDArray[np.int64]:
    try:
        return receipt.answer.physical_offsets(len(receipt.piece.rows))
    except ValueError as error:
        text = f"Broker {receipt.queue.broker_name} acknowledged a send oddly ({error})."
        raise RemotingProtocolError(text) from error


def _record_sizes(messages: MessageBatch) -> NDArray[np.int32]:
    topics = np.array([len(topic.encode()) for topic in messages.topics], dtype=np.int64)
    lengths = spans_of(messages.bodies).lengths + messages.property_parts.lengths
    sizes = layout.MIN_RECORD_BYTES + lengths + topics[messages.topic_codes]
    return sizes.astype(np.int32)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
