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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.admin import CONSUMER_OFFSETS_FILE, load_consumer_offsets
from broker_core.broker.transactions.check_back_plan import (
    NOT_IMMUNE,
    CheckBackProgress,
    CheckPolicy,
    OpenHalves,
    Step,
    Verdict,
    advance,
    open_offsets,
    plan,
)
from broker_core.broker.transactions.decision_records import stream_tag
from broker_core.broker.transactions.half import HALF_QUEUE, give_up, put_back
from broker_core.broker.transactions.op import OP_QUEUE, SettledHalves, listed_halves
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.message_batch import Destinations
from broker_core.codec.property_names import (
    CHECK_IMMUNITY_TIME,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_GROUP,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
)
from broker_core.store import config_files
from broker_core.store.batch import Batch
from broker_core.types import CheckBackReport

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from broker_core.broker.transactions.commit import BatchCommits, BatchTools
    from broker_core.broker.transactions.decision_records import BatchAttempt
    from broker_core.broker.transactions.settle import Guard
    from broker_core.codec.frames import FrameBatch
    from broker_core.types import AppendResult

Asking = Callable[["NDArray[np.int64]", int], None]
"""Asks producers about half messages that were just put back: their offsets, and an offset of the
op queue before which nothing can have settled them."""
Action = Callable[["NDArray[np.int64]", int], int]
"""Does a step to half messages, given an offset of the op queue before which nothing can have
settled them. Returns how many it did, the first of them: what is left waits for the next round."""

