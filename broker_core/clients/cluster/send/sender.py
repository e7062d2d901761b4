"""Sending to a cluster: single messages and batches, acknowledged or an error.

Problem. A batch goes to many queues on several brokers. Brokers restart, refuse work when they are
busy, and lose answers; they take requests on several threads, so two requests for one queue that
are in flight together may be stored in either order; and they can't tell a message that is sent
again from a new one.

Invariants.
- When a call returns, every message is acknowledged by its master.
- Messages of one write queue are stored in the order of the batch: one unit of a queue is in flight
  at a time, and a unit that fails holds back those behind it.
- A unit that names its write queue is sent there and nowhere else. A unit for any queue moves to
  another broker when one fails.
- At least once: a unit whose answer is lost is sent again, with the same unique keys, and counted
  in `unsure`. A unit that is acknowledged is never sent again.
- Sizes are checked before anything of a part (64 MiB) is sent. Apart from that a batch is not all
  or nothing: when a call fails, other units may be stored.

Outline, each step one file further down:

    sender.py            properties, compression, rounds until everything is acknowledged
    plan.py              a batch cut into send units, one request each
    queue_selection.py   the queue of each unit
    broker_share.py      the units of one broker, over one connection
    wire/remoting/send_message.py, net/connection.py

A round gives each broker its share, side by side. What a round leaves unsent is assigned anew, with
fresh routes, after a pause that doubles from 10 ms. Sending ends with an error when no unit has
been acknowledged for `send_timeout_ms`.

Rejected. Several units of a queue in flight: faster for one queue, but a retry reorders them. All
or nothing by half messages: END_TRANSACTION is not idempotent, so a repeated commit delivers twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.clients.cluster.client_instance import ClientInstance, broker_label
from broker_core.clients.cluster.send.broker_share import BrokerShare, SendReceipt, ShareOutcome
from broker_core.clients.cluster.send.plan import (
    ANY_WRITE_QUEUE,
    SendUnit,
    plan_send_units,
    unscheduled,
)
from broker_core.clients.cluster.send.queue_selection import Assigned, FaultTolerance, QueueSelector
from broker_core.clock import now_ms
from broker_core.codec import layout
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.legal_names import check_topic
from broker_core.codec.message import message_properties, single_message
from broker_core.codec.property_names import DELAY, DELAY_LEVELS_SECONDS
from broker_core.codec.spans import spans_of
from broker_core.errors import IllegalMessageError, UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.types import AppendResult, LogicalOffset, PhysicalOffset, SendResult
from broker_core.wire.remoting.frame import RemotingProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.message_batch import MessageBatch

_PART_BYTES = 64 * 1024 * 1024
_FLUSH_MODES = (None, "async", "sync")


class ClusterSender:
    """The writing half of a cluster's client; thread-safe.

    Queue numbers are those of write queues (queue_selection.py), topics have the names that the
    cluster knows. `unsure` counts messages that may be stored twice.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self.unsure = 0
        self._instance = instance
        self._settings = instance.settings
        self._faults = FaultTolerance()
        self._selector = QueueSelector(instance.routes, self._faults)
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
        write_queue: int | None,
        sharding_key: str | None,
        delay_level: int,
    ) -> SendResult:
        """Send one message and return its offsets; a delayed one reaches its queue when due."""
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
        chosen = self._write_queue(topic, write_queue, sharding_key)
        message = single_message(topic, chosen, body, stored, now_ms())
        (receipt,) = self._deliver(self._compressed(message), is_sync=False)
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

        With flush="sync" a message that is stored but not confirmed as its broker was set up to
        confirm it (flushed, replicated) is an error. `sizes` of the result are as sent, without
        what brokers add; its time is this machine's.

        Raises:
            UnavailableError: Nothing could be sent for `send_timeout_ms`.
            RequestError, IllegalMessageError: A broker refuses a message for good.
        """
        if flush not in _FLUSH_MODES:
            raise IllegalMessageError(f"flush={flush!r} is not a mode; give 'async' or 'sync'.")
        messages = unscheduled(messages)
        queue_ids = np.array(messages.queue_ids, dtype=np.int32)
        queue_offsets = np.zeros(len(messages), dtype=np.int64)
        physical_offsets = np.zeros(len(messages), dtype=np.int64)
        first = 0
        for part in messages.parts(_PART_BYTES):
            for receipt in self._deliver(part, is_sync=flush == "sync"):
                rows = receipt.unit.rows + first
                offset = receipt.answer.queue_offset
                queue_offsets[rows] = np.arange(offset, offset + len(rows))
                physical_offsets[rows] = _physical_offsets(receipt)
            first += len(part)
        return AppendResult(
            queue_ids, queue_offsets, physical_offsets, _record_sizes(messages), now_ms()
        )

    def _deliver(self, messages: MessageBatch, *, is_sync: bool) -> list[SendReceipt]:
        """Cut a batch into units, send all, and note how far queues must reach to show them."""
        settings = self._settings
        units = plan_send_units(messages, settings.batch_bytes, settings.max_message_size)
        receipts = self._send_units(units, is_sync)
        for receipt in receipts:
            if receipt.unit.is_visible:
                end = receipt.answer.queue_offset + len(receipt.unit.rows)
                self._instance.acknowledged.note(receipt.queue, end)
        return receipts

    # Rounds

    def _send_units(self, units: Sequence[SendUnit], is_sync: bool) -> list[SendReceipt]:
        """Send units in rounds until all are acknowledged; return their receipts."""
        left = list(units)
        receipts: list[SendReceipt] = []
        backoff = Backoff(first_s=0.01)
        patience_ms = self._settings.send_timeout_ms
        patience = Deadline.after_ms(patience_ms)
        failing: set[str] = set()
        while left:
            outcome = ShareOutcome()
            for name, share in self._send_round(left, failing, is_sync):
                if share.failure is not None:
                    failing.add(name)
                    outcome.failure = share.failure
                outcome.receipts += share.receipts
                outcome.failed += share.failed
                self.unsure += share.unsure
            if outcome.receipts:
                patience = Deadline.after_ms(patience_ms)
                backoff.reset()
            receipts += outcome.receipts
            left = outcome.failed
            if left:
                if patience.has_passed:
                    raise _too_late(left, patience_ms, outcome.failure)
                backoff.pause(patience)
        return receipts

    def _send_round(
        self, units: Sequence[SendUnit], failing: set[str], is_sync: bool
    ) -> Iterator[tuple[str, ShareOutcome]]:
        """Send each broker its share, side by side; yield brokers' names and the outcomes."""
        try:
            shares = self._selector.assign(units, failing)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            yield "", ShareOutcome(failed=list(units), failure=error)
            return
        if len(shares) == 1:
            # One broker needs no second thread.
            ((name, assigned),) = shares.items()
            yield name, self._send_share(name, assigned, is_sync)
            return
        with ThreadPoolExecutor(len(shares), "remoting-send") as pool:
            waiting = [
                (name, pool.submit(self._send_share, name, assigned, is_sync))
                for name, assigned in shares.items()
            ]
            for name, future in waiting:
                yield name, future.result()

    def _send_share(self, name: str, assigned: Assigned, is_sync: bool) -> ShareOutcome:
        topic = assigned[0][1].topic
        share = BrokerShare(assigned, self._settings.producer_group, self._settings.sends_in_flight)
        try:
            server = self._instance.routes.find(topic).broker(name).master
            connection = self._instance.connections.to(server)
            share.send(connection, broker_label(name, server), self._faults, is_sync=is_sync)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            self._faults.note_failure(name)
            share.give_up(error)
        if share.outcome.failure is not None:
            # The master may have moved: the next round must ask the name servers.
            for failed in {queue.topic for _, queue in assigned}:
                self._instance.routes.expire(failed)
        return share.outcome

    # Single messages

    def _write_queue(self, topic: str, write_queue: int | None, sharding_key: str | None) -> int:
        if write_queue is not None or not sharding_key:
            return ANY_WRITE_QUEUE if write_queue is None else write_queue
        queues = self._instance.routes.find(topic).writable()
        return index_hash(java_hash(sharding_key)) % max(1, len(queues))

    def _compressed(self, message: MessageBatch) -> MessageBatch:
        """Return a single message as the settings want it stored."""
        kind, (body,) = self._settings.compression, message.bodies.to_pylist()
        if kind == "none" or len(body) < self._settings.compression_threshold:
            return message
        packed = pa.array([compress(body, kind)], type=pa.binary())
        return replace(message, bodies=packed, sys_flags=compression_flags(kind))

    def _unique_key(self) -> str:
        with self._ids_lock:
            # A forked child must not repeat its parent's ids.
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
        return receipt.answer.physical_offsets(len(receipt.unit.rows))
    except ValueError as error:
        text = f"Broker {receipt.queue.broker_name} acknowledged a send oddly ({error})."
        raise RemotingProtocolError(text) from error


def _record_sizes(messages: MessageBatch) -> NDArray[np.int32]:
    topics = np.array([len(topic.encode()) for topic in messages.topics], dtype=np.int64)
    lengths = spans_of(messages.bodies).lengths + messages.property_parts.lengths
    sizes = layout.MIN_RECORD_BYTES + lengths + topics[messages.topic_codes]
    return sizes.astype(np.int32)


def _too_late(
    left: Sequence[SendUnit], patience_ms: int, failure: UnavailableError | None
) -> UnavailableError:
    count = sum(len(unit.rows) for unit in left)
    topics = ", ".join(sorted({unit.topic for unit in left}))
    return UnavailableError(
        f"{count} messages for {topics} were not acknowledged within {patience_ms / 1000:g} s"
        f" (sendTimeoutMs); others of this batch may have been stored. {failure or ''}".rstrip()
    )
