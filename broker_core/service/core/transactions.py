"""Handlers of transactions, of single messages and of batches, and check-back over the network.

Messages that are to be prepared arrive as records, like any others; half messages are made of them
here, and so is their commit. All of it may be retried after a lost answer: messages that were
prepared twice are named by no decision and are rolled back by check-back, and a decision is made
once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from broker_core.broker.admission.records import admit
from broker_core.broker.transactions.asking import told_properties
from broker_core.broker.transactions.ownership import MAX_RANGES, MAX_RECEIPTS
from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.legal_names import check_group
from broker_core.codec.property_names import HALF_TOPIC, PREPARED_BY
from broker_core.errors import (
    CorruptRecordError,
    IllegalMessageError,
    OffsetRangeError,
    RequestError,
)
from broker_core.service.auth import method_rules
from broker_core.service.auth.user_rights import Right
from broker_core.service.core.write import join_chunks, room_for
from broker_core.types import CheckBackReport, LocalTransactionState
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.frames import Chunk, unpack
from broker_core.wire.core.transactions import (
    pack_half,
    pack_prepared,
    unpack_batch,
    unpack_half,
    unpack_receipt,
)

if TYPE_CHECKING:
    from broker_core.broker.broker import EmbeddedBroker
    from broker_core.broker.transactions.api import Transactions
    from broker_core.broker.transactions.asking import Producer
    from broker_core.codec.record import Record
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.core.rpc import Call
    from broker_core.service.group_commit import GroupCommit
    from broker_core.types import BatchRef, HalfMessage, Receipt
    from broker_core.wire.core.methods import Limits

log = logging.getLogger(__name__)
ASKED_AHEAD = 256
"""Questions that wait for one listener; what is beyond is asked about in a later round."""
_NAMED_BYTES = 256
"""Memory that a receipt or a range takes as objects, beside its bytes."""
_LEAST_PROPERTY_BYTES = 4
_LEAST_KEY_BYTES = 2
"""A stored property has a name, a value and two separators; a key a character and a separator."""


class TransactionHandlers:
    """Handlers of calls about transactions."""

    def __init__(
        self,
        pool: BrokerPool,
        limits: Limits,
        group_commit: GroupCommit,
        listeners: CheckBackListeners,
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._group_commit = group_commit
        self._listeners = listeners

    # Batches

    def is_decided(self, request: pb.Batch, call: Call) -> pb.IsDecided:
        """Tell whether a batch is committed."""
        with self._pool.broker() as broker:
            found = _transactions(broker, call).is_batch_decided(unpack_batch(request))
        return pb.IsDecided(is_decided=found)

    def prepare(self, request: bytes, call: Call) -> pb.Prepared:
        """Prepare messages that came in one chunk."""
        return self._prepare(iter((request,)), call)

    def prepare_chunks(self, requests: Iterable[bytes], call: Call) -> pb.Prepared:
        """Prepare messages that came in several chunks."""
        return self._prepare(iter(requests), call)

    def _prepare(self, requests: Iterator[bytes], call: Call) -> pb.Prepared:
        first = unpack(next(requests, b""))
        head = _prepare_head(first)
        if head.total_bytes > self._limits.append_bytes:
            message = (
                f"{head.total_bytes} bytes are too many to prepare at once, "
                f"{self._limits.append_bytes} is the limit; send them in parts."
            )
            raise IllegalMessageError(message)
        total = head.total_bytes
        room = room_for(first, total, self._group_commit, call)
        with room as claim, self._pool.broker() as own:
            records = join_chunks(first, requests, total, call.born_host, claim=claim)
            permit = method_rules.publish_permit(call.identity)
            batch = admit(own.door, [records], [permit])
            prepared = _transactions(own, call).prepare_records(
                unpack_batch(head.batch),
                head.attempt,
                batch,
                is_first=head.is_first,
                flush=head.flush or None,
            )
        return pack_prepared(prepared)

    def commit_batch(self, request: pb.Decide, call: Call) -> pb.Outcome:
        """Commit the half messages that receipts stand for, once."""
        with self._deciding(request, call) as (broker, batch, receipts):
            outcome = _transactions(broker, call).commit_batch(
                batch,
                receipts,
                run=request.run,
                keep=request.keep,
                flush=request.flush or None,
                fingerprint=request.fingerprint,
                conflict=request.conflict or "refuse",
                previous=request.previous if request.HasField("previous") else None,
            )
        return pb.Outcome(is_repeat=outcome.is_repeat, run=outcome.run)

    def abort_batch(self, request: pb.Decide, call: Call) -> pb.Empty:
        """Roll back the half messages that receipts stand for."""
        with self._deciding(request, call) as (broker, batch, receipts):
            _transactions(broker, call).abort_batch(batch, receipts, flush=request.flush or None)
        return pb.Empty()

    @contextmanager
    def _deciding(
        self, request: pb.Decide, call: Call
    ) -> Iterator[tuple[EmbeddedBroker, BatchRef, list[Receipt]]]:
        """Hold room for a decision over a block; yield a broker, the batch and its receipts."""
        size = _require_count(request)
        room = self._group_commit.room(size, call.deadline_s, call)
        with room, self._pool.broker() as broker:
            batch = unpack_batch(request.batch)
            yield broker, batch, _receipts(request, batch)

    # Single messages

    def prepare_message(self, request: pb.PrepareMessage, call: Call) -> pb.HalfMessage:
        """Append one half message."""
        _require_few_properties(request)
        queue_id = request.queue_id if request.HasField("queue_id") else None
        room = self._group_commit.room(request.ByteSize(), call.deadline_s, call)
        with room, self._pool.broker() as broker:
            half = _transactions(broker, call).prepare(
                request.topic,
                request.body,
                group=request.group,
                tags=request.tags or None,
                keys=list(request.keys) or None,
                properties=dict(request.properties) or None,
                queue_id=queue_id,
            )
        return pack_half(half)

    def end(self, request: pb.End, call: Call) -> pb.Empty:
        """Commit one half message, or roll it back."""
        half = unpack_half(request.half)
        try:
            fate = LocalTransactionState(request.fate)
        except ValueError as error:
            message = f"{request.fate!r} is no way to end a transaction."
            raise RequestError(message) from error
        with self._pool.broker() as broker:
            _transactions(broker, call).end(half, fate)
        return pb.Empty()

    # Check-back

    def listen(self, request: pb.Listen, call: Call) -> Iterator[pb.Question]:
        """Yield questions about half messages of a producer group, as they arise."""
        return self._listeners.listen(check_group(request.group), call)

    def check_back(self, request: pb.Empty, call: Call) -> pb.CheckBackReport:
        """Run one round of check-back, now."""
        report = self._listeners.check_back()
        return pb.CheckBackReport(
            waiting=report.waiting,
            finished=report.finished,
            rolled_back=report.rolled_back,
            asked=report.asked,
            given_up=report.given_up,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that waits: the half message, who prepared it, and who hears of it.

    It names the half message and has neither body nor properties: those are read when it is sent,
    so that questions nobody takes need little memory.
    """

    half: HalfMessage
    user: str


