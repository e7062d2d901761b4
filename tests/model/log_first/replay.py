"""Replay: traces of the model on the real classes, on a store of its own each.

Writers are StoreWriters, each call in a thread that pauses where the model's step ends: after each
write of the marker, of the log, of the queue and of the index. The reader is a StoreReader whose
look pauses between its reads. Processes die where they pause, or half-way through a write; calls
fail by fault injection. After each step the marker, the records of the log, the entries of the
queue and the number of index keys must be the model's; a look must see what the model's look saw.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker_core.codec.record import decode_record
from broker_core.errors import CorruptRecordError, StorageError
from broker_core.store import log_first
from broker_core.store.index.file import list_index_files, read_header
from broker_core.store.io.files import Bytes, Failpoint
from broker_core.store.pending_tail import PendingTail
from broker_core.store.queue.consume_queue import ENTRY_BYTES, iter_entries
from broker_core.store.reader import StoreReader
from broker_core.store.recovery.shutdown_state import CHECKPOINT_NAME
from broker_core.store.recovery.tail_marker import PAGE_START
from broker_core.store.writer import StoreWriter
from tests.kit.batches import batch
from tests.kit.faulty_files import Died, Fault, FaultyFiles
from tests.kit.paused_call import PausedCall
from tests.kit.pending import few, marker
from tests.kit.two_ways import ROOMY, open_store, put_many
from tests.model.log_first.explore import Step
from tests.model.log_first.protocol import step
from tests.model.log_first.state import BOUND, INTENDED, TORN, Action, Cell, Record, State

MARKED = "marked"
PLACES: dict[str, str] = {
    "recover.remark": MARKED,
    "recover.queue": Failpoint.QUEUE_WRITTEN,
    "recover.index": Failpoint.INDEX_SLOTS_WRITTEN,
    "recover.log": Failpoint.LOG_CUT,
    "recover.mark": MARKED,
    "dispatch.queue": Failpoint.QUEUE_WRITTEN,
    "dispatch.index": Failpoint.INDEX_SLOTS_WRITTEN,
    "dispatch.mark": MARKED,
    "claim": Failpoint.ROOM_CLAIMED,
    "mark": MARKED,
    "sync": Failpoint.LOG_SYNCED,
    "undo.mark": MARKED,
    "undo.log": Failpoint.LOG_CUT,
    "undo.back": MARKED,
    "many.mark": MARKED,
    "many.dispatching": MARKED,
}
"""The place of a real call after a step of the model; "write" depends on the call."""
WRITTEN = {"send": Failpoint.PENDING_WRITTEN, "many": Failpoint.LOG_WRITTEN}
_PAUSES = {*PLACES.values(), *WRITTEN.values()}
TOPIC = "T"


class PausingFiles(FaultyFiles):
    """Files whose caller pauses after what the model counts as a step."""

    call: PausedCall | None = None

    def reach(self, point: Failpoint) -> None:
        super().reach(point)
        if point in _PAUSES:
            self._pause(point)

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        count = super().pwrite(descriptor, data, offset)
        if offset >= PAGE_START and self._open[descriptor].name == CHECKPOINT_NAME:
            self._pause(MARKED)
        return count

    def _pause(self, place: str) -> None:
        if self.call is None or not self.call.is_running_here:
            return
        try:
            self.call.pause(place)
        except Died:
            self.has_died = True
            raise


class PausingTail(PendingTail):
    """A reader's tail that pauses after each of its reads."""

    call: PausedCall | None = None

    def look(self) -> bool:
        is_changed = super().look()
        self._pause("queue")
        return is_changed

    def _read_page(self) -> bytes:
        page = super()._read_page()
        self._pause("crc")
        return page

    def _add_few(self, end: int) -> bool:
        self._pause("records")
        return super()._add_few(end)

    def _pause(self, place: str) -> None:
        if self.call is not None:
            self.call.pause(place)


class Writer:
    """One process that writes: its store, opened at its first call, and its files."""

    def __init__(self, root: Path) -> None:
        self.files = PausingFiles()
        self._root = root
        self._store: StoreWriter | None = None

    def start(self, action: Action, append: int) -> PausedCall:
        """Begin a call."""

        def call(under_way: PausedCall) -> str:
            self.files.call = under_way
            try:
                self._do(action, append)
            except StorageError:
                return "refused"
            return "done"

        return PausedCall(call)

    def _do(self, action: Action, append: int) -> None:
        if self._store is None:
            self._store = open_store(self._root, self.files)
        if action.kind == "turn":
            with self._store.turn("look"):
                return
        bodies = [_body(append, part, action.size) for part in range(action.size)]
        first = 2 * append
        if action.kind == "many":
            messages = batch(bodies, topic=TOPIC, queues=1, first=first)
            self._store.append(messages, guard=lambda: None)
        else:
            flush = "sync" if action.is_sync else "async"
            few(self._store, bodies, topic=TOPIC, queues=1, first=first, flush=flush)


