"""What a reader makes of a store's files: ends, starts, damage, files that come and go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from broker_core.codec.decode import decode
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.io.segments import list_segments, segment_name
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.queue.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings
from tests.kit import fixtures, stores

pytestmark = pytest.mark.usefixtures("either_way")

MESSAGES = 250
QUEUE = ("orders", 0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store: 250 messages in one queue, three consume-queue files, two segments."""
    root = tmp_path_factory.mktemp("template") / "store"
    with stores.create(root) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(MESSAGES):
            broker.send("orders", b"%d" % number * 100, tags="AB"[number % 2], keys=[f"k{number}"])
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


@pytest.fixture
def reader(root: Path) -> Iterator[StoreReader]:
    opened = StoreReader(root)
    yield opened
    opened.close()


def queue_file(root: Path, number: int = 0) -> Path:
    return list_segments(root / "consumequeue" / "orders" / "0")[number].path


def put_entry(root: Path, offset: int, physical_offset: int, size: int) -> None:
    """Overwrite entry `offset`, whatever was there."""
    per_file = stores.SMALL["mappedFileSizeConsumeQueue"] // ENTRY.itemsize
    path = queue_file(root, offset // per_file)
    data = bytearray(path.read_bytes())
    at = offset % per_file * ENTRY.itemsize
    data[at : at + ENTRY.itemsize] = np.array([(physical_offset, size, 0)], dtype=ENTRY).tobytes()
    path.write_bytes(data)


def entry(root: Path, offset: int) -> tuple[int, int]:
    found = ConsumeQueue(root / "consumequeue" / "orders" / "0").read(offset, offset + 1)[0]
    return int(found["physical_offset"]), int(found["size"])


def bodies(reader: StoreReader, start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    for batch in reader.frames(*QUEUE, start, end, batch_rows=70):
        found += decode(batch, ["body"])["body"].to_pylist()
    return found


def test_a_range_is_read_in_order_across_files(reader: StoreReader) -> None:
    assert reader.queue_range(*QUEUE) == (0, MESSAGES)
    assert bodies(reader, 3, 240) == [b"%d" % number * 100 for number in range(3, 240)]


def test_no_batch_spans_two_segments_or_exceeds_a_limit(reader: StoreReader) -> None:
    batches = list(reader.frames(*QUEUE, 0, MESSAGES, batch_rows=60, batch_bytes=5000))

    assert {len(batch.buffer) for batch in batches} == {65536}
    assert max(len(batch) for batch in batches) <= 60
    assert max(batch.size_bytes for batch in batches) <= 5000
    assert sum(len(batch) for batch in batches) == MESSAGES


def test_a_batch_holds_one_record_however_small_the_limit(reader: StoreReader) -> None:
    batches = list(reader.frames(*QUEUE, 0, 3, batch_bytes=1))

    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_next_offsets_count_what_a_filter_dropped(reader: StoreReader) -> None:
    batches = list(reader.frames(*QUEUE, 0, MESSAGES, select=lambda *_: np.array([7])))

    assert [batch.offsets.tolist() for batch in batches] == [[7]]
    assert batches[-1].next_offset == MESSAGES


def test_a_filter_that_drops_everything_still_advances(reader: StoreReader) -> None:
    batches = list(reader.frames(*QUEUE, 5, 100, select=lambda *_: np.empty(0, np.intp)))

    assert [(len(batch), batch.next_offset) for batch in batches] == [(0, 100)]


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, MESSAGES + 1), (10, 9), (300, 400)])
def test_offsets_out_of_range_are_refused_with_what_there_is(
    reader: StoreReader, start: int, end: int
) -> None:
    with pytest.raises(OffsetRangeError, match=f"holds offsets 0 to {MESSAGES}") as caught:
        reader.frames(*QUEUE, start, end)
    assert (caught.value.minimum, caught.value.maximum) == (0, MESSAGES)


def test_a_queue_that_never_was_is_empty(reader: StoreReader) -> None:
    assert reader.queue_range("orders", 5) == (0, 0)
    assert reader.queue_range("nothing", 0) == (0, 0)


