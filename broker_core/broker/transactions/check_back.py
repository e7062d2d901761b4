"""Check-back: one round over the half messages that are still open.

A round reads from where the last one came to (the offsets of the group CID_RMQ_SYS_TRANS in
config/consumerOffset.json, where Apache's broker keeps them too), finds what no op message settles,
and does what the plan (check_back_plan.py, the pure half of this file) says. Whatever it does to a
half message, it writes the op message that settles it in the same append (settle.py), so that no
crash and no other broker's round can do it twice.

With nothing open a round costs a few reads. A server runs rounds by the clock; an embedded broker,
which has no thread, runs one along with a commit when one is due (api.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.check_back_plan import (
    NOT_IMMUNE,
    CheckPolicy,
    Names,
    OpenHalves,
    Step,
    Verdict,
    advance,
    open_offsets,
    plan,
)
from broker_core.broker.transactions.check_back_progress import read_progress, save_progress
from broker_core.broker.transactions.decision_records import stream_tag
from broker_core.broker.transactions.half import HALF_QUEUE, give_up, put_back
from broker_core.broker.transactions.op import OP_QUEUE, settled_by
from broker_core.broker.transactions.settle import SettledElsewhereError, no_copies
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.message_batch import Destinations
from broker_core.codec.property_names import (
    CHECK_IMMUNITY_TIME,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_BY,
    PRODUCER_GROUP,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
)
from broker_core.store.batch import Batch
from broker_core.types import CheckBackReport, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.asking import Producer
    from broker_core.broker.transactions.decision_lookup import LoggedAttempt, LoggedDecision
    from broker_core.broker.transactions.decision_records import BatchAttempt
    from broker_core.broker.transactions.finish import BatchFinisher
    from broker_core.broker.transactions.tools import BatchTools
    from broker_core.codec.frames import FrameBatch

Ask = Callable[["NDArray[np.int64]"], None]
"""Asks producers about half messages that were just put back, by their offsets."""
Rooms = Callable[[Sequence["Producer"], Sequence[int]], list[int]]
"""Returns how many of the questions that are wanted can be asked now (asking.py)."""
Action = Callable[["NDArray[np.int64]"], "NDArray[np.bool_]"]
"""Does a step to half messages. Tells which of them it did: what is left waits for the next
round."""

_COLUMNS = (
    PRODUCER_GROUP,
    PREPARED_BY,
    REAL_TOPIC,
    UNIQ_KEY,
    TRANSACTION_ID,
    TRANSACTION_CHECK_TIMES,
    CHECK_IMMUNITY_TIME,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Listing:
    """All that the op queue settles from `start` on: half message listed[i] by op listing[i]."""

    start: int
    end: int
    listed: NDArray[np.int64]
    listing: NDArray[np.int64]


@dataclass(frozen=True)
class _Look:
    """What a round was planned from: time, ends of half queue and journal, settled ones."""

    now_ms: int
    half_end: int
    journal_end: int
    settled: NDArray[np.int64]


class CheckBack:
    """Rounds over the open half messages of one store. Not thread-safe."""

    def __init__(
        self,
        tools: BatchTools,
        finisher: BatchFinisher,
        policy: CheckPolicy,
        ask: Ask,
        rooms: Rooms,
    ) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._journal = tools.journal
        self._settler = tools.settler
        self._finisher = finisher
        self._policy = policy
        self._ask = ask
        self._rooms = rooms

    def round(self, now_ms: int) -> CheckBackReport:
        """Look at everything that is open, and do what can be done about it now."""
        # Progress and ops are read without the lock. That is safe: a half message that is settled
        # after this look is seen by the append that would settle it again.
        progress = read_progress(self._reader)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        ops = self._listing(progress.op_offset)
        first = max(start, progress.half_offset)
        names = Names()
        look = _Look(now_ms, end, self._journal.end(), ops.listed)
        halves = self._open_halves(open_offsets(first, end, ops.listed), ops.listed, names)
        wanted = np.bincount(halves.producers, minlength=len(names.producers)).tolist()
        room = self._rooms(names.producers, wanted)
        steps = plan(halves, now_ms, self._policy, room)
        done = np.zeros(len(halves), dtype=np.bool_)
        for step, action in self._actions(look).items():
            rows = np.flatnonzero(steps == step)
            if len(rows):
                done[rows] = action(halves.offsets[rows])
        waiting = halves.offsets[~done]
        reached = advance(end, ops.end, waiting, ops.listed, ops.listing)
        if reached != progress:
            save_progress(self._reader, self._tools.writer, reached, self._tools.clock_ms())
        counts = {step: int((done & (steps == step)).sum()) for step in Step}
        return CheckBackReport(
            waiting=len(waiting),
            finished=counts[Step.FINISH],
            rolled_back=counts[Step.ROLL_BACK],
            asked=counts[Step.ASK],
            given_up=counts[Step.GIVE_UP],
        )

    def rescue(self, physical_offset: int) -> None:
        """Save open half messages that lie before an offset of the log, which is to be deleted.

        Decisions that name them are finished; those of single transactions are put back, uncounted.
        Those of batches that are not decided go: their commit is refused, and prepared again.
        """
        progress = read_progress(self._reader)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        first = max(start, progress.half_offset)
        places = self._reader.entries(HALF_TOPIC, HALF_QUEUE, first, max(first, end))
        end = first + int(np.searchsorted(places["physical_offset"], physical_offset))
        if end == first:
            return
        ops = self._listing(progress.op_offset)
        halves = self._open_halves(open_offsets(first, end, ops.listed), ops.listed, Names())
        committed = halves.offsets[halves.verdicts == Verdict.COMMITTED]
        single = halves.offsets[halves.verdicts == Verdict.UNKNOWN]
        self._finish(committed)
        for _ in self._settle(single, partial(self._put_back, checks=0)):
            pass

    def open_attempts(self, physical_offset: int) -> list[PhysicalOffset]:
        """Return where attempts lie, before an offset of the log, of open half messages behind it.

        An attempt's id must stay its user's for as long as a half message has it.
        """
        progress = read_progress(self._reader)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        first = max(start, progress.half_offset)
        entries = self._reader.entries(HALF_TOPIC, HALF_QUEUE, first, max(first, end))
        first += int(np.searchsorted(entries["physical_offset"], physical_offset))
        ids: set[str] = set()
        for frames in self._settler.frames(
            open_offsets(first, end, self._listing(progress.op_offset).listed)
        ):
            keys = property_columns(frames, [UNIQ_KEY])[UNIQ_KEY]
            ids.update(pc.unique(_attempt_ids(keys)).drop_null().to_pylist())
        return sorted(
            each.physical_offset
            for each in self._journal.logged_attempts(ids).values()
            if each.physical_offset < physical_offset
        )

    # Looking

    def _listing(self, since: int) -> _Listing:
        """Read all op messages from `since` on."""
        start, end = self._reader.queue_range(OP_TOPIC, OP_QUEUE)
        first = min(max(start, since), end)
        found = [
            settled_by(self._reader, frames)
            for frames in self._reader.frames(OP_TOPIC, OP_QUEUE, first, end)
            if len(frames)
        ]
        nothing = np.zeros(0, dtype=np.int64)
        listed = np.concatenate([nothing, *(halves for halves, _ in found)])
        listing = np.concatenate([nothing, *(ops for _, ops in found)])
        return _Listing(first, end, listed, listing)

    def _open_halves(
        self, offsets: NDArray[np.int64], settled: NDArray[np.int64], names: Names
    ) -> OpenHalves:
        """Read what the plan needs to know of open half messages."""
        parts = [self._columns(frames, settled, names) for frames in self._settler.frames(offsets)]
        return OpenHalves(
            *(
                np.concatenate([part[column] for part in parts] or [offsets[:0]])
                for column in range(len(fields(OpenHalves)))
            )
        )

    def _columns(
        self, frames: FrameBatch, settled: NDArray[np.int64], names: Names
    ) -> tuple[NDArray[np.int64], ...]:
        """Return the columns of OpenHalves for some half messages, in its order."""
        found = locate(frames)
        texts = property_columns(frames, _COLUMNS)
        immunity = _numbers(texts[CHECK_IMMUNITY_TIME], NOT_IMMUNE)
        original = _numbers(texts[TRANSACTION_PREPARED_QUEUE_OFFSET], -1)
        # A single one is of no batch, also if an attempt has the id that its key begins with.
        is_single = texts[TRANSACTION_ID].is_valid()
        keys = pc.if_else(is_single, pa.scalar(None, texts[UNIQ_KEY].type), texts[UNIQ_KEY])
        verdicts, batches = self._verdicts(frames.offsets, keys, names)
        # Apache's broker puts a half message back as long as it is immune to checks. The copy
        # names its original, and what settled the original settles the copy.
        verdicts[(original >= 0) & np.isin(original, settled)] = Verdict.DROPPED
        return (
            frames.offsets,
            found.integer("storeTimestamp").astype(np.int64),
            _numbers(texts[TRANSACTION_CHECK_TIMES], 0),
            np.where(immunity == NOT_IMMUNE, NOT_IMMUNE, immunity * 1000),
            verdicts,
            batches,
            names.producers_of(texts),
        )

    def _verdicts(
        self, offsets: NDArray[np.int64], keys: pa.Array, names: Names
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what the journal says of half messages, by the attempt their keys begin with.

        The second array numbers the batches that they are of.
        """
        coded = pc.dictionary_encode(_attempt_ids(keys).fill_null(""))
        codes = coded.indices.to_numpy()
        verdicts = np.full(len(offsets), Verdict.UNKNOWN, dtype=np.int64)
        batches = np.full(len(offsets), -1, dtype=np.int64)
        ids = coded.dictionary.to_pylist()
        attempts = self._journal.logged_attempts(ids)
        decisions = self._journal.decisions({_stream(each.attempt) for each in attempts.values()})
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(ids) + 1))
        for code, attempt_id in enumerate(ids):
            logged = attempts.get(attempt_id)
            if logged is not None:
                rows = order[bounds[code] : bounds[code + 1]]
                decided = decisions.get(_stream(logged.attempt))
                verdicts[rows] = _verdicts_of(logged, decided, offsets[rows])
                batches[rows] = names.batch(logged.attempt)
        return verdicts, batches

    # Doing

    def _actions(self, look: _Look) -> Mapping[Step, Action]:
        return {
            Step.FINISH: self._finish,
            Step.ROLL_BACK: partial(self._roll_back, look),
            Step.ASK: self._ask_about,
            Step.GIVE_UP: partial(self._give_up, look),
        }

    def _finish(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Finish the decisions that name these; each settles all that it names.

        A decision that can't be finished hurts no other: its half messages wait.
        """
        done = [np.zeros(0, dtype=np.bool_)]
        for frames in self._settler.frames(offsets):
            keys = property_columns(frames, [UNIQ_KEY])[UNIQ_KEY]
            coded = pc.dictionary_encode(_attempt_ids(keys))
            finished = np.array([self._finish_of(each) for each in coded.dictionary.to_pylist()])
            done.append(finished[coded.indices.to_numpy()])
        return np.concatenate(done)

    def _finish_of(self, attempt_id: str) -> bool:
        """Finish the decision about an attempt's batch; tell whether nothing is left to do."""
        attempt = self._journal.attempt(attempt_id)
        found = attempt and self._journal.decision(stream_tag(attempt.batch), attempt.user)
        if not found or found.decision.is_done:
            return True
        log.info("event=batch_finished_by_check_back batch=%s", found.decision.batch)
        return self._finisher.try_finish(found)

    def _roll_back(self, look: _Look, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Settle half messages without a copy."""
        guard = partial(self._require_planned, look, Step.ROLL_BACK)
        return _first(sum(count for count, _ in self._settle(offsets, no_copies, guard)), offsets)

    def _give_up(self, look: _Look, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Copy half messages to the discard topic."""
        log.warning("event=half_messages_given_up count=%d", len(offsets))
        guard = partial(self._require_planned, look, Step.GIVE_UP)
        settled = self._settle(offsets, self._discarded, guard)
        return _first(sum(count for count, _ in settled), offsets)

    def _discarded(self, offsets: NDArray[np.int64]) -> list[Batch]:
        return [
            Batch.of_copies(give_up(frames), Destinations.to_queue(DISCARD_TOPIC, 0, len(frames)))
            for frames in self._settler.frames(offsets)
        ]

    def _require_planned(self, look: _Look, step: Step, offsets: NDArray[np.int64]) -> None:
        """Raise SettledElsewhereError unless a step is still the plan. Runs under the store's lock.

        Since the look a batch may have been decided with half messages that were to be dropped
        (history.py, `conflict`), or more was prepared for one that seemed given up. Only what came
        since is read, so that a busy store does not keep a round from its end.
        """
        end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[1]
        if (end, self._journal.end()) == (look.half_end, look.journal_end):
            return
        names = Names()
        fresh = np.arange(look.half_end, end, dtype=np.int64)
        halves = self._open_halves(np.concatenate([offsets, fresh]), look.settled, names)
        steps = plan(halves, look.now_ms, self._policy, [0] * len(names.producers))
        if (steps[: len(offsets)] != step).any():
            raise SettledElsewhereError

    def _ask_about(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Put half messages back, counted, then ask about the new ones."""
        done = 0
        for count, copies in self._settle(offsets, self._put_back):
            done += count
            self._ask(copies)
        return _first(done, offsets)

    def _put_back(self, offsets: NDArray[np.int64], checks: int = 1) -> list[Batch]:
        copies = []
        for frames in self._settler.frames(offsets):
            before = _numbers(property_columns(frames, _COLUMNS)[TRANSACTION_CHECK_TIMES], 0)
            # Uncounted it is put back as it is: so it fits, however long it is.
            counted = [
                {TRANSACTION_CHECK_TIMES: str(n + checks)} if checks else {}
                for n in before.tolist()
            ]
            to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(frames))
            copies.append(Batch.of_copies(put_back(frames, counted), to_half))
        return copies

    def _settle(
        self,
        offsets: NDArray[np.int64],
        copies: Callable[[NDArray[np.int64]], list[Batch]],
        guard: Callable[[NDArray[np.int64]], None] | None = None,
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Settle half messages with copies; yield after each append how many, and their offsets.

        One that can't be copied so (an older release left no room for it) is given up, or settled
        without a copy if that can't be either.
        """
        ways = (copies, self._discarded, no_copies)
        return self._settler.settle_each(offsets, ways, self._tools.settled(), guard)


def _stream(attempt: BatchAttempt) -> tuple[str, str]:
    """Return the stream that an attempt is of: tag and user."""
    return stream_tag(attempt.batch), attempt.user


def _verdicts_of(
    logged: LoggedAttempt, found: LoggedDecision | None, offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return what the newest decision of its stream says of half messages of one attempt."""
    if found is None:
        return np.full(len(offsets), Verdict.UNDECIDED, dtype=np.int64)
    # A decision that is done settled all that it named: what is still open is not of it.
    is_named = found.decision.names(offsets) & (not found.decision.is_done)
    # Prepared behind the decision: it may yet be written all the same (history.py, `conflict`).
    is_late = (
        found.decision.supersedes(logged.attempt.batch)
        and logged.physical_offset < found.physical_offset
    )
    otherwise = Verdict.DROPPED if is_late else Verdict.UNDECIDED
    return np.where(is_named, Verdict.COMMITTED, otherwise)


def _first(count: int, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell that the first `count` of some half messages are done."""
    done: NDArray[np.bool_] = np.arange(len(offsets)) < count
    return done


def _attempt_ids(keys: pa.Array) -> pa.Array:
    """Return what unique keys begin with: of a batch's half messages, the attempt's id."""
    return pc.utf8_slice_codeunits(keys, 0, MAKER_CHARS)


def _numbers(texts: pa.Array, otherwise: int) -> NDArray[np.int64]:
    """Return a column of decimal text as numbers; what is none is `otherwise`."""
    is_number = pc.match_substring_regex(texts, r"^[0-9]{1,15}$").fill_null(False)
    digits = pc.if_else(is_number, texts, pa.scalar(str(otherwise)))
    numbers: NDArray[np.int64] = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
