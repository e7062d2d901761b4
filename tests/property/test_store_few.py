"""Laws of small reads: what is looked at, ranged and read one by one is what the way of many gives.

Two readers look at one store, one a few records at a time, the other all as columns: whenever the
writer gets to a failpoint, and in the middle of its writes. A store is also damaged and read by
both, which find the same and word it alike.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import SysFlag
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import Record, encode_record
from broker_core.errors import BrokerError
from broker_core.store import frame_reader, pending_tail
from broker_core.store.few_records import FewRecords, most_keys
from broker_core.store.io.files import Bytes, Failpoint
from broker_core.store.queue.known_range import KnownRange
from broker_core.store.reader import StoreReader
from broker_core.store.recovery.tail_marker import OLD_SLOT_BYTES, SLOT_BYTES
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit import stores
from tests.kit.batches import QuickFiles, batch, named, ticking
from tests.kit.records import records

EXAMPLES = 4
LONG = 100
"""Times as many examples in the slow forms."""
STEPS = 14
STEPS_OF_A_STORE = [*["few"] * 8, *["fail"] * 2, "many", "dispatch", "flush", "expire", "drop"]
DAMAGES = 12
KEYS = (("T", "k1"), ("T", "key-3"), ("TopicTest", "k2"))
TOPICS = ("T", "TopicTest", "t" * 200, SCHEDULE_TOPIC)
MARKERS = (SLOT_BYTES, OLD_SLOT_BYTES)
SETTINGS = StoreSettings(
    commit_log_file_bytes=1 << 13,
    consume_queue_file_bytes=20 * 16,
    index_slots=50,
    index_entries=1000,
)

Answer = tuple[object, ...] | list[object]
"""What a reader answers, as a value that compares."""


def few_turned_off(*, knows_ranges: bool) -> ExitStack:
    """Let everything go the way of many."""
    stack = ExitStack()
    stack.enter_context(patch.object(frame_reader, "FEW_RECORDS", 0))
    stack.enter_context(patch.object(pending_tail, "FEW_BYTES", -1))
    if not knows_ranges:
        stack.enter_context(patch.object(KnownRange, "is_current", lambda *_: False))
    return stack


def answer(ask: Callable[[], Answer]) -> Answer:
    """What a call returns, or how it fails."""
    try:
        return ask()
    except BrokerError as error:
        return type(error), str(error), vars(error)


def content(found: FrameBatch) -> list[object]:
    values = [getattr(found, field.name) for field in fields(found) if field.name != "buffer"]
    plain = [
        (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value
        for value in values
    ]
    return [*plain, found.records()]


def found_by(reader: StoreReader, topic: str, key: str) -> list[object]:
    return list(reader.candidates(topic, key))


def survey(reader: StoreReader, seed: int) -> dict[object, Answer]:
    """Ask for every range, for some records of each queue, and for some keys."""
    random = Random(seed)
    answers: dict[object, Answer] = {}

    def read(queue: tuple[str, int], start: int, end: int) -> None:
        rows, most_bytes = random.choice([1, 3, 100]), random.choice([1, 400, 1 << 20])
        asked = partial(reader.frames, *queue, start, end, batch_rows=rows, batch_bytes=most_bytes)
        answers[queue, start, end] = answer(lambda: [content(each) for each in asked()])

    try:
        queues = reader.queues()
    except BrokerError:
        queues = []
        answers["queues"] = answer(lambda: [*reader.queues()])
    for queue in queues:
        answers[queue] = bounds = answer(partial(reader.queue_range, *queue))
        low, high = (each if isinstance(each, int) else 0 for each in bounds[:2])
        start = random.randint(low, high)
        read(queue, low, high)
        read(queue, start, random.randint(start, high))
        read(queue, max(low, high - 2), high)
        read(queue, start - 1, high + random.choice([0, 1]))
    for topic, key in KEYS:
        answers[topic, key] = answer(partial(found_by, reader, topic, key))
    return answers


class Watch:
    """Two readers of one store that must always agree."""

    def __init__(self, root: Path, seed: int, *, knows_ranges: bool = False) -> None:
        self._knows_ranges = knows_ranges
        self._one_by_one, self._columns = StoreReader(root), StoreReader(root)
        self._random = Random(seed)
        self.looks = 0

    def look(self, share: float = 1) -> None:
        """Compare what both see now, or do so in a share of all cases only."""
        if self._random.random() < share:
            seed = self._random.random().__hash__()
            few = survey(self._one_by_one, seed)
            with few_turned_off(knows_ranges=self._knows_ranges):
                assert few == survey(self._columns, seed)
            self.looks += 1

    def close(self) -> None:
        self._one_by_one.close()
        self._columns.close()


class WatchedFiles(QuickFiles):
    """Files whose store is looked at in between; an append can be made to fail."""

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self.fails_at: Failpoint | None = None

    def reach(self, point: Failpoint) -> None:
        if self.watch is not None:
            self.watch.look(0.1)
        if point is self.fails_at:
            self.fails_at = None
            raise OSError(errno.EIO, "no disk for a moment")

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        if self.watch is None or len(data) < 2 or len(data) in MARKERS:
            return super().pwrite(descriptor, data, offset)
        done = super().pwrite(descriptor, data[: len(data) // 2], offset)
        self.watch.look(0.1)
        return done


def few_of(chosen: Sequence[Record], random: Random) -> FewRecords:
    """Records for a few queues, of which all have the same born host's length."""
    wide = len(chosen[0].born_host)
    data, sizes, queues = bytearray(), [], []
    for record in chosen:
        transaction = random.choice([0, SysFlag.COMMIT])
        flags = record.sys_flag & ~layout.TRANSACTION_MASK | transaction
        host = record.born_host[:8].ljust(wide, b"\x07")
        placed = replace(record, queue_id=random.randrange(2), sys_flag=flags, born_host=host)
        encoded = encode_record(placed)
        data += encoded
        sizes.append(len(encoded))
        queues.append((placed.topic, placed.queue_id))
    keys = most_keys(len(sizes), data.count(b" "))
    store_time_at = layout.STORE_TIMESTAMP + wide - layout.HOST_V4
    return FewRecords(data, sizes, queues, keys, store_time_at)