def test_a_log_spread_over_several_directories_is_one_log(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "disk2"
    other.mkdir()
    first = list_segments(root / "commitlog")[0].path
    shutil.move(first, other / first.name)
    settings = StoreSettings.load({"storePathCommitLog": f"{root}/commitlog,{other}"})

    reader = StoreReader(root, settings)

    assert reader.log_range()[0] == 0
    assert len(bodies(reader, 0, MESSAGES)) == MESSAGES


# Where the queue ends


def test_entries_behind_the_end_of_the_log_do_not_count(root: Path) -> None:
    end = StoreReader(root).log_range()[1]
    put_entry(root, MESSAGES, end, 200)
    put_entry(root, MESSAGES + 1, end + 200, 200)

    assert StoreReader(root).queue_range(*QUEUE) == (0, MESSAGES)


def test_entries_left_from_before_a_cut_do_not_count(root: Path) -> None:
    for offset in range(MESSAGES, MESSAGES + 30):
        put_entry(root, offset, *entry(root, offset - 100))

    assert StoreReader(root).queue_range(*QUEUE) == (0, MESSAGES)


def test_an_entry_into_the_middle_of_a_record_does_not_count(root: Path) -> None:
    physical_offset, size = entry(root, 100)
    put_entry(root, MESSAGES, physical_offset + 17, size)

    assert StoreReader(root).queue_range(*QUEUE) == (0, MESSAGES)


@pytest.mark.parametrize("offset", [0, 100, MESSAGES - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("position", range(12), ids=lambda position: f"byte-{position}")
def test_a_damaged_entry_is_reported_not_skipped(root: Path, offset: int, position: int) -> None:
    per_file = stores.SMALL["mappedFileSizeConsumeQueue"] // ENTRY.itemsize
    at = offset % per_file * ENTRY.itemsize + position
    stores.flip(queue_file(root, offset // per_file), at, bits=0x81)
    reader = StoreReader(root)

    with pytest.raises(CorruptRecordError) as caught:
        bodies(reader, *reader.queue_range(*QUEUE))
    assert str(root) in str(caught.value)


@pytest.mark.parametrize("offset", [0, 100, MESSAGES - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("position", [0, 3, 4, 7, 15, 27, 35], ids=lambda at: f"byte-{at}")
def test_a_damaged_record_is_reported_not_skipped(root: Path, offset: int, position: int) -> None:
    physical_offset, _ = entry(root, offset)
    segment = CommitLog(root / "commitlog").locate(physical_offset)
    assert segment is not None
    stores.flip(segment[0].path, physical_offset - segment[0].base + position, bits=0x11)
    reader = StoreReader(root)

    with pytest.raises(CorruptRecordError, match=str(physical_offset)) as caught:
        bodies(reader, *reader.queue_range(*QUEUE))
    assert caught.value.physical_offset == physical_offset


def test_a_changed_body_is_found_on_demand(root: Path) -> None:
    physical_offset, _ = entry(root, 100)
    stores.flip(list_segments(root / "commitlog")[0].path, physical_offset + 90)
    reader = StoreReader(root)
    (unchecked,) = reader.frames(*QUEUE, 100, 101)
    (checked,) = reader.frames(*QUEUE, 100, 101, verify=True)

    decode(unchecked, ["body"])
    with pytest.raises(CorruptRecordError, match=r"checksum .* orders/broker-a/0|body checksum"):
        decode(checked, ["body"])


def test_an_entry_of_zeros_inside_a_range_is_reported(root: Path) -> None:
    put_entry(root, 100, 0, 0)
    reader = StoreReader(root)

    with pytest.raises(CorruptRecordError, match="Entry 100 of queue orders/0"):
        bodies(reader, 90, 110)


# Where the queue begins


def delete_first_segments(root: Path, count: int) -> int:
    segments = list_segments(root / "commitlog")
    for segment in segments[:count]:
        segment.path.unlink()
    return segments[count].base


def test_the_queue_begins_with_the_first_record_that_is_still_there(root: Path) -> None:
    log_start = delete_first_segments(root, 1)
    reader = StoreReader(root)

    minimum, maximum = reader.queue_range(*QUEUE)

    assert maximum == MESSAGES
    assert entry(root, minimum)[0] >= log_start > entry(root, minimum - 1)[0]
    assert bodies(reader, minimum, maximum) == [b"%d" % n * 100 for n in range(minimum, MESSAGES)]


def test_the_first_consume_queue_file_may_be_gone_as_well(root: Path) -> None:
    delete_first_segments(root, 1)
    queue_file(root).unlink()
    reader = StoreReader(root)

    minimum, maximum = reader.queue_range(*QUEUE)

    assert 100 <= minimum < maximum == MESSAGES
    assert len(bodies(reader, minimum, maximum)) == maximum - minimum


def test_a_queue_whose_records_are_all_gone_keeps_its_number(root: Path) -> None:
    log = list_segments(root / "commitlog")
    for segment in log:
        segment.path.rename(segment.path.with_name(segment_name(segment.base + 10 * segment.size)))

    assert StoreReader(root).queue_range(*QUEUE) == (MESSAGES, MESSAGES)


def test_fillers_are_not_messages(root: Path) -> None:
    for offset in range(40):
        put_entry(root, offset, 0, 0x7FFFFFFF)
    reader = StoreReader(root)

    assert reader.queue_range(*QUEUE) == (40, MESSAGES)
    assert len(bodies(reader, 40, MESSAGES)) == MESSAGES - 40
    with pytest.raises(OffsetRangeError):
        reader.frames(*QUEUE, 39, 50)


def test_a_missing_segment_in_the_middle_is_corruption(root: Path) -> None:
    first = list_segments(root / "commitlog")[0]
    beyond = list_segments(root / "commitlog")[-1]
    (root / "commitlog" / segment_name(beyond.end)).write_bytes(bytes(beyond.size))
    beyond.path.unlink()
    reader = StoreReader(root)
    assert first.size == beyond.size

    with pytest.raises(CorruptRecordError, match="no commit-log file"):
        bodies(reader, 0, MESSAGES)


# While others write


def test_a_reader_sees_messages_as_they_come(root: Path) -> None:
    reader = StoreReader(root)
    seen = [reader.queue_range(*QUEUE)[1]]

    with stores.open_rw(root) as broker:
        for number in range(120):
            broker.send("orders", b"more %d" % number)
            seen.append(reader.queue_range(*QUEUE)[1])

    assert seen == list(range(MESSAGES, MESSAGES + 121))
    assert bodies(reader, MESSAGES, MESSAGES + 120)[-1] == b"more 119"


def test_a_reader_sees_messages_expire(root: Path) -> None:
    reader = StoreReader(root)
    before = bodies(reader, 0, MESSAGES)
    frames = reader.frames(*QUEUE, 0, MESSAGES, batch_rows=10)
    first = next(frames)

    with stores.open_rw(root) as broker:
        log_start = broker.delete_before(65536)
    reader.refresh()
    minimum, maximum = reader.queue_range(*QUEUE)

    assert log_start == 65536
    assert decode(first, ["body"])["body"].to_pylist() == before[:10]
    assert 0 < minimum < maximum == MESSAGES
    with pytest.raises(OffsetRangeError, match=f"{minimum} to {MESSAGES}"):
        StoreReader(root).frames(*QUEUE, 0, 10)


def test_a_range_that_expires_while_it_is_read_is_reported(root: Path) -> None:
    reader = StoreReader(root)
    frames = reader.frames(*QUEUE, 0, MESSAGES)

    delete_first_segments(root, 1)

    with pytest.raises(OffsetRangeError, match="deleted with its commit-log file"):
        list(frames)


def test_a_topic_made_anew_is_not_taken_for_the_old_one(root: Path) -> None:
    reader = StoreReader(root)
    assert reader.queue_range(*QUEUE) == (0, MESSAGES)

    with stores.open_rw(root) as broker:
        broker.delete_topic("orders")
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"new")

    assert reader.queue_range(*QUEUE) == (MESSAGES, MESSAGES + 1)
    assert bodies(reader, MESSAGES, MESSAGES + 1) == [b"new"]


# Stores that were left unclean


def test_entries_that_a_crash_lost_are_read_from_the_log(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    expected = fixtures.expected("crash-5.5")["topics"]["Single"]["queues"]["0"]
    last = list_segments(root / "consumequeue" / "Single" / "0")[-1].path
    last.unlink()
    shutil.rmtree(root / "consumequeue" / "Four" / "2")
    before = stores.snapshot(root)

    reader = StoreReader(root)

    assert reader.recovery is not None
    assert reader.queue_range("Single", 0) == (0, expected["maxOffset"])
    assert reader.queue_range("Four", 2) == (0, 96)
    assert sum(len(batch) for batch in reader.frames("Single", 0, 0, expected["maxOffset"])) == 386
    assert stores.snapshot(root) == before


def test_a_torn_record_at_the_end_of_a_crashed_log_is_not_served(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    end = fixtures.expected("crash-5.5")["commitLogMaxOffset"]
    last = list_segments(root / "commitlog")[-2].path
    data = bytearray(last.read_bytes())
    data[end % 65536 - 280 : end % 65536] = bytes(280)
    last.write_bytes(data)

    reader = StoreReader(root)

    held = sum(reader.queue_range(*queue)[1] for queue in reader.queues())
    assert held == 770
    assert reader.log_range()[1] < end


def test_damage_with_whole_messages_behind_it_is_reported_not_cut(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    expected = fixtures.expected("crash-5.5")["topics"]["Single"]["queues"]["0"]["messages"][100]
    segment = list_segments(root / "commitlog")[expected["commitLogOffset"] // 65536]
    stores.flip(segment.path, expected["commitLogOffset"] % 65536 + 90)
    reader = StoreReader(root)

    assert reader.queue_range("Single", 0) == (0, 386)
    (before,) = reader.frames("Single", 0, 99, 100)
    (damaged,) = reader.frames("Single", 0, 100, 101)
    (behind,) = reader.frames("Single", 0, 101, 102)
    assert len(decode(before, ["body"])) == len(decode(behind, ["body"])) == 1
    with pytest.raises(CorruptRecordError, match=str(expected["commitLogOffset"])):
        decode(damaged, ["body"])
    with pytest.raises(CorruptRecordError, match="whole messages lie behind it"):
        reader.lookup("Single", "k1", 64)


def test_an_unclean_store_is_checked_until_it_is_closed_again(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    reader = StoreReader(root)
    (unclean,) = reader.frames("Four", 0, 0, 5)

    stores.open_rw(root).close()
    reader.refresh()
    (clean,) = reader.frames("Four", 0, 0, 5)

    assert (unclean.verify, clean.verify) == (True, False)
    assert reader.recovery is None


def test_queues_that_were_removed_are_rebuilt_from_the_log(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")

    reader = StoreReader(root)

    assert reader.queues() == [QUEUE]
    assert reader.queue_range(*QUEUE) == (0, MESSAGES)
    assert len(bodies(reader, 0, MESSAGES)) == MESSAGES


def test_the_index_of_a_crashed_store_is_made_up_from_the_log(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    shutil.rmtree(root / "index")
    query = fixtures.expected("crash-5.5")["queries"]["byKey"][0]

    with stores.open_r(root) as broker:
        found = broker.query(query["topic"], query["key"])["offsetMsgId"].to_pylist()

    assert found == query["msgIds"]


def test_messages_in_a_file_that_was_made_meanwhile_are_seen(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"first")
        reader = StoreReader(tmp_path / "store")
        before = reader.queue_range(*QUEUE)
        for _ in range(3):
            broker.send("orders", bytes(30_000))  # the third is in a new commit-log file

        assert before == (0, 1)
        assert reader.queue_range(*QUEUE) == (0, 4)
        assert bodies(reader, 3, 4) == [bytes(30_000)]


def test_messages_in_a_file_that_was_made_anew_are_seen(root: Path) -> None:
    last = list_segments(root / "commitlog")[-1]
    ahead = root / "commitlog" / segment_name(last.end)
    ahead.write_bytes(bytes(last.size))
    reader = StoreReader(root)
    assert reader.queue_range(*QUEUE) == (0, MESSAGES)
    assert reader.log.locate(last.end) is not None
    ahead.unlink()  # what is mapped now is no longer the store's

    with stores.open_rw(root) as broker:
        for _ in range(2):
            broker.send("orders", bytes(30_000))

    assert reader.queue_range(*QUEUE) == (0, MESSAGES + 2)
    assert bodies(reader, MESSAGES, MESSAGES + 2) == [bytes(30_000)] * 2
