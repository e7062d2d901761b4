"""Deleted topics: their records stay out of every queue, and their numbers are used once."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from broker_core.errors import DiskFullError
from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from broker_core.store.queue.deletions import DELETIONS, Deletions
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.writer import StoreWriter
from tests.kit.batches import SMALL, QuickFiles, batch, bodies, named, ticking, view
from tests.kit.stores import flip

PER_FILE = SMALL.consume_queue_file_bytes // 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def writer(root: Path, files: QuickFiles | None = None) -> StoreWriter:
    options = SessionOptions(clock_ms=ticking(), lock_wait_s=10)
    return StoreWriter.open(root, SMALL, create=True, files=files or QuickFiles(), options=options)


def forget_all_but_the_log(root: Path) -> None:
    """Leave a store as a loss of power and a lost consumequeue/ do: the log tells everything."""
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").write_text("1")


def texts(first: int, count: int) -> list[bytes]:
    return [body.encode() for body in named(count, first)]


@pytest.mark.parametrize("second", [0, 1, PER_FILE + 2])
@pytest.mark.parametrize("first", [1, PER_FILE, PER_FILE + 1, 3 * PER_FILE + 5])
def test_numbers_go_on_for_every_reader_and_after_every_recovery(
    root: Path, first: int, second: int
) -> None:
    """Each life of a topic is {fewer, as many, more} messages, and ends around a file's end."""
    with writer(root) as store:
        store.append(batch(named(first), queues=1))
        store.append(batch(named(3), topic="Other"))
        early = StoreReader(root, SMALL)
        assert early.queue_range("T", 0) == (0, first)

        store.delete_queues("T")
        assert ("T", 0) not in view(root)
        assert early.queue_range("T", 0) == (first, first)
        end = first + second
        if second:
            placed = store.append(batch(named(second, first), queues=1))
            assert placed.queue_offsets.tolist() == list(range(first, end))
        assert early.queue_range("T", 0) == (first, end)
        assert bodies(early, ("T", 0)) == texts(first, second)

    assert check(root, SMALL) == []
    seen = view(root)
    assert seen.get(("T", 0), []) == texts(first, second)
    assert StoreReader(root, SMALL).queue_range("T", 0) == (first, end)
    forget_all_but_the_log(root)
    assert view(root, SMALL) == seen, "as a reader sees it before any writer"
    writer(root).close()
    assert view(root) == seen
    assert check(root, SMALL) == []
    with writer(root) as store:
        placed = store.append(batch(named(1, end), queues=1))
        assert placed.queue_offsets.tolist() == [end]
        store.delete_queues("T")
        assert store.append(batch(["third"], queues=1)).queue_offsets.tolist() == [end + 1]
    assert view(root)["T", 0] == [b"third"]
    assert check(root, SMALL) == []


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_each_queue_goes_on_where_it_ended_whatever_their_number(
    root: Path, before: int, after: int
) -> None:
    with writer(root) as store:
        store.append(batch(named(12), queues=before))
        store.delete_queues("T")
        store.append(batch(named(12, 50), queues=after))
        reader = StoreReader(root, SMALL)
        ranges = {queue: reader.queue_range("T", queue) for queue in range(3)}

    old = {queue: 12 // before if queue < before else 0 for queue in range(3)}
    assert ranges == {
        queue: (old[queue], old[queue] + (12 // after if queue < after else 0))
        for queue in range(3)
    }
    assert check(root, SMALL) == []


def test_numbers_go_on_after_the_old_records_have_expired(root: Path) -> None:
    with writer(root) as store:
        store.append(batch(named(25), queues=1))
        store.delete_queues("T")
        store.append(batch(named(60), topic="Other"))
        store.delete_before(8192)
        store.delete_queues("Other")

    assert Deletions.load(root).log_ends.keys() == {"Other"}, "the log has no record of T"
    with writer(root) as store:
        assert store.append(batch(["new"], queues=1)).queue_offsets.tolist() == [25]
    assert check(root, SMALL) == []


def test_other_writers_do_not_write_to_deleted_queues(root: Path) -> None:
    with writer(root) as one, writer(root) as other:
        one.append(batch(named(30)))
        other.append(batch(named(30, 30), first=30))
        other.delete_queues("T")
        placed = one.append(batch(named(2, 80)))

    assert placed.queue_offsets.tolist() == [30, 30]
    assert view(root) == {("T", 0): texts(80, 1), ("T", 1): texts(81, 1)}
    assert not (root / "deleted").exists()


def test_recovery_does_not_bring_a_deleted_topic_back(root: Path) -> None:
    with writer(root) as store:
        store.append(batch(named(30)))
        store.delete_queues("T")
        store.append(batch(named(1, 99), queues=1))
    (root / "abort").write_text("1")
    (root / "checkpoint").write_bytes(bytes(4096))

    with writer(root) as store:
        store.append(batch(named(1, 50), queues=1))

    assert view(root) == {("T", 0): [named(1, 99)[0].encode(), named(1, 50)[0].encode()]}
    assert check(root) == []


class FailsOnce(QuickFiles):
    """Files whose disk is full at one point of an append."""

    at: Failpoint | None = None

    def reach(self, point: Failpoint) -> None:
        if point is self.at:
            self.at = None
            raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("point", [Failpoint.QUEUE_CREATED, Failpoint.QUEUE_WRITTEN])
def test_a_first_message_that_is_taken_back_leaves_no_queue_of_fillers(
    root: Path, point: Failpoint
) -> None:
    """Apache's broker takes a last entry that is a filler for one that ends at 2 GB of the log."""
    files = FailsOnce()
    with writer(root, files) as store:
        store.append(batch(named(PER_FILE + 3), queues=1))
        store.delete_queues("T")
        files.at = point
        with pytest.raises(DiskFullError):
            store.append(batch(["lost"], queues=1))

        assert not (root / "consumequeue/T").exists()
        placed = store.append(batch(["kept"], queues=1))
    assert placed.queue_offsets.tolist() == [PER_FILE + 3]
    assert check(root, SMALL) == []


def test_a_topic_of_the_longest_name_can_be_deleted(root: Path) -> None:
    longest = "%RETRY%" + "g" * (255 - len("%RETRY%"))
    with writer(root) as store:
        store.append(batch(named(3), topic=longest, queues=1))

        store.delete_queues(longest)

        assert not (root / "consumequeue" / longest).exists()
        assert not (root / "deleted").exists()


def test_a_damaged_topic_can_be_deleted_and_its_numbers_are_not_used_again(root: Path) -> None:
    with writer(root) as store:
        store.append(batch(named(5), queues=1))
    flip(root / "consumequeue/T/0/00000000000000000000", 4 * 20 + 7)
    with writer(root) as store:
        store.delete_queues("T")

        assert store.append(batch(["new"], queues=1)).queue_offsets.tolist() == [5]


def test_a_foreign_broker_that_numbers_from_zero_never_moves_an_end_back(root: Path) -> None:
    """The queue's files tell where it goes on; a later deletion by us keeps the higher end."""
    with writer(root) as store:
        store.append(batch(named(9), queues=1))
        store.delete_queues("T")
        note = root / DELETIONS
        kept = note.read_bytes()
        note.write_text("{}")
        assert store.append(batch(["apache"], queues=1)).queue_offsets.tolist() == [0]
        note.write_bytes(kept)
        assert store.append(batch(["ours"], queues=1)).queue_offsets.tolist() == [1]
        store.delete_queues("T")
        assert store.append(batch(["new"], queues=1)).queue_offsets.tolist() == [9]
    assert check(root, SMALL) == []


def test_notes_of_an_older_release_are_read(root: Path) -> None:
    with writer(root) as store:
        store.append(batch(named(4), queues=1))
        store.delete_queues("T")
        log_end = Deletions.load(root).log_ends["T"]
        (root / DELETIONS).write_text(f'{{"deletions":{{"T":{log_end}}}}}')
        assert store.append(batch(["new"], queues=1)).queue_offsets.tolist() == [0]
    forget_all_but_the_log(root)
    writer(root).close()

    assert view(root) == {("T", 0): [b"new"]}
    assert check(root, SMALL) == []
