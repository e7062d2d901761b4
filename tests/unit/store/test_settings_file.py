"""A store knows what it was made with before its first message, whoever opens it next."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.errors import CorruptRecordError
from broker_core.store.index.file import IndexFile
from broker_core.store.io.segments import list_segments
from broker_core.store.settings_file import FILE
from broker_core.types import Mode
from tests.kit import fixtures, stores


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with stores.create(tmp_path / "store", brokerName="broker-z") as broker:
        broker.create_topic("orders", queues=1)
    return tmp_path / "store"


def test_a_store_closed_before_its_first_message_keeps_its_file_sizes(root: Path) -> None:
    with open_broker(root, mode="rw") as broker:
        broker.send("orders", b"x", keys=["k"])

    assert list_segments(root / "commitlog")[0].size == 65536
    assert list_segments(root / "consumequeue" / "orders" / "0")[0].size == 2000
    (index,) = (root / "index").iterdir()
    assert (IndexFile(index).slots, IndexFile(index).capacity) == (500, 400)


def test_a_store_keeps_its_brokers_name(root: Path) -> None:
    with open_broker(root) as broker:
        assert {queue.broker_name for queue in broker.offsets("orders")} == {"broker-z"}
    with open_broker(root, config={"brokerName": "other"}) as broker:
        assert {queue.broker_name for queue in broker.offsets("orders")} == {"other"}


def test_before_there_are_files_another_configuration_wins(root: Path) -> None:
    with open_broker(root, mode="rw", config={"mappedFileSizeCommitLog": 131072}):
        pass
    with open_broker(root, mode="rw") as broker:
        broker.send("orders", b"x")

    assert list_segments(root / "commitlog")[0].size == 131072
    assert list_segments(root / "consumequeue" / "orders" / "0")[0].size == 2000


def test_reading_with_a_configuration_writes_nothing_down(root: Path) -> None:
    before = stores.snapshot(root)

    with open_broker(root, config={"mappedFileSizeCommitLog": 131072, "brokerName": "other"}):
        pass

    assert stores.snapshot(root) == before


def test_files_have_the_last_word(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    (root / FILE).write_text('{"mappedFileSizeCommitLog":"131072"}', encoding="utf-8")

    with open_broker(root, mode="rw") as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"x")

    assert {segment.size for segment in list_segments(root / "commitlog")} == {65536}


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_nonsense_is_reported_with_the_file(root: Path, mode: Mode) -> None:
    (root / FILE).write_text('{"mappedFileSizeCommitLog":"many"}', encoding="utf-8")

    with pytest.raises(CorruptRecordError, match=r"storeSettings\.json.*'many', expected bytes"):
        open_broker(root, mode=mode)