class World:
    """A store, its writers and its reader, beside the state that the model says it is in."""

    def __init__(self, template: Path, root: Path) -> None:
        shutil.copytree(template, root)
        self._root = root
        self.state = State()
        self._writers = [Writer(root), Writer(root)]
        self._call: PausedCall | None = None
        self._look: PausedCall | None = None
        self._seen: list[Cell] = []
        self._reader = StoreReader(root, ROOMY)
        assert self._reader.state.is_clean
        self._tail = PausingTail(root, self._reader.log, ROOMY)
        self._reader._pending = self._tail
        (first,) = self._reader.entries(TOPIC, 0, 0, 1)
        self._size = int(first["size"])
        self._keys = self._index_keys()

    def play(self, actions: Iterable[Action]) -> list[Step]:
        """Play a trace beside the model and return its steps; AssertionError where they differ."""
        steps: list[Step] = []
        try:
            for action in actions:
                self._play(action)
                steps.append(Step(action, self.state))
        except AssertionError as error:
            said = "\n  ".join(str(each.action) for each in steps)
            error.add_note(f"after\n  {said}\nat {action}")
            raise
        finally:
            self._end()
        return steps

    def _play(self, action: Action) -> None:
        before, self.state = self.state, step(self.state, action, INTENDED)
        if action.kind in ("page", "look"):
            self._do_look(action)
        else:
            self._do_call(action, before)
        assert self._log() == self._expected_log()
        assert self._queue() == list(self.state.queue)
        assert self._index_keys() == self._keys * len(self.state.keys)
        found, told = marker(self._root), self.state.marker
        ends = [found.log_end, found.pending_end, found.dispatched_end]
        assert found.state.name.lower() == told.kind
        wanted = [told.log_end, told.pending_end, told.dispatched_end]
        assert [end // self._size for end in ends] == wanted

    def _end(self) -> None:
        """Let whatever is under way die."""
        for call in (self._call, self._look):
            if call is not None:
                call.kill()
        for writer in self._writers:
            writer.files.abandon()
        self._reader.close()

    # Writers

    def _do_call(self, action: Action, before: State) -> None:
        after = self.state.call
        if before.call is None:
            writer = self._writers[action.who]
            self._call = writer.start(action, before.appends)
        else:
            self._go_on(action, self._writers[before.call.who])
        assert self._call is not None
        if action.kind == "die":
            assert before.call is not None
            assert self._call.answer == "died"
            self._writers[before.call.who].files.abandon()
            self._writers[before.call.who] = Writer(self._root)
        elif after is None:
            is_refused = before.call is not None and before.call.append in self.state.failed
            assert self._call.answer == ("refused" if is_refused else "done")
        elif action.kind != "fail":
            place = PLACES[after.done] if after.done != "write" else WRITTEN[after.kind]
            assert self._call.answer == place

    def _go_on(self, action: Action, writer: Writer) -> None:
        assert self._call is not None
        is_torn = action.how == "torn"
        if action.kind == "fail":
            writer.files.strike(Fault.HALF if is_torn else Fault.FAIL_ONCE, 1)
        elif action.kind == "die" and not is_torn:
            self._call.kill()
        else:
            if action.kind == "die":
                writer.files.strike(Fault.DIE_TORN, 1)
            if action.kind == "give up":
                writer.files.strike(Fault.FAIL_ONCE, 1)
            self._call.resume()

    # The reader

    def _do_look(self, action: Action) -> None:
        if action.kind == "page":
            self._look = PausedCall(self._read)
        else:
            assert self._look is not None
            self._look.resume()
        assert self._look is not None
        if self.state.look is not None:
            assert self._look.answer == self.state.look.step
            return
        assert self._look.answer == "done"
        result = self.state.result
        assert result is not None
        assert len(self._seen) == len(result)
        for at, (seen, told) in enumerate(zip(self._seen, result, strict=True)):
            # What was undone since it was looked at is not there to be read.
            if self.state.log[at : at + 1] == (told,):
                assert seen == told

    def _read(self, call: PausedCall) -> str:
        self._tail.call = call
        view = self._reader.queue(TOPIC, 0)
        start, end = view.range()
        assert start == 0
        entries = view.entries(start, end)
        self._seen = [self._record(int(entry["physical_offset"])) for entry in entries]
        return "done"

    def _record(self, physical_offset: int) -> Cell:
        try:
            return _cell(
                self._reader.record_at(physical_offset).body, physical_offset // self._size
            )
        except CorruptRecordError:
            return None

    # Files

    def _log(self) -> list[Cell]:
        (path,) = (self._root / "commitlog").iterdir()
        data = path.read_bytes()
        found: list[Cell] = []
        for at in range(0, len(data.rstrip(b"\0")), self._size):
            raw = data[at : at + self._size]
            try:
                record = decode_record(raw)
            except CorruptRecordError:
                found.append(TORN if raw.strip(b"\0") else None)
            else:
                found.append(_cell(record.body, record.queue_offset))
        return found

    def _expected_log(self) -> list[Cell]:
        call, log = self.state.call, self.state.log
        # A write that is to fail half-way has not been made yet; one whose fsync is to fail has.
        if call is not None and call.done == "failed" and self._call is not None:
            log = log if self._call.answer == Failpoint.PENDING_WRITTEN else log[: call.start]
        return list(log)

    def _queue(self) -> list[int]:
        (path,) = (self._root / "consumequeue" / TOPIC / "0").iterdir()
        data = path.read_bytes()
        whole = data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]
        return [at // self._size for at, size, _ in iter_entries(whole) if size]

    def _index_keys(self) -> int:
        (path,) = list_index_files(self._root / "index")
        return read_header(path).entry_count - 1


def make_template(root: Path) -> None:
    """Make the store that every trace begins with: one message, in queue and index."""
    store = open_store(root)
    put_many(store, TOPIC, [_body(0, 0, 1)])
    store._session.close()


def bound_tails(patch: pytest.MonkeyPatch) -> None:
    """Let tails be as long as the model's."""
    patch.setattr(log_first, "MOST_PENDING_RECORDS", BOUND)
    patch.setattr(log_first, "_UNCOMPILED_RECORDS", BOUND)


def _body(append: int, part: int, parts: int) -> str:
    return f"append {append} part {part} of {parts}"


def _cell(body: bytes, place: int) -> Record:
    _, append, _, part, _, parts = body.split()
    return Record(int(append), int(part), int(parts), place)