def step(store: StoreWriter, files: WatchedFiles, pool: Sequence[Record], random: Random) -> None:
    """Do something that a store is for."""
    kind = random.choice(
        ["few"] * 8 + ["fail"] * 2 + ["many", "dispatch", "flush", "expire", "drop"]
    )
    if kind in ("few", "fail"):
        count = random.choice([1, 1, 2, 5])
        if kind == "fail":
            files.fails_at = random.choice([Failpoint.MARKED_PENDING, Failpoint.PENDING_WRITTEN])
        with suppress(BrokerError):
            store.append_few(few_of(random.choices(pool, k=count), random))
        files.fails_at = None
    elif kind == "many":
        store.append(batch(named(random.randint(1, 30))), guard=lambda: None)
    elif kind == "dispatch":
        with store.turn("look"):
            pass
    elif kind == "flush":
        store.flush()
    elif kind == "expire":
        store.delete_before(random.choice([1 << 13, 1 << 14]))
    else:
        store.delete_queues(random.choice(TOPICS[:2]))


POOLS = st.lists(records(st.sampled_from(TOPICS)), min_size=3, max_size=6)
SEEDS = st.integers(0, 2**32)


@given(POOLS, SEEDS)
@settings(max_examples=EXAMPLES)
def test_a_few_at_a_time_is_as_many_at_once(
    tmp_path_factory: pytest.TempPathFactory, pool: list[Record], seed: int
) -> None:
    live_and_look(tmp_path_factory, pool, seed)


@pytest.mark.slow
@given(POOLS, SEEDS)
@settings(max_examples=LONG * EXAMPLES)
def test_a_few_at_a_time_is_as_many_at_once_in_many_stores(
    tmp_path_factory: pytest.TempPathFactory, pool: list[Record], seed: int
) -> None:
    live_and_look(tmp_path_factory, pool, seed)


def live_and_look(
    tmp_path_factory: pytest.TempPathFactory, pool: Sequence[Record], seed: int
) -> None:
    """Let a writer work, and look at its store all the time."""
    root = tmp_path_factory.mktemp("few") / "store"
    random = Random(seed)
    files = WatchedFiles()
    options = SessionOptions(clock_ms=ticking(), lock_wait_s=10)
    with StoreWriter.open(root, SETTINGS, create=True, files=files, options=options) as store:
        store.append(batch(named(6)))
        files.watch = Watch(root, seed)
        for _ in range(STEPS):
            step(store, files, pool, random)
            files.watch.look()
            newcomer = Watch(root, seed)
            newcomer.look(0.3)
            newcomer.close()
    files.watch.close()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a pending tail, as its writer left it, that did not die but has not closed."""
    root = tmp_path_factory.mktemp("template") / "store"
    options = SessionOptions(clock_ms=ticking(), lock_wait_s=10)
    with StoreWriter.open(
        root, SETTINGS, create=True, files=QuickFiles(), options=options
    ) as store:
        store.append(batch(named(70)))
        store.delete_before(1 << 13)
        store.append(batch(named(5)))
        shutil.copytree(root, root.with_name("living"))
    return root.with_name("living")


KINDS = st.sampled_from(["consumequeue", "commitlog", "checkpoint"])


@given(KINDS, st.data())
@settings(max_examples=DAMAGES)
def test_damage_is_found_and_worded_alike(
    template: Path, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    damage_and_look(template, tmp_path_factory, kind, data)


@pytest.mark.slow
@given(KINDS, st.data())
@settings(max_examples=LONG * DAMAGES)
def test_much_damage_is_found_and_worded_alike(
    template: Path, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    damage_and_look(template, tmp_path_factory, kind, data)


def damage_and_look(
    template: Path, tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """Damage a file between two looks."""
    root = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(template, root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and kind in str(path))
    path = data.draw(st.sampled_from(files))
    # Who knows where a queue begins does not look at what lies before it again.
    watch = Watch(root, seed=0, knows_ranges=True)
    watch.look()
    content = path.read_bytes()
    last = min(len(content.rstrip(b"\0")) + 10, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        stores.flip(path, data.draw(st.integers(0, last)), data.draw(st.integers(1, 255)))
    watch.look()
    newcomer = Watch(root, seed=1)
    newcomer.look()
    watch.close()
    newcomer.close()
    shutil.rmtree(root)
