"""Pulling a range of a queue: many requests in flight, batches out, in order and complete.

The meaning of an answer for an exact range:

    records, or "nothing matched" with a filter    covered up to where the broker looked
    nothing yet, though it must be there           ask again soon: not dispatched yet, or a replica
    nothing, and the queue ends before the range   ask again for 1 s, then OffsetRangeError
    offset moved, or records missing               OffsetRangeError: part of the range is gone
    busy, or no answer at all                      ask again, after pauses that grow
    connection lost                                look the broker up again, and go on from there

Trying ends when nothing has come for `pull_timeout_ms`.

Next steps down: window.py says which spans to ask for, wire/remoting/pull_message.py makes the
requests and reads the answers, batch.py joins answers to frame batches, with records.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker_core.clients.cluster.client_instance import ClientInstance, broker_label
from broker_core.clients.cluster.net.connection import PendingRequest, RemotingConnection
from broker_core.clients.cluster.pull.batch import BatchBuilder, PullReply, cut_behind
from broker_core.clients.cluster.pull.records import broken_records, record_starts
from broker_core.clients.cluster.pull.window import PullSpan, PullWindow
from broker_core.clients.cluster.route.route_cache import MAX_AGE_S
from broker_core.codec.frames import FrameBatch
from broker_core.errors import OffsetRangeError, UnavailableError
from broker_core.filter.pipeline import MessageFilter, Pipeline
from broker_core.retry import Backoff, Deadline
from broker_core.types import OffsetRange
from broker_core.wire.remoting.command import Command, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.pull_message import (
    PullAnswer,
    SubscriptionData,
    parse_pull_answer,
    pull_fields,
    pull_request,
)
from broker_core.wire.remoting.route import MASTER
from broker_core.wire.remoting.status import refusal

_FIRST_SPAN = 32_768
_FIRST_FILTERED_SPAN = 8_192
_GRACE_MS = 1_000
"""Time that a queue may seem to end too early: brokers show messages with some delay."""
_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclass(frozen=True)
class BatchLimits:
    """Limits of one batch in records and bytes; `verify` checks bodies' checksums."""

    rows: int
    size_bytes: int
    verify: bool = False