_COLUMNS = (
    UNIQ_KEY,
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


class CheckBack:
    """Rounds over the open half messages of one store. Not thread-safe."""

    def __init__(
        self, tools: BatchTools, commits: BatchCommits, policy: CheckPolicy, ask: Asking
    ) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._journal = tools.journal
        self._settler = tools.settler
        self._commits = commits
        self._policy = policy
        self._ask = ask

    def round(self, now_ms: int) -> CheckBackReport:
        """Look at everything that is open, and do what can be done about it now."""
        # Progress and ops are read without the lock. That is safe: a half message that is settled
        # after this look is seen by the append that would settle it again.
        progress = read_progress(self._reader.root)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        ops = self._listing(progress.op_offset)
        first = max(start, progress.half_offset)
        halves = self._open_halves(open_offsets(first, end, ops.listed), ops.listed)
        steps = plan(halves, now_ms, self._policy)
        done = np.zeros(len(halves), dtype=np.bool_)
        for step, action in self._actions().items():
            rows = np.flatnonzero(steps == step)
            if len(rows):
                count = action(halves.offsets[rows], ops.end)
                done[rows[:count]] = True
        waiting = halves.offsets[~done]
        self._save(advance(end, ops.end, waiting, ops.listed, ops.listing), progress)
        counts = {step: int((done & (steps == step)).sum()) for step in Step}
        return CheckBackReport(
            waiting=len(waiting),
            finished=counts[Step.FINISH],
            rolled_back=counts[Step.ROLL_BACK],
            asked=counts[Step.ASK],
            given_up=counts[Step.GIVE_UP],
        )

    # Looking

    def _listing(self, since: int) -> _Listing:
        """Read all op messages from `since` on."""
        start, end = self._reader.queue_range(OP_TOPIC, OP_QUEUE)
        first = min(max(start, since), end)
        found = [
            listed_halves(frames)
            for frames in self._reader.frames(OP_TOPIC, OP_QUEUE, first, end)
            if len(frames)
        ]
        nothing = np.zeros(0, dtype=np.int64)
        listed = np.concatenate([nothing, *(halves for halves, _ in found)])
        listing = np.concatenate([nothing, *(ops for _, ops in found)])
        return _Listing(first, end, listed, listing)

    def _open_halves(self, offsets: NDArray[np.int64], settled: NDArray[np.int64]) -> OpenHalves:
        """Read what the plan needs to know of open half messages."""
        parts = [self._columns(frames, settled) for frames in self._settler.frames(offsets)]
        return OpenHalves(
            *(
                np.concatenate([part[column] for part in parts] or [offsets[:0]])
                for column in range(len(fields(OpenHalves)))
            )
        )

    def _columns(
        self, frames: FrameBatch, settled: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], ...]:
        """Return the columns of OpenHalves for some half messages, in its order."""
        found = locate(frames)
        texts = property_columns(frames, _COLUMNS)
        immunity = _numbers(texts[CHECK_IMMUNITY_TIME], NOT_IMMUNE)
        original = _numbers(texts[TRANSACTION_PREPARED_QUEUE_OFFSET], -1)
        verdicts = self._verdicts(frames.offsets, texts[UNIQ_KEY])
        # Apache's broker puts a half message back as long as it is immune to checks. The copy
        # names its original, and what settled the original settles the copy.
        verdicts[(original >= 0) & np.isin(original, settled)] = Verdict.DROPPED
        return (
            frames.offsets,
            found.integer("bornTimestamp").astype(np.int64),
            found.integer("storeTimestamp").astype(np.int64),
            _numbers(texts[TRANSACTION_CHECK_TIMES], 0),
            np.where(immunity == NOT_IMMUNE, NOT_IMMUNE, immunity * 1000),
            verdicts,
        )

    def _verdicts(self, offsets: NDArray[np.int64], keys: pa.Array) -> NDArray[np.int64]:
        """Return what the journal says of half messages, by the attempt their keys begin with."""
        coded = pc.dictionary_encode(_attempt_ids(keys).fill_null(""))
        codes = coded.indices.to_numpy()
        verdicts = np.full(len(offsets), Verdict.UNKNOWN, dtype=np.int64)
        for code, attempt_id in enumerate(coded.dictionary.to_pylist()):
            attempt = self._journal.attempt(attempt_id)
            if attempt is not None:
                rows = codes == code
                verdicts[rows] = self._verdicts_of(attempt, offsets[rows])
        return verdicts

    def _verdicts_of(self, attempt: BatchAttempt, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the journal says of half messages of one attempt."""
        found = self._journal.decision(stream_tag(attempt.batch))
        if found is None or not found.decision.supersedes(attempt.batch):
            return np.full(len(offsets), Verdict.UNDECIDED, dtype=np.int64)
        # A decision that is done settled all that it named: what is still open is not of it.
        is_unfinished = found.decision.batch == attempt.batch and not found.decision.is_done
        is_named = found.decision.names(offsets) & is_unfinished
        return np.where(is_named, Verdict.COMMITTED, Verdict.DROPPED)

    # Doing

    def _actions(self) -> Mapping[Step, Action]:
        return {
            Step.FINISH: self._finish,
            Step.ROLL_BACK: self._roll_back,
            Step.ASK: self._ask_about,
            Step.GIVE_UP: self._give_up,
        }

    def _finish(self, offsets: NDArray[np.int64], since: int) -> int:
        """Finish the decisions that name these; each settles all that it names."""
        del since
        for frames in self._settler.frames(offsets):
            keys = property_columns(frames, [UNIQ_KEY])[UNIQ_KEY]
            for attempt_id in pc.unique(_attempt_ids(keys)).to_pylist():
                attempt = self._journal.attempt(attempt_id)
                found = attempt and self._journal.decision(stream_tag(attempt.batch))
                if found and not found.decision.is_done:
                    log.info("event=batch_finished_by_check_back batch=%s", found.decision.batch)
                    self._commits.finish(found)
        return len(offsets)

    def _roll_back(self, offsets: NDArray[np.int64], since: int) -> int:
        """Settle half messages without a copy."""
        # Decisions are final: nothing can make these part of a batch any more. So no guard.
        return sum(count for count, _ in self._settle(offsets, since, lambda _: []))

    def _give_up(self, offsets: NDArray[np.int64], since: int) -> int:
        """Copy half messages to the discard topic."""
        log.warning("event=half_messages_given_up count=%d", len(offsets))
        guard = partial(self._require_journal_end, self._journal.end())
        return sum(count for count, _ in self._settle(offsets, since, self._discarded, guard))

    def _discarded(self, offsets: NDArray[np.int64]) -> list[Batch]:
        return [
            Batch.of_copies(give_up(frames), Destinations.to_queue(DISCARD_TOPIC, 0, len(frames)))
            for frames in self._settler.frames(offsets)
        ]

    def _require_journal_end(self, end: int) -> None:
        """Raise SettledElsewhereError if a batch was decided since. Runs under the store's lock."""
        if self._journal.end() != end:
            raise SettledElsewhereError

    def _ask_about(self, offsets: NDArray[np.int64], since: int) -> int:
        """Put half messages back, counted, then ask about the new ones."""
        done = 0
        for count, placed in self._settle(offsets, since, self._put_back):
            done += count
            self._ask(placed.queue_offsets[:count], since)
        return done

    def _put_back(self, offsets: NDArray[np.int64]) -> list[Batch]:
        copies = []
        for frames in self._settler.frames(offsets):
            checks = _numbers(property_columns(frames, _COLUMNS)[TRANSACTION_CHECK_TIMES], 0)
            counted = [{TRANSACTION_CHECK_TIMES: str(number + 1)} for number in checks.tolist()]
            to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(frames))
            copies.append(Batch.of_copies(put_back(frames, counted), to_half))
        return copies

    def _settle(
        self,
        offsets: NDArray[np.int64],
        since: int,
        copies: Callable[[NDArray[np.int64]], list[Batch]],
        guard: Guard | None = None,
    ) -> Iterator[tuple[int, AppendResult]]:
        """Settle half messages with copies; yield after each append how many, and where it lies.

        It ends early if another process settles or decides first: the next round sees what has
        changed.
        """
        settled = SettledHalves(self._reader, since)
        for portion in self._settler.split(offsets):
            settlement = self._settler.settlement(portion, copies(portion))
            try:
                placed = self._settler.settle(settlement, settled, guard=guard)
            except SettledElsewhereError:
                return
            yield len(portion), placed

    # Progress

    def _save(self, reached: CheckBackProgress, before: CheckBackProgress) -> None:
        """Write how far a round came, unless another process came further."""
        if reached == before:
            return
        with self._tools.writer.turn("save the progress of check-back") as parts:
            known = read_progress(self._reader.root)
            half_offset = max(known.half_offset, reached.half_offset)
            op_offset = max(known.op_offset, reached.op_offset)
            offsets = load_consumer_offsets(self._reader.root)
            offsets = offsets.put(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE, half_offset)
            offsets = offsets.put(TRANSACTION_GROUP, OP_TOPIC, OP_QUEUE, op_offset)
            document = offsets.document(self._tools.clock_ms())
            config_files.persist(parts.files, self._reader.root / CONSUMER_OFFSETS_FILE, document)


def read_progress(root: Path) -> CheckBackProgress:
    """Return how far check-back came, ours or Apache's; 0 where it never ran."""
    offsets = load_consumer_offsets(root)
    return CheckBackProgress(
        offsets.of(TRANSACTION_GROUP, HALF_TOPIC).get(HALF_QUEUE, 0),
        offsets.of(TRANSACTION_GROUP, OP_TOPIC).get(OP_QUEUE, 0),
    )


def _attempt_ids(keys: pa.Array) -> pa.Array:
    """Return what unique keys begin with: of a batch's half messages, the attempt's id."""
    return pc.utf8_slice_codeunits(keys, 0, MAKER_CHARS)


def _numbers(texts: pa.Array, otherwise: int) -> NDArray[np.int64]:
    """Return a column of decimal text as numbers; what is none is `otherwise`."""
    is_number = pc.match_substring_regex(texts, r"^[0-9]{1,15}$").fill_null(False)
    digits = pc.if_else(is_number, texts, pa.scalar(str(otherwise)))
    numbers: NDArray[np.int64] = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
