"""Replay: traces of the model on the real classes, on one store after the other.

A `World` is a store with a clock that the trace turns. An episode is one trace in it: its stream,
attempts and rows have names of their own, and at its end all that is open is given up, so that one
store serves many. Each call is made by a process of its own (a fresh `Transactions`), with one row
a half message and one half message an append, as in the model. A process that dies does so in its
n-th append; one that pauses is a thread that waits there, or in the middle of a round.

Before each step a message of no interest is sent singly: it is in the log and not dispatched when
the step begins. After each step the answer, the rows that are visible, and the lengths of the half
queue and of the journal must be the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.broker.transactions.asking import Producer
from broker_core.broker.transactions.ownership import Caller
from broker_core.codec.message_batch import Destinations
from broker_core.codec.property_names import BATCH_TOPIC, HALF_TOPIC, PREPARED_BY
from broker_core.codec.record import Record
from broker_core.errors import (
    BatchConflictError,
    BatchGapError,
    BatchLostError,
    IllegalTransitionError,
    RequestError,
    UnknownTransactionError,
)
from broker_core.store.batch import Batch
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import (
    BatchRef,
    CheckBackReport,
    HalfMessage,
    LocalTransactionState,
    LogicalOffset,
    PhysicalOffset,
    Prepared,
    Receipt,
)
from tests.kit import batches
from tests.kit.faulty_files import Died
from tests.kit.paused_call import PausedCall
from tests.kit.pending import pending_records
from tests.kit.transactions import (
    FILE_BYTES,
    SMALL_FILES,
    ManualClock,
    attempt_id,
    in_pieces,
    outgoing,
)
from tests.model.transactions.explore import Step
from tests.model.transactions.services import step
from tests.model.transactions.state import (
    MAX_CHECKS,
    OLDEST,
    TAG_ATTEMPT,
    Action,
    Rules,
    State,
    open_halves,
)

TICK_MS = 45 * 60_000
BATCH_PATIENCE_MS = 3_600_000
"""Longer than an interval; twice as long is more than the patience with a batch (an hour, and two
intervals), three times more than messages are kept (two hours)."""
CONFIG = {
    **SMALL_FILES,
    "transactionCheckMax": MAX_CHECKS,
    "transactionBatchTimeOut": BATCH_PATIENCE_MS,
    "fileReservedTime": 2,
}
NAMES = ("", "alice", "mallory")
TOPIC, FILLER, NOISE, GROUP = "t", "filler", "noise", "g"

ANSWERS: dict[type[Exception], str] = {
    IllegalTransitionError: "illegal",
    BatchConflictError: "conflict",
    BatchGapError: "gap",
    BatchLostError: "lost",
    UnknownTransactionError: "unknown",
    RequestError: "request",
}


class Process(PausedCall):
    """A call of a process that pauses before its next append, or within a round of check-back."""

    def __init__(self, call: Callable[[Process], str], *, is_round: bool) -> None:
        self.is_round = is_round
        super().__init__(call)


@dataclass
class Listeners:
    """The producers that listen during a round, all with the same answer; see asking.py."""

    users: Sequence[str]
    state: LocalTransactionState
    looked: Callable[[], None]

    def rooms(self, producers: Sequence[Producer], wanted: Sequence[int]) -> list[int]:
        """Return what is wanted of producers that listen. A round asks after its look."""
        self.looked()
        return [
            count if group == GROUP and user in self.users else 0
            for (group, user, _), count in zip(producers, wanted, strict=True)
        ]

    def ask(self, half: HalfMessage, record: Record) -> LocalTransactionState:
        """Return the answer."""
        del half
        assert record.property_map.get(PREPARED_BY, "") in self.users
        return self.state


class World:
    """A store, its clock, and the episode that is played in it."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        writer = StoreWriter.open(
            path,
            StoreSettings.load(CONFIG),
            create=True,
            options=SessionOptions(clock_ms=self.clock),
        )
        reader = StoreReader(path, writer.settings)
        self.broker = EmbeddedBroker(str(path), reader, writer, clock_ms=self.clock)
        self.broker.create_topic(TOPIC, queues=1)
        self.broker.create_topic(FILLER, queues=1)
        self.broker.create_topic(NOISE, queues=1)
        self.broker.transactions.check_back()  # makes the topics of the broker's own
        self._append: Callable[..., Any] = writer.append
        writer.append = self._hooked  # type: ignore[method-assign]  # processes end and pause here
        self._mortal: tuple[int, int] | None = None
        self._episodes = 0
        self._bodies = 0
        self.steps_with_pending = self.steps = 0
        self._begin()

    def close(self) -> None:
        """Close the store."""
        self.broker.close()

    # Episodes

    def play(self, actions: Sequence[Action], rules: Rules) -> list[Step]:
        """Play a trace beside the model and return its steps; AssertionError where they differ."""
        self._begin()
        model = State()
        told = ""
        steps: list[Step] = []
        try:
            for action in actions:
                model, expected = step(model, action, rules)
                answer = self._do(action)
                told += f"\n    {action} -> {answer}"
                self._compare(action, model, expected, answer, told)
                steps.append(Step(action, expected, model))
        finally:
            if self._paused is not None:
                self._do(Action("die"))
        self._end(model, rules, told)
        return steps

    def _begin(self) -> None:
        self._episodes += 1
        self._paused: Process | None = None
        self._row_of: dict[bytes, int] = {}
        self._first_half = self._end_of(HALF_TOPIC)
        self._first_record = self._end_of(BATCH_TOPIC)
        self._read = self._end_of(TOPIC)
        self._rows: list[int] = []
        self._segment_start = 0

    def _end(self, model: State, rules: Rules, told: str) -> None:
        """Let everybody die and time pass; nothing stays open for the next episode."""
        model = model._replace(paused=None)
        waiting = open_halves(model)
        if not waiting:
            return
        if model.promised.issubset(model.visible):
            # All that is left is given up: the quick way, for nothing is to be seen.
            transactions = in_pieces(self.broker, len(waiting))
            offsets = np.array(waiting, dtype=np.int64) + self._first_half
            transactions._commits.roll_back(offsets, transactions._tools.settled())
            return
        for action in [Action("round"), *[Action("tick")] * OLDEST, Action("round")]:
            model, expected = step(model, action, rules)
            answer = self._do(action)
            self._compare(action, model, expected, answer, f"{told}\n    (end) {action}")

    def _compare(self, action: Action, model: State, expected: str, answer: str, told: str) -> None:
        self._rows += self._new_rows()
        halves = self._end_of(HALF_TOPIC) - self._first_half
        if action.kind == "retain":
            # Decisions of earlier episodes are carried along too.
            self._first_record = self._end_of(BATCH_TOPIC) - model.forgotten - len(model.journal)
        records = self._end_of(BATCH_TOPIC) - self._first_record
        found = answer, sorted(self._rows), halves, records
        wanted = (
            expected,
            list(model.visible),
            len(model.halves),
            model.forgotten + len(model.journal),
        )
        assert found == wanted, f"The broker differs from the model after{told}"

    def _end_of(self, topic: str) -> int:
        return self.broker.reader.queue_range(topic, 0)[1]

    def _new_rows(self) -> list[int]:
        start, end = self.broker.reader.queue_range(TOPIC, 0)
        start, self._read = max(self._read, start), end
        if start == end:
            return []
        bodies = self.broker.read(TOPIC, 0, start, end, columns=["body"])["body"].to_pylist()
        return [self._row_of[body] for body in bodies]

    # Processes

    def _hooked(self, *arguments: Any, **options: Any) -> Any:
        """Append, unless the process that does it is to die or to pause before."""
        paused = self._paused
        is_own = paused is not None and paused.is_running_here
        if paused is not None and is_own and not paused.is_round:
            paused.pause()
        if self._mortal is not None:
            appends, cut = self._mortal
            self._mortal = appends - 1, cut
            if appends == 0:
                if cut:
                    self._append(_first_records(arguments[0], cut))
                raise Died
        return self._append(*arguments, **options)

    def _do(self, action: Action) -> str:
        """Do an action and return the answer in the model's words."""
        self._send_noise()
        if action.kind in ("resume", "die"):
            return self._go_on(action)
        if not action.is_paused:
            return self._answer(action, None)

        def call(process: Process) -> str:
            self._paused = process
            return self._answer(action, process)

        answer = Process(call, is_round=action.kind == "round").answer
        # A round with nothing to look at has no place to pause: its answer is kept.
        return "paused" if action.kind == "round" else answer

    def _send_noise(self) -> None:
        """Send a message that is pending after it, but for those that need a new file."""
        self._append(batches.batch(["noise"], topic=NOISE, queues=1))
        self.steps += 1
        self.steps_with_pending += pending_records(self.broker.reader.root) > 0

    def _go_on(self, action: Action) -> str:
        process, self._paused = self._paused, None
        assert process is not None
        if action.kind == "die":
            process.kill()
            return "died"
        self._paused = process
        answer = process.resume()
        if answer != "paused":
            self._paused = None
        return answer

    def _answer(self, action: Action, process: Process | None) -> str:
        transactions = in_pieces(self.broker, 1)
        transactions.runs_services = False
        self.broker.writer.before_delete = transactions.keep_decisions
        self._mortal = (action.dies, action.cut) if action.dies >= 0 else None
        view = transactions.asked_by(Caller(NAMES[action.user]))
        try:
            answer: str = getattr(self, f"do_{action.kind}")(view, action, process)
        except Died:
            if process is not None:
                raise
            answer = "died"
        except tuple(ANSWERS) as error:
            answer = next(text for kind, text in ANSWERS.items() if isinstance(error, kind))
        finally:
            self._mortal = None
        return answer

    # Actions

    def _batch(self, number: int) -> BatchRef:
        return BatchRef(f"query:{self._episodes}", "", number)

    def _attempt(self, attempt: int) -> str:
        if attempt == TAG_ATTEMPT:
            return f"query:{self._episodes}#"
        return attempt_id(1000 * self._episodes + attempt)

    def _receipts(self, action: Action) -> list[Receipt]:
        batch = self._batch(action.number)
        return [
            Receipt(
                batch,
                self._attempt(attempt),
                tuple(
                    Prepared(
                        LogicalOffset(self._first_half + half),
                        LogicalOffset(self._first_half + half + 1),
                    )
                    for half in halves
                ),
            )
            for attempt, halves in action.receipts
        ]

    def do_prepare(self, view: Transactions, action: Action, process: Process | None) -> str:
        del process
        name = self._attempt(action.attempt)
        bodies = [self._body() for _ in range(action.rows)]
        born = self.clock() - action.behind * TICK_MS
        messages = outgoing(TOPIC, bodies, name, born_ms=born, queues=1)
        batch = self._batch(action.number)
        prepared = view.prepare_batch(batch, name, messages, is_first=action.is_first)
        for row, body in enumerate(bodies, prepared.start - self._first_half):
            self._row_of[body] = row
        return "ok"

    def do_single(self, view: Transactions, action: Action, process: Process | None) -> str:
        del action, process
        body = self._body()
        half = view.prepare(TOPIC, body, group=GROUP, queue_id=0)
        self._row_of[body] = half.half_offset - self._first_half
        return "ok"

    def _body(self) -> bytes:
        self._bodies += 1
        return b"%d" % self._bodies

    def do_commit(self, view: Transactions, action: Action, process: Process | None) -> str:
        del process
        outcome = view.commit_batch(
            self._batch(action.number),
            self._receipts(action),
            fingerprint=action.fingerprint,
            conflict=action.conflict,
            previous=action.previous or None,
        )
        return "repeat" if outcome.is_repeat else "written"

    def do_abort(self, view: Transactions, action: Action, process: Process | None) -> str:
        del process
        view.abort_batch(self._batch(action.number), self._receipts(action))
        return "ok"

    def do_ask(self, view: Transactions, action: Action, process: Process | None) -> str:
        del process
        return "yes" if view.is_batch_decided(self._batch(action.number)) else "no"

    def do_end(self, view: Transactions, action: Action, process: Process | None) -> str:
        del process
        view.end(self._handle(action.half), LocalTransactionState[action.how.upper()])
        return "ok"

    def _handle(self, number: int) -> HalfMessage:
        """Return the handle of a half message as the log says it, or one of nothing."""
        offset = self._first_half + number
        start, end = self.broker.reader.queue_range(HALF_TOPIC, 0)
        if not start <= offset < end:
            nowhere = PhysicalOffset(0)
            return HalfMessage(TOPIC, 0, "", GROUP, LogicalOffset(offset), nowhere)
        place = self.broker.reader.entries(HALF_TOPIC, 0, offset, offset + 1)[0]
        record = self.broker.reader.record_at(int(place["physical_offset"]))
        group = record.property_map["PGROUP"]
        at = PhysicalOffset(record.physical_offset)
        return HalfMessage(TOPIC, 0, record.msg_id, group, LogicalOffset(offset), at)

    def do_tick(self, view: Transactions, action: Action, process: Process | None) -> str:
        del view, action, process
        self.clock.advance(TICK_MS)
        return "ok"

    def do_round(self, view: Transactions, action: Action, process: Process | None) -> str:
        looks = iter([True])

        def looked() -> None:
            if process is not None and next(looks, False):
                process.pause()

        how = LocalTransactionState[action.how.upper() or "UNKNOWN"]
        users = [NAMES[user] for user in action.listening]
        return _report(view.check_back(Listeners(users, how, looked)))

    def do_roll(self, view: Transactions, action: Action, process: Process | None) -> str:
        """Fill the log's last file, so that what comes next lies in another one."""
        del view, action, process
        while True:
            sent = self.broker.send(FILLER, b"x" * (FILE_BYTES * 5 // 8))
            start = int(sent.physical_offset) // FILE_BYTES * FILE_BYTES
            if int(sent.physical_offset) == start:
                self._segment_start = start
                return "ok"

    def do_retain(self, view: Transactions, action: Action, process: Process | None) -> str:
        del view, process
        if action.how == "foreign":
            self.broker.writer.before_delete = None
        self.broker.delete_before(self._segment_start)
        return "ok"


def _report(report: CheckBackReport) -> str:
    done = report.finished, report.rolled_back, report.asked, report.given_up
    return "/".join(map(str, (report.waiting, *done)))


def _first_records(batch: Batch, count: int) -> Batch:
    """Return the first records of a batch, of which each part has one."""
    route = batch.route
    assert len(batch.parts) == len(route)
    return replace(
        batch,
        parts=batch.parts[:count],
        route=Destinations(route.topics, route.topic_codes[:count], route.queue_ids[:count]),
        in_queue=batch.in_queue[:count],
    )