class Puller:
    """One range being pulled. Use once, from one thread, by `batches`."""

    def __init__(
        self,
        instance: ClientInstance,
        wanted: OffsetRange,
        message_filter: MessageFilter | None,
        limits: BatchLimits,
    ) -> None:
        settings = instance.settings
        self._instance = instance
        self._wanted = wanted
        subscription = SubscriptionData.of(message_filter)
        self._is_filtered = not subscription.is_everything
        self._pipeline = Pipeline(message_filter) if message_filter else None
        self._fields = pull_fields(wanted.queue, settings.consumer_group, subscription)
        self._window: PullWindow[PullReply] = PullWindow(
            wanted.start,
            wanted.end,
            _FIRST_FILTERED_SPAN if self._is_filtered else _FIRST_SPAN,
            settings.pulls_in_flight,
            settings.pull_bytes_in_flight,
        )
        self._peer = str(wanted.queue)
        self._builder = BatchBuilder(
            wanted.queue,
            self._peer,
            not self._is_filtered,
            limits.rows,
            limits.size_bytes,
            limits.verify,
        )
        self._broker_id = self._connected_id = MASTER
        self._backoff = Backoff()
        self._be_patient()
        self._short_since: Deadline | None = None
        self._last_failure: UnavailableError | None = None
        self._in_flight: dict[PendingRequest, PullSpan[PullReply]] = {}
        self._connection: RemotingConnection | None = None

    def batches(self) -> Iterator[FrameBatch]:
        """Yield the range as frame batches; errors as in the table above."""
        while not self._window.is_finished:
            self._advance()
            for span in self._window.take():
                assert span.part is not None, "taken spans are done"
                for batch in self._builder.add(span.part):
                    yield self._filtered(batch)
                    # The time that the caller took for a batch is not the broker's.
                    self._be_patient()
        for batch in self._builder.flush():
            yield self._filtered(batch)

    def _advance(self) -> None:
        """Take a step; after one that brought nothing, pause, or raise if patience is over."""
        try:
            has_come = self._step()
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            self._begin_again(error)
            has_come = False
        if not has_come:
            if self._patience.has_passed:
                raise self._too_late()
            self._backoff.pause(self._patience)

    def _filtered(self, batch: FrameBatch) -> FrameBatch:
        """Return the records of a batch that match the whole filter.

        Brokers compare hashes of tags only, and some send everything when SQL does not compile.
        """
        return self._pipeline.select_frames(batch) if self._pipeline else batch

    def _step(self) -> bool:
        """Ask for all that the window allows, take what has come; return True if all was good."""
        connection = self._connect()
        asking = self._window.spans_to_ask()
        if asking:
            requests = [pull_request(self._fields, s.start, s.end - s.start) for s in asking]
            started = connection.start_all(requests)
            self._in_flight.update(zip(started, asking, strict=True))
        connection.finish_any(self._in_flight)
        # One read of the socket often brings several answers: take all that are there.
        done = [pending for pending in self._in_flight if pending.is_done]
        good = [self._take(self._in_flight.pop(pending), pending) for pending in done]
        return all(good)

    def _take(self, span: PullSpan[PullReply], pending: PendingRequest) -> bool:
        """Take the end of one request; return True if it brought messages or covered offsets."""
        try:
            reply = self._reply(span, pending.result())
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            self._last_failure = error
            reply = None
        if reply is None:
            self._window.retry(span)
            return False
        self._window.accept(span, reply.end, reply, len(reply.body))
        self._last_failure = self._short_since = None
        self._backoff.reset()
        self._be_patient()
        return True

    def _be_patient(self) -> None:
        self._patience = Deadline.after_ms(self._instance.settings.pull_timeout_ms)

    def _reply(self, span: PullSpan[PullReply], answer: Command) -> PullReply | None:
        """Return the messages of an answer, or None to ask again after a pause."""
        if answer.code not in _PULL_CODES:
            raise refusal(answer, self._peer)
        try:
            found = parse_pull_answer(answer)
            self._require_range(span, found)
            reply = self._records(span, found)
        except (KeyError, ValueError) as error:
            raise broken_records(self._peer, error) from error
        if reply is None:
            self._not_here(found)
            return None
        # A master that is short of memory sends readers of old messages to a replica.
        self._broker_id = found.suggested_id
        return cut_behind(reply, span.end) if reply.end > span.end else reply

    def _records(self, span: PullSpan[PullReply], found: PullAnswer) -> PullReply | None:
        """Return what an answer covers, None if nothing.

        Without a filter records and offsets are equally many, so records are not counted.
        """
        body = found.body if found.code == ResponseCode.SUCCESS else b""
        covered = found.next_offset - span.start
        if covered <= 0 or not (body or self._is_filtered):
            return None
        rows = len(record_starts(body)) if self._is_filtered else covered
        return PullReply(span.start, found.next_offset, rows, body)

    def _require_range(self, span: PullSpan[PullReply], found: PullAnswer) -> None:
        """Raise OffsetRangeError if an answer says that asked-for messages are gone."""
        if self._broker_id != MASTER and found.code != ResponseCode.SUCCESS:
            return  # A replica may be behind; only the master knows.
        low = found.minimum
        # Without a filter "nothing matched" can only mean that messages have expired.
        if found.code == ResponseCode.PULL_RETRY_IMMEDIATELY and not self._is_filtered:
            low = max(low, found.next_offset)
        queue = self._wanted.queue
        if low > span.start:
            raise OffsetRangeError(
                f"Messages {span.start} to {min(low, span.end) - 1} of queue {queue} are gone:"
                f" it starts at {low} now. They expired, or the topic was created anew.",
                low,
                found.maximum,
            )
        if found.code == ResponseCode.PULL_OFFSET_MOVED:
            raise self._beyond_end(found)

    def _beyond_end(self, found: PullAnswer) -> OffsetRangeError:
        return OffsetRangeError(
            f"Queue {self._wanted.queue} ends at {found.maximum}, so messages up to"
            f" {self._wanted.end - 1} are not there. Was the topic created anew?",
            found.minimum,
            found.maximum,
        )

    def _not_here(self, found: PullAnswer) -> None:
        """Remember why there is nothing, and ask the master next."""
        if self._broker_id == MASTER and found.maximum < self._wanted.end:
            self._short_since = self._short_since or Deadline.after_ms(_GRACE_MS)
            if self._short_since.has_passed:
                raise self._beyond_end(found)
        self._last_failure = UnavailableError(
            f"{self._peer} has messages {found.minimum} to {found.maximum - 1} of queue"
            f" {self._wanted.queue} and gives none from {self._window.first} on."
        )
        self._broker_id = MASTER

    def _begin_again(self, error: UnavailableError) -> None:
        """Look the broker up anew and ask again for all in flight: it can't be reached."""
        self._last_failure = error
        self._leave()

    def _too_late(self) -> UnavailableError:
        wanted, first = self._wanted, self._window.first
        patience_s = self._instance.settings.pull_timeout_ms / 1000
        return UnavailableError(
            f"Messages {first} to {wanted.end - 1} of queue {wanted.queue} did not come within"
            f" {patience_s:g} s (pullTimeoutMs). {self._last_failure or ''}".rstrip()
        )

    def _connect(self) -> RemotingConnection:
        """Return the connection to the replica to ask; looked up only when that changes."""
        if self._connection is not None and self._connected_id == self._broker_id:
            return self._connection
        queue = self._wanted.queue
        max_age_s = 0.0 if self._last_failure is not None else MAX_AGE_S
        broker = self._instance.routes.find(queue.topic, max_age_s).broker(queue.broker_name)
        server = broker.replica(self._broker_id) if self._broker_id != MASTER else broker.master
        # _leave() turns back to the master, so the id is kept over it.
        connected_id = self._broker_id
        self._leave()
        self._broker_id = self._connected_id = connected_id
        self._peer = self._builder.peer = broker_label(queue.broker_name, server)
        self._connection = self._instance.connections.to(server)
        return self._connection

    def _leave(self) -> None:
        """Give up on what is in flight, to ask elsewhere, the master by default."""
        self._connection = None
        self._broker_id = MASTER
        self._in_flight.clear()
        self._window.retry_all()