@dataclass(eq=False)
class _Listener:
    """One Listen call: who calls, and the questions that wait for it."""

    call: Call
    questions: queue.Queue[_Asked | None]

    def may_hear(self, user: str, topic: str) -> bool:
        """Tell whether its user may be told of what a user prepared for a topic."""
        # The call's identity follows the credentials file while the call lasts.
        identity = self.call.identity
        is_own = user in ("", identity.name) or identity.may_everywhere(Right.ADMIN)
        return is_own and identity.may(Right.PUBLISH, topic)

    @property
    def room(self) -> int:
        """How many more questions it takes."""
        return max(0, ASKED_AHEAD - self.questions.qsize())


class CheckBackListeners:
    """Rounds of check-back, and the listeners that are asked in them. Thread-safe.

    A listener is another process: it is sent the question, and answers with an End call of its own,
    later. Until then the state of the transaction is unknown, and a round does not wait for it.
    Rounds are run by the server's clock, one at a time. A question goes only to a listener whose
    user prepared the half message, or administers the broker, and may publish to its topic: others
    hear nothing of it, and take no turn. A round is given places of listeners before it counts a
    check (`rooms`), and asks in these places: no question that was counted finds none.
    """

    def __init__(self, pool: BrokerPool) -> None:
        self._pool = pool
        self._rounds = threading.Lock()
        self._lock = threading.Lock()
        self._listeners: dict[str, list[_Listener]] = {}
        self._places: dict[Producer, deque[_Listener]] = {}

    def check_back(self) -> CheckBackReport:
        """Run one round now; do nothing in a store without half messages."""
        with self._rounds, self._pool.broker() as broker:
            if not broker.reader.queue_ids(HALF_TOPIC):
                return CheckBackReport()
            return broker.transactions.check_back(self)

    def rooms(self, producers: Sequence[Producer], wanted: Sequence[int]) -> list[int]:
        """Return how many questions of each producer have a place, and keep it for the round.

        Places are dealt one at a time, so that nobody's many questions leave others without.
        """
        with self._lock:
            self._places = {producer: deque() for producer in producers}
            left = dict(zip(producers, wanted, strict=True))
            # Listeners that were asked longest ago come first, and all take part in turn.
            able = {producer: deque(self._able(producer)) for producer in producers}
            room = {each: each.room for dealt in able.values() for each in dealt}
            while able:
                for producer, listeners in list(able.items()):
                    while listeners and not room[listeners[0]]:
                        listeners.popleft()
                    if not listeners or len(self._places[producer]) >= left[producer]:
                        del able[producer]
                        continue
                    room[listeners[0]] -= 1
                    self._places[producer].append(listeners[0])
                    listeners.rotate(-1)
            return [len(self._places[producer]) for producer in producers]

    def _able(self, producer: Producer) -> Iterator[_Listener]:
        """Yield the listeners that may hear of what is a producer's, asked longest ago first."""
        group, user, topic = producer
        return (each for each in self._listeners.get(group, []) if each.may_hear(user, topic))

    def ask(self, half: HalfMessage, record: Record) -> LocalTransactionState:
        """Let a question wait for a listener that has kept a place for it.

        Return UNKNOWN: the answer comes by a call of its own.
        """
        user = record.property_map.get(PREPARED_BY, "")
        producer = (half.group, user, half.topic)
        with self._lock:
            listeners = self._listeners.get(half.group, [])
            places = self._places.get(producer)
            chosen = places.popleft() if places else None
            if chosen not in listeners or not chosen.may_hear(user, half.topic):
                # It left since, or lost the right: another one, if there is any.
                chosen = next((each for each in self._able(producer) if each.room), None)
            if chosen is not None:
                listeners.remove(chosen)
                listeners.append(chosen)
                chosen.questions.put_nowait(_Asked(half, user))
        return LocalTransactionState.UNKNOWN

    def stop(self) -> None:
        """Wake all Listen calls, so that they see that the broker is stopping."""
        with self._lock:
            calls = [each for listeners in self._listeners.values() for each in listeners]
        for each in calls:
            each.questions.put_nowait(None)

    def listen(self, group: str, call: Call) -> Iterator[pb.Question]:
        """Yield the questions for one listener of a group until its call ends."""
        mine = _Listener(call, queue.Queue())
        with call.waiting():
            with self._lock:
                self._listeners.setdefault(group, []).append(mine)
            try:
                call.when_over(lambda: mine.questions.put_nowait(None))
                while call.is_active and not self._pool.is_stopping:
                    asked = None
                    with suppress(queue.Empty):
                        asked = mine.questions.get(timeout=call.recheck_s)
                    call.require_still()
                    # Looked at again: the rule may have been narrowed while the question waited.
                    if asked is not None and mine.may_hear(asked.user, asked.half.topic):
                        question = self._question(asked.half)
                        if question is not None:
                            yield question
            finally:
                with self._lock:
                    self._listeners[group].remove(mine)
                    if not self._listeners[group]:
                        del self._listeners[group]

    def _question(self, half: HalfMessage) -> pb.Question | None:
        """Return the question about a half message; None if that has left the log since.

        Then retention has put it back, and a later round asks about the new one.
        """
        with self._pool.broker() as broker:
            try:
                record = broker.reader.record_at(half.physical_offset)
                body = record.plain_body
            except (CorruptRecordError, OffsetRangeError):
                log.warning("event=question_not_sent group=%s", half.group, exc_info=True)
                return None
        return pb.Question(half=pack_half(half), body=body, properties=told_properties(record))


