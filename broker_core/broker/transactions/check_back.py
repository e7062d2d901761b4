"""Check-back, carried out: one round over the half messages that are still open.

A round reads from where the last one came to (the offsets of the group CID_RMQ_SYS_TRANS in
config/consumerOffset.json, where Apache's broker keeps them too), finds what no op message settles,
and does what the plan (check_back.py) says. Whatever it does to a half message, it writes the op
message that settles it in the same append, so that no crash and no other broker's round can do it
twice; and each append looks first, under the lock, whether someone else was faster.

With nothing open a round costs a few reads. Embedded brokers run one every so often when they
write; a server runs them by the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
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
from broker_core.broker.transactions.decisions import stream_tag
from broker_core.broker.transactions.half import HALF_QUEUE, give_up, put_back
from broker_core.broker.transactions.op import OP_QUEUE, listed_halves
from broker_core.broker.transactions.resolved import ResolvedHalves
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.ids import MAKER_CHARS
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
from broker_core.codec.record_copy import Destinations
from broker_core.store import config_files
from broker_core.store.batch import Batch
from broker_core.types import CheckBackReport

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from broker_core.broker.transactions.commit import BatchCommits, BatchTools
    from broker_core.codec.frames import FrameBatch

Asking = Callable[["NDArray[np.int64]", int], None]
"""Asks producers about half messages that were just put back: their offsets, and an offset of the
op queue before which nothing can have decided them."""

_COLUMNS = (
    UNIQ_KEY,
    TRANSACTION_CHECK_TIMES,
    CHECK_IMMUNITY_TIME,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Listing:
    """What the op queue settles from `start` on: half message listed[i] by op listing[i]."""

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
        self._commits = commits
        self._policy = policy
        self._ask = ask

    def round(self, now_ms: int) -> CheckBackReport:
        """Look at everything that is open, and do what can be done about it now."""
        progress = read_progress(self._reader.root)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        ops = self._listing(progress.op_offset)
        first = max(start, progress.half_offset)
        halves = self._open_halves(open_offsets(first, end, ops.listed), ops.listed)
        steps = plan(halves, now_ms, self._policy)
        done = np.zeros(len(halves), dtype=np.bool_)
        for step, action in self._actions().items():
            rows = steps == step
            if rows.any():
                done[rows] = action(halves.offsets[rows], ops.end)
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
        parts = [self._columns(frames, settled) for frames in self._tools.settling.frames(offsets)]
        return OpenHalves(
            *(
                np.concatenate([part[column] for part in parts] or [offsets[:0]])
                for column in range(len(fields(OpenHalves)))
            )
        )

    def _columns(
        self, frames: FrameBatch, settled: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], ...]:
        """What the plan needs to know of some half messages, in the order of OpenHalves."""
        found = locate(frames)
        texts = property_columns(frames, _COLUMNS)
        immunity = _numbers(texts[CHECK_IMMUNITY_TIME], NOT_IMMUNE)
        original = _numbers(texts[TRANSACTION_PREPARED_QUEUE_OFFSET], -1)
        verdicts = self._verdicts(frames.offsets, texts[UNIQ_KEY])
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
        """What the journal says of half messages, by the attempt that their keys begin with."""
        prefixes = pc.utf8_slice_codeunits(keys, 0, MAKER_CHARS).fill_null("")
        coded = pc.dictionary_encode(prefixes)
        codes = coded.indices.to_numpy()
        verdicts = np.full(len(offsets), Verdict.UNKNOWN, dtype=np.int64)
        for code, prefix in enumerate(coded.dictionary.to_pylist()):
            attempt = self._tools.journal.attempt(prefix)
            if attempt is None:
                continue
            rows = codes == code
            found = self._tools.journal.decision(stream_tag(attempt.batch))
            if found is None or found[0].batch.number < attempt.batch.number:
                verdicts[rows] = Verdict.UNDECIDED
                continue
            is_same = found[0].batch == attempt.batch and not found[0].is_done
            named = found[0].names(offsets[rows]) & is_same
            verdicts[rows] = np.where(named, Verdict.COMMITTED, Verdict.DROPPED)
        return verdicts

    # Doing

    def _actions(
        self,
    ) -> Mapping[Step, Callable[[NDArray[np.int64], int], NDArray[np.bool_]]]:
        return {
            Step.FINISH: self._finish,
            Step.ROLL_BACK: self._roll_back,
            Step.ASK: self._ask_about,
            Step.GIVE_UP: self._give_up,
        }

    def _finish(self, offsets: NDArray[np.int64], since: int) -> NDArray[np.bool_]:
        """Finish the decisions that name these; each settles all that it names."""
        del since
        for frames in self._tools.settling.frames(offsets):
            keys = property_columns(frames, [UNIQ_KEY])[UNIQ_KEY]
            prefixes = pc.utf8_slice_codeunits(keys, 0, MAKER_CHARS)
            for prefix in pc.unique(prefixes).to_pylist():
                attempt = self._tools.journal.attempt(prefix)
                found = attempt and self._tools.journal.decision(stream_tag(attempt.batch))
                if found and not found[0].is_done:
                    _LOG.info("finishing a committed batch: batch=%s", found[0].batch)
                    self._commits.finish(*found)
        return np.ones(len(offsets), dtype=np.bool_)

    def _roll_back(self, offsets: NDArray[np.int64], since: int) -> NDArray[np.bool_]:
        # Decisions are final: nothing can make these part of a batch any more.
        return self._settle_in_pieces(offsets, since, lambda _: [])

    def _give_up(self, offsets: NDArray[np.int64], since: int) -> NDArray[np.bool_]:
        _LOG.warning("giving up half messages that nobody decided: count=%d", len(offsets))

        def copies(piece: NDArray[np.int64]) -> list[Batch]:
            return [
                Batch.of_copies(
                    give_up(frames), Destinations.to_queue(DISCARD_TOPIC, 0, len(frames))
                )
                for frames in self._tools.settling.frames(piece)
            ]

        journal = self._tools.journal
        before = journal.end()

        def is_still_so() -> None:
            if journal.end() != before:
                raise SettledElsewhereError

        return self._settle_in_pieces(offsets, since, copies, is_still_so)

    def _settle_in_pieces(
        self,
        offsets: NDArray[np.int64],
        since: int,
        copies: Callable[[NDArray[np.int64]], list[Batch]],
        guard: Callable[[], None] | None = None,
    ) -> NDArray[np.bool_]:
        """Settle half messages as far as nothing about them changes meanwhile."""
        fates = ResolvedHalves(self._reader, since)
        done = np.zeros(len(offsets), dtype=np.bool_)
        for piece in self._tools.settling.pieces(offsets):
            try:
                settlement = self._tools.settling.settlement(piece, copies(piece))
                self._tools.settling.settle(settlement, fates, guard=guard)
            except SettledElsewhereError:
                break  # the next round sees what has changed
            done[int(done.sum()) :][: len(piece)] = True
        return done

    def _ask_about(self, offsets: NDArray[np.int64], since: int) -> NDArray[np.bool_]:
        """Put half messages back, counted, then ask about the new ones."""
        fates = ResolvedHalves(self._reader, since)
        done = np.zeros(len(offsets), dtype=np.bool_)
        for piece in self._tools.settling.pieces(offsets):
            parts = []
            for frames in self._tools.settling.frames(piece):
                counts = _numbers(property_columns(frames, _COLUMNS)[TRANSACTION_CHECK_TIMES], 0)
                again = [{TRANSACTION_CHECK_TIMES: str(count + 1)} for count in counts.tolist()]
                route = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(frames))
                parts.append(Batch.of_copies(put_back(frames, again), route))
            try:
                settlement = self._tools.settling.settlement(piece, parts)
                placed = self._tools.settling.settle(settlement, fates)
            except SettledElsewhereError:
                break
            done[int(done.sum()) :][: len(piece)] = True
            self._ask(placed.queue_offsets[: len(piece)], since)
        return done

    # Progress

    def _save(self, reached: CheckBackProgress, before: CheckBackProgress) -> None:
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
    """How far check-back came, ours or Apache's; 0 where it never ran."""
    offsets = load_consumer_offsets(root)
    return CheckBackProgress(
        offsets.of(TRANSACTION_GROUP, HALF_TOPIC).get(HALF_QUEUE, 0),
        offsets.of(TRANSACTION_GROUP, OP_TOPIC).get(OP_QUEUE, 0),
    )


def _numbers(texts: pa.Array, otherwise: int) -> NDArray[np.int64]:
    """A column of decimal text as numbers; what is none is `otherwise`."""
    is_number = pc.match_substring_regex(texts, r"^[0-9]{1,15}$").fill_null(False)
    digits = pc.if_else(is_number, texts, pa.scalar(str(otherwise)))
    numbers: NDArray[np.int64] = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
