"""Laws of damage: any changed byte of any file is reported, or makes no difference.

A store of Apache's is changed in one byte and read again. Whatever happens, the only error is
CorruptRecordError, and what is read without one is what was there before, as far as the format can
tell: RocketMQ guards bodies by a checksum and places by repeating them, but not, say, flags.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_core.broker.dump import Dump
from broker_core.cli.messages import message_document
from broker_core.errors import CorruptRecordError
from broker_core.store.check.store import check
from broker_core.store.index.file import IndexFile
from broker_core.store.queue.ext import ConsumeQueueExt
from broker_core.store.recovery.checkpoint import read_checkpoint
from tests.kit import fixtures, stores

pytestmark = pytest.mark.usefixtures("either_way")

EXAMPLES = 60
GUARDED = ("queueOffset", "commitLogOffset", "storeSize", "bodyCRC", "storedBodyLength")
KEYS = 12

# Where in a file, as a share of its length, and which bits.
PLACES = st.tuples(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True), st.integers(1, 255))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.extract("crash-5.5", tmp_path_factory.mktemp("damage"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.extract("transactions-5.5", tmp_path_factory.mktemp("damage"))


def guarded_dump(root: Path) -> dict[tuple[str, int], Any]:
    """Range and guarded fields of every message of every queue."""
    with stores.open_r(root) as broker:
        dump = Dump(broker.reader, broker.catalog, lambda _done, _total: None)
        return {
            (topic.name, queue.queue_id): (
                queue.minimum,
                queue.maximum,
                [
                    [message_document(record, size)[name] for name in GUARDED]
                    for record, size in queue.records
                ],
            )
            for topic in dump.topics()
            for queue in topic.queues
        }


def keyed(name: str) -> Callable[[Path], list[Any]]:
    """Answers to some of a fixture's queries by key."""
    asked = fixtures.expected(name)["queries"]["byKey"]
    chosen = asked[:: max(1, len(asked) // KEYS)]

    def answers(root: Path) -> list[Any]:
        with stores.open_r(root) as broker:
            return [
                broker.query(query["topic"], query["key"])["offsetMsgId"].to_pylist()
                for query in chosen
            ]

    return answers


def with_one_byte_changed(
    files: list[Path], place: tuple[int, float, int], read: Callable[[], object]
) -> object:
    """What `read` gives while one byte of one of the files is changed; None for damage found."""
    number, share, bits = place
    path = files[number % len(files)]
    position = int(share * path.stat().st_size)
    stores.flip(path, position, bits)
    try:
        return read()
    except CorruptRecordError:
        return None
    finally:
        stores.flip(path, position, bits)


def files_below(root: Path, folder: str) -> list[Path]:
    return sorted(
        path for path in (root / folder).rglob("*") if path.is_file() and path.stat().st_size
    )


def the_law_holds(
    root: Path, folder: str, read: Callable[[Path], object], examples: int = EXAMPLES
) -> None:
    files = files_below(root, folder)
    before = read(root)

    @settings(max_examples=examples)
    @given(PLACES)
    @example((0, 0.0, 1))
    def law(place: tuple[int, float, int]) -> None:
        assert with_one_byte_changed(files, place, lambda: read(root)) in (None, before)

    law()


def test_a_changed_byte_of_the_commit_log_is_reported_or_harmless(closed: Path) -> None:
    the_law_holds(closed, "commitlog", guarded_dump)


def test_a_changed_byte_of_a_consume_queue_is_reported_or_harmless(closed: Path) -> None:
    the_law_holds(closed, "consumequeue", guarded_dump)


def test_a_changed_byte_of_an_index_file_is_reported_or_harmless(closed: Path) -> None:
    the_law_holds(closed, "index", keyed("transactions-5.5"), examples=40)


def test_a_changed_byte_of_a_crashed_log_is_reported_or_harmless(crashed: Path) -> None:
    the_law_holds(crashed, "commitlog", guarded_dump, examples=15)


def test_a_changed_byte_of_a_crashed_consume_queue_is_harmless(crashed: Path) -> None:
    the_law_holds(crashed, "consumequeue", guarded_dump, examples=15)


def filtered(root: Path) -> list[list[int]]:
    """What a registered expression chooses of the store with bitmaps."""
    with stores.open_r(root) as broker:
        return [
            broker.read("Filtered", queue.queue_id, sql="price > 50.5")["queueOffset"].to_pylist()
            for queue in broker.offsets("Filtered")
        ]


def test_a_changed_byte_of_an_address_never_drops_a_wanted_message(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path_factory.mktemp("damage"))
    the_law_holds(root, "consumequeue/Filtered", filtered, examples=30)


@settings(max_examples=25)
@given(place=st.tuples(st.integers(0, 6), st.integers(0, 4095), st.integers(1, 255)))
def test_a_changed_byte_of_the_checkpoint_costs_time_and_no_message(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[int, int, int]
) -> None:
    """The marker of the last writer lies in it, in two slots from 2048 on."""
    spot, anywhere, bits = place
    position = anywhere if spot == 0 else (spot - 1) * 512 % 1024 + 2048 + anywhere % 156
    root = tmp_path_factory.mktemp("checkpoint") / "store"
    with stores.create(root) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(5):
            broker.send("orders", b"%d" % number, keys=["k"])
        if spot % 2:  # as a process leaves it that was killed
            shutil.copytree(root, root.with_name("killed"))
    root = root.with_name("killed") if spot % 2 else root
    stores.flip(root / "checkpoint", position, bits)

    with contextlib.suppress(CorruptRecordError):
        with stores.open_r(root) as reader:
            assert reader.read("orders").num_rows == 5
        with stores.open_rw(root) as writer:
            assert writer.send("orders", b"5").queue_offset == 5
            assert writer.query("orders", "k").num_rows == 5
        assert check(root) == []


@settings(max_examples=EXAMPLES)
@given(place=PLACES)
def test_a_changed_byte_of_the_configuration_never_crashes_a_reader(
    closed: Path, place: tuple[int, float, int]
) -> None:
    def read() -> object:
        with stores.open_r(closed) as broker:
            return [broker.offsets(topic) for topic in broker.topics()]

    with_one_byte_changed(files_below(closed, "config"), place, read)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_checkpoint_or_damage(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint"
    path.write_bytes(data)

    with contextlib.suppress(CorruptRecordError):
        assert read_checkpoint(path).min_timestamp_ms >= 0


@given(data=st.binary(max_size=400), wanted=st.integers(0, 2**31 - 1))
def test_any_bytes_are_an_index_file_or_damage(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, wanted: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "20260101000000000"
    path.write_bytes(data)

    with contextlib.suppress(CorruptRecordError):
        assert len(list(IndexFile(path).lookup(wanted))) < len(data)


@given(data=st.binary(min_size=20, max_size=200), addresses=st.lists(st.integers(0, 250)))
def test_any_bytes_are_an_extension_or_unknown_tags(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, addresses: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("ext")
    (directory / "00000000000000000000").write_bytes(data)
    codes = np.array([address - (1 << 63) for address in addresses], dtype=np.int64)

    units = ConsumeQueueExt(directory).read(codes)

    assert len(units.tags_codes) == len(units.bitmaps) == len(addresses)
