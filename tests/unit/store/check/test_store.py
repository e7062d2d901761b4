from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.errors import FormatVersionError, StoreNotFoundError
from broker_core.store.check.store import Problem, check
from broker_core.store.recovery.plan import plan
from broker_core.store.writer import StoreWriter
from tests.kit import fixtures
from tests.kit.batches import SMALL, QuickFiles, batch, named


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with several files of each kind."""
    root = tmp_path_factory.mktemp("sound") / "store"
    with StoreWriter.open(root, SMALL, create=True, files=QuickFiles()) as store:
        for start in range(0, 60, 6):
            store.append(batch(named(6, start), first=start))
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def only(problems: list[Problem]) -> str:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return str(problems[0])


@pytest.mark.parametrize("name", [name for name in fixtures.NAMES if "crash" not in name])
def test_stores_of_apaches_broker_are_right(name: str, tmp_path: Path) -> None:
    root = fixtures.extract(name, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    assert check(root) == []
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_sound_store_has_no_problem_and_progress_is_told(root: Path) -> None:
    seen: list[tuple[int, int]] = []

    assert check(root, progress=lambda done, total: seen.append((done, total))) == []
    assert seen == sorted(seen)
    assert seen[-1][0] <= seen[-1][1]


def test_no_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        check(tmp_path / "nothing")


def test_foreign_format_is_an_error(root: Path) -> None:
    (root / "consumequeue/CURRENT").write_text("x")

    with pytest.raises(FormatVersionError):
        check(root)


def body_positions(root: Path) -> Iterator[int]:
    """One byte in each of some records: of the body, of the sizes, of the topic."""
    data = (root / "commitlog/00000000000000000000").read_bytes()
    at = 0
    while int.from_bytes(data[at + 4 : at + 8], "big") == 0xDAA320A7:
        yield from (at + 2, at + 5, at + 23, at + 90, at + 110)
        at += int.from_bytes(data[at : at + 4], "big")


def test_every_damaged_record_is_found(sound: Path, tmp_path: Path) -> None:
    for number, position in enumerate(list(body_positions(sound))[::7]):
        root = Path(shutil.copytree(sound, tmp_path / str(number)))
        flip(root / "commitlog/00000000000000000000", position)

        assert check(root, SMALL), position


@pytest.mark.parametrize("offset", range(0, 20, 3))
@pytest.mark.parametrize("entry", [0, 9, 10, 17, 29])
def test_every_damaged_entry_of_a_queue_is_found(entry: int, offset: int, root: Path) -> None:
    base = entry * 20 // 200 * 200
    flip(root / f"consumequeue/T/0/{base:020d}", entry * 20 % 200 + offset)

    found = check(root, SMALL)

    assert any("T/0" in str(problem) for problem in found), [str(problem) for problem in found]


@pytest.mark.parametrize("position", [3, 12, 20, 30, 35, 39, 41, 200, 263, 270, 278, 295])
def test_every_damaged_part_of_an_index_file_is_found(position: int, root: Path) -> None:
    path = sorted((root / "index").iterdir())[1]
    flip(path, position)

    assert any(path.name in str(problem) for problem in check(root, SMALL))


def test_entry_behind_the_log_is_found(root: Path) -> None:
    path = root / "consumequeue/T/0/00000000000000000600"
    path.write_bytes(bytes.fromhex("00000000000f4240000000a60000000000000000") + bytes(180))

    assert "entry 30 points to physical offset 1000000" in only(check(root, SMALL))


def test_missing_entry_is_found(root: Path) -> None:
    path = root / "consumequeue/T/1/00000000000000000400"
    data = path.read_bytes()
    path.write_bytes(data[:180] + bytes(20))

    assert "queue T/1: message 29 at physical offset" in only(check(root, SMALL))


def test_hole_in_a_queue_is_found(root: Path) -> None:
    path = root / "consumequeue/T/1/00000000000000000200"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(20) + data[60:])

    found = [str(problem) for problem in check(root, SMALL)]

    assert "queue T/1: entry 13 is written, entry 12 before it is not" in found


def test_lost_segment_is_found(root: Path) -> None:
    (root / "commitlog/00000000000000004096").unlink()

    found = [str(problem) for problem in check(root, SMALL)]

    assert any("4096 bytes of the log before it are gone" in text for text in found)


def test_damaged_configuration_is_found(root: Path) -> None:
    (root / "config/topics.json").write_text('{"topicConfigTable":{')

    assert "topics.json: it is not a configuration document" in only(check(root, SMALL))


def test_damaged_checkpoint_is_found(root: Path) -> None:
    flip(root / "checkpoint", 0)
    data = bytearray((root / "checkpoint").read_bytes())
    data[0] = 0xFF
    (root / "checkpoint").write_bytes(data)

    assert "physic_msg_timestamp" in only(check(root, SMALL))


def test_unfinished_append_is_found_until_it_is_recovered(root: Path) -> None:
    store = StoreWriter.open(root, SMALL, files=QuickFiles())
    end = plan(root, SMALL).log_end
    store.append(batch(["a"], queues=1))
    store._session.close()
    path = root / "consumequeue/T/0/00000000000000000600"
    path.write_bytes(bytes(200))
    flip(root / "lock", 0)

    assert any("queue T/0" in str(problem) for problem in check(root, SMALL))
    StoreWriter.open(root, SMALL, files=QuickFiles()).close()
    assert check(root, SMALL) == []
    assert plan(root, SMALL).log_end > end


def test_records_of_a_deleted_topic_need_no_entry(root: Path) -> None:
    with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
        store.delete_queues("T")
        store.append(batch(named(2)))

    assert check(root, SMALL) == []


def test_expired_entries_are_no_problem(root: Path) -> None:
    with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
        store.delete_before(4096)

    assert check(root, SMALL) == []