def _transactions(broker: EmbeddedBroker, call: Call) -> Transactions:
    """Return a broker's transactions as the caller of a call may use them."""
    return broker.transactions.asked_by(method_rules.caller_of(call.identity))


def _require_count(request: pb.Decide) -> int:
    """Return the bytes of a decision in memory; RequestError if it names too much.

    All of it is counted before an object is made of anything.
    """
    count = len(request.receipts)
    if count <= MAX_RECEIPTS:
        ranges = sum(len(each.prepared) for each in request.receipts)
        if ranges <= MAX_RANGES:
            return int(request.ByteSize()) + _NAMED_BYTES * (count + ranges)
        count = ranges
    message = (
        f"A decision of {count} receipts or ranges of half messages is too large: the limits are "
        f"{MAX_RECEIPTS} and {MAX_RANGES}. Nothing was written."
    )
    raise RequestError(message)


def _receipts(request: pb.Decide, batch: BatchRef) -> list[Receipt]:
    """Return the receipts of a request that name something; RequestError for another batch's."""
    for each in request.receipts:
        if each.batch != request.batch:
            message = f"A receipt of {unpack_batch(each.batch)} can't be part of {batch}."
            raise RequestError(message)
    # A task without rows has a receipt without ranges.
    return [unpack_receipt(each, batch) for each in request.receipts if each.prepared]


def _require_few_properties(request: pb.PrepareMessage) -> None:
    """Raise IllegalMessageError if properties and keys can't be stored, however short they are."""
    least_bytes = _LEAST_PROPERTY_BYTES * len(request.properties) + _LEAST_KEY_BYTES * len(
        request.keys
    )
    if least_bytes > MAX_PROPERTIES_BYTES:
        message = (
            f"The message for topic {request.topic} has {len(request.properties)} properties and "
            f"{len(request.keys)} keys; all of them can have {MAX_PROPERTIES_BYTES} bytes. "
            "Nothing was written."
        )
        raise IllegalMessageError(message)


def _prepare_head(first: Chunk) -> pb.PrepareHead:
    try:
        head = pb.PrepareHead.FromString(bytes(first.head))
    except DecodeError as error:
        message = "The head of a prepare can't be read; both ends must be of one version."
        raise RequestError(message) from error
    if not head.batch.owner or not head.attempt:
        message = "What is prepared must be part of a batch: its owner and the attempt are missing."
        raise RequestError(message)
    return head
