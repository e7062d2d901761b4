from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.codec.record import decode_record
from broker_core.errors import CorruptRecordError
from broker_core.store.check.store import check
from broker_core.store.index.file import IndexHeader, list_index_files
from broker_core.store.reader import StoreReader
from broker_core.store.recovery.checkpoint import Checkpoint, read_checkpoint
from broker_core.store.recovery.plan import RecoveryKind, plan
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit import fixtures
from tests.kit.batches import (
    SMALL,
    QuickFiles,
    batch,
    index_bytes,
    named,
    rebuilt_index,
    ticking,
    view,
)

pytestmark = pytest.mark.usefixtures("either_way")

OTHER_BOOT = bytes(range(16))


def recover(root: Path) -> None:
    """Open and close a store as its next writer would."""
    StoreWriter.open(root, StoreSettings(), files=QuickFiles()).close()


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file of log, queues and index; index files by number, for their names are times."""
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for kind in ("commitlog", "consumequeue")
        for path in sorted((root / kind).rglob("*"))
        if path.is_file()
    }
    return found | {f"index {n}": data for n, data in enumerate(index_bytes(root))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 60 messages in several files of each kind, as a dead writer leaves it."""
    root = tmp_path / "store"
    store = StoreWriter.open(root, SMALL, create=True, options=SessionOptions(clock_ms=ticking()))
    for start in range(0, 60, 6):
        store.append(batch(named(6, start), first=start))
    with store.turn("dispatch what is pending"):
        pass
    store._session.close()
    return root


def lose_power(root: Path) -> None:
    """Let the marker be of another boot: nothing but what was flushed can be believed."""
    page = bytearray((root / "checkpoint").read_bytes())
    page[2048:] = bytes(2048)
    (root / "checkpoint").write_bytes(page)


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def spoil_body_before(root: Path, last: int) -> None:
    """Change a byte in the body of the record before the last one, which has the same size."""
    size = log_end(root) - last
    edit(last_segment(root), lambda data: data.__setitem__((last - size) % 4096 + 90, 0xEE))


def last_segment(root: Path) -> Path:
    return max((root / "commitlog").iterdir())


def log_end(root: Path) -> int:
    return plan(root, SMALL).log_end


class TestFixtures:
    @pytest.mark.parametrize("name", fixtures.NAMES)
    def test_recovered_store_is_right_and_its_files_unchanged(
        self, name: str, tmp_path: Path
    ) -> None:
        root = fixtures.extract(name, tmp_path)
        before = snapshot(root)

        recover(root)

        assert check(root) == []
        after = snapshot(root)
        # A pre-allocated segment behind the log's end goes, as with Apache's broker.
        assert {path: data for path, data in before.items() if data.strip(b"\0")} == after
        assert not (root / "abort").exists()

    @pytest.mark.parametrize("name", fixtures.NAMES)
    def test_planning_changes_nothing(self, name: str, tmp_path: Path) -> None:
        root = fixtures.extract(name, tmp_path)
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

        plan(root, StoreSettings().agreeing_with(root))

        assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def test_crashed_store_ends_where_apaches_recovery_ended(self, tmp_path: Path) -> None:
        root = fixtures.extract("crash-5.5", tmp_path)

        found = plan(root, StoreSettings().agreeing_with(root))

        assert found.kind is RecoveryKind.ABNORMAL
        assert (found.scan_start, found.log_end) == (0, 395_529)

    @pytest.mark.parametrize("name", ["crash-5.5", "basic-5.5", "basic-4.9"])
    def test_recovered_content_is_what_apaches_client_read(self, name: str, tmp_path: Path) -> None:
        root = fixtures.extract(name, tmp_path)
        recover(root)
        reader = StoreReader(root)

        for topic, described in fixtures.expected(name)["topics"].items():
            for queue_id, queue in described["queues"].items():
                low, high = reader.queue_range(topic, int(queue_id))
                assert (low, high) == (queue["minOffset"], queue["maxOffset"])
                found = [
                    decode_record(raw).physical_offset
                    for frames in reader.frames(topic, int(queue_id), low, high, verify=True)
                    for raw in frames.records()
                ]
                assert found == [message["commitLogOffset"] for message in queue["messages"]]

    @pytest.mark.parametrize("name", ["basic-5.5", "crash-5.5"])
    def test_lost_consume_queues_and_index_are_rebuilt_to_the_byte(
        self, name: str, tmp_path: Path
    ) -> None:
        root = fixtures.extract(name, tmp_path)
        recover(root)
        before = snapshot(root)
        shutil.rmtree(root / "consumequeue")
        edit_checkpoint(root, Checkpoint())
        (root / "abort").write_text("1")
        for path in list_index_files(root / "index")[1:]:
            path.unlink()

        given = StoreSettings.load(dict(fixtures.SIZES))
        StoreWriter.open(root, given, files=QuickFiles()).close()

        assert snapshot(root) == before

    def test_we_append_to_apaches_store(self, tmp_path: Path) -> None:
        root = fixtures.extract("basic-5.5", tmp_path)
        maxima = {
            (topic, int(queue_id)): queue["maxOffset"]
            for topic, described in fixtures.expected("basic-5.5")["topics"].items()
            for queue_id, queue in described["queues"].items()
        }
        topic, queue_id = max(maxima, key=lambda queue: (maxima[queue], queue))

        with StoreWriter.open(root, StoreSettings()) as store:
            new = replace(batch(["a"], topic=topic), queue_ids=batch(["a"]).queue_ids + queue_id)
            placed = store.append(new)

        assert placed.queue_offsets.tolist() == [maxima[topic, queue_id]]
        assert check(root) == []


def edit_checkpoint(root: Path, content: Checkpoint) -> None:
    edit(root / "checkpoint", lambda page: page.__setitem__(slice(0, 48), content.encode()))
    lose_power(root)


class TestTornTail:
    @pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "abort"])
    @pytest.mark.parametrize("kept", [1, 5, 40, 90, 150])
    def test_torn_record_at_the_end_is_cut(self, root: Path, is_clean: bool, kept: int) -> None:
        """Half a record that no queue knows, as a dying machine leaves it."""
        recover(root)
        end = log_end(root)
        before = view(root)
        segment = last_segment(root)
        position = end % 4096
        whole = segment.read_bytes()[:200]
        edit(segment, lambda data: data.__setitem__(slice(position, position + kept), whole[:kept]))
        lose_power(root)
        if not is_clean:
            (root / "abort").write_text("1")

        recover(root)

        assert log_end(root) == end
        assert segment.read_bytes()[position:] == bytes(4096 - position)
        assert view(root) == before
        assert check(root) == []

    @pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "abort"])
    def test_last_record_that_was_torn_is_cut_with_its_entry(
        self, root: Path, is_clean: bool, tmp_path: Path
    ) -> None:
        recover(root)
        end = log_end(root)
        last = plan(root, SMALL).last_start
        edit(
            last_segment(root),
            lambda data: data.__setitem__(
                slice(last % 4096 + 90, end % 4096), bytes(end - last - 90)
            ),
        )
        lose_power(root)
        if not is_clean:
            (root / "abort").write_text("1")

        recover(root)

        assert log_end(root) == last
        assert view(root)["T", 1] == [body.encode() for body in named(60)[1:58:2]]
        assert view(root)["T", 0] == [body.encode() for body in named(60)[0::2]]
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            store.append(batch(["again"], first=59))
        assert view(root)["T", 1][-1] == b"again"

    def test_stale_records_behind_a_cut_never_come_back(self, root: Path) -> None:
        """Apache leaves bytes behind a cut; records of one size make them line up again."""
        recover(root)
        end = log_end(root)
        last = plan(root, SMALL).last_start
        lose_power(root)
        (root / "abort").write_text("1")
        spoil_body_before(root, last)

        recover(root)

        segment = last_segment(root).read_bytes()
        assert segment[log_end(root) % 4096 :] == bytes(4096 - log_end(root) % 4096)
        assert log_end(root) < last < end
        assert check(root) == []

    def test_record_that_lost_some_of_its_properties_is_cut(self, root: Path) -> None:
        """Its body is whole, so no checksum tells: the zeros do."""
        recover(root)
        end = log_end(root)
        width = 512 - (end % 512 + 88 + 10)
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            store.append(batch(["x" * (width % 512)], queues=1))
        sector = log_end(root) // 512 * 512 % 4096
        edit(
            last_segment(root),
            lambda data: data.__setitem__(slice(sector, None), bytes(4096 - sector)),
        )
        lose_power(root)
        (root / "abort").write_text("1")

        recover(root)

        assert log_end(root) == end
        assert check(root) == []

    def test_damage_inside_a_cleanly_closed_log_is_reported_not_cut(self, root: Path) -> None:
        recover(root)
        last = plan(root, SMALL).last_start
        before = snapshot(root)
        spoil_body_before(root, last)
        damaged = snapshot(root)
        lose_power(root)

        with pytest.raises(CorruptRecordError, match="is damaged at physical offset") as error:
            recover(root)

        assert "create a file named `abort`" in str(error.value)
        assert snapshot(root) == damaged != before


class TestQueues:
    def test_queue_that_lags_gets_its_entries(self, root: Path, tmp_path: Path) -> None:
        before = snapshot(root)
        for path in sorted((root / "consumequeue/T/0").iterdir())[1:]:
            path.unlink()
        edit(
            root / "consumequeue/T/1/00000000000000000400",
            lambda d: d.__setitem__(slice(40, None), bytes(160)),
        )
        lose_power(root)

        recover(root)

        assert snapshot(root) == before

    def test_queue_with_a_hole_is_filled(self, root: Path) -> None:
        before = snapshot(root)
        edit(
            root / "consumequeue/T/0/00000000000000000200",
            lambda d: d.__setitem__(slice(60, 100), bytes(40)),
        )
        lose_power(root)

        recover(root)

        assert snapshot(root) == before

    def test_entries_ahead_of_the_log_are_cut(self, root: Path) -> None:
        last = plan(root, SMALL).last_start
        edit(
            last_segment(root),
            lambda d: d.__setitem__(slice(last % 4096, None), bytes(4096 - last % 4096)),
        )
        lose_power(root)

        recover(root)

        assert view(root)["T", 1] == [body.encode() for body in named(60)[1:58:2]]
        assert check(root) == []

    def test_queue_begins_behind_deleted_segments_with_fillers(self, root: Path) -> None:
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            store.delete_before(8192)
        before = view(root)
        shutil.rmtree(root / "consumequeue")
        lose_power(root)
        (root / "abort").write_text("1")

        recover(root)

        assert view(root) == before
        assert check(root) == []
        reader = StoreReader(root)
        low, high = reader.queue_range("T", 0)
        assert (low > 0, high) == (True, 30)

    def test_recreated_topic_is_recovered_with_its_last_incarnation(self, root: Path) -> None:
        """Without our note of the deletion, as after a deletion by Apache's broker."""
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            store.delete_queues("T")
            (root / "config/topicDeletions.json").unlink()
            store.append(batch(["new0", "new1", "new2"]))
        shutil.rmtree(root / "consumequeue")
        edit_checkpoint(root, Checkpoint())
        (root / "abort").write_text("1")

        recover(root)

        assert view(root) == {("T", 0): [b"new0", b"new2"], ("T", 1): [b"new1"]}
        assert check(root) == []

    def test_unknown_topic_is_not_resurrected_where_the_configuration_tells(
        self, root: Path
    ) -> None:
        (root / "config/topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
        shutil.rmtree(root / "consumequeue")
        edit_checkpoint(root, Checkpoint())
        (root / "abort").write_text("1")

        recover(root)

        assert view(root) == {}

    def test_log_without_files_leaves_no_queue(self, root: Path) -> None:
        shutil.rmtree(root / "commitlog")
        lose_power(root)

        recover(root)

        assert view(root) == {}
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            assert store.append(batch(["a"])).queue_offsets.tolist() == [0]


class TestMarker:
    def test_other_boot_makes_a_full_recovery(self, root: Path) -> None:
        assert plan(root, SMALL).kind is RecoveryKind.NONE
        assert plan(root, SMALL, boot=OTHER_BOOT).kind is RecoveryKind.ABNORMAL
        assert plan(root, SMALL, boot=bytes(16)).kind is RecoveryKind.ABNORMAL

    def test_foreign_start_makes_a_full_recovery(self, root: Path) -> None:
        (root / "lock").write_bytes(b"lock")

        assert plan(root, SMALL).kind is RecoveryKind.ABNORMAL
        (root / "abort").unlink()
        assert plan(root, SMALL).kind is RecoveryKind.NORMAL

    def test_data_behind_the_marked_end_is_noticed(self, root: Path) -> None:
        end = log_end(root) % 4096
        edit(last_segment(root), lambda data: data.__setitem__(end, 1))

        assert plan(root, SMALL).kind is RecoveryKind.ABNORMAL

    def test_marked_end_without_its_record_is_noticed(self, root: Path) -> None:
        last = plan(root, SMALL).last_start % 4096
        edit(last_segment(root), lambda data: data.__setitem__(last + 5, 0))

        assert plan(root, SMALL).kind is RecoveryKind.ABNORMAL

    def test_queue_that_is_ahead_of_a_believed_marker_is_repaired_on_append(
        self, root: Path
    ) -> None:
        """As in a copy of a live store whose files are of different moments."""
        path = root / "consumequeue/T/0/00000000000000000600"
        edit_or_make = path.read_bytes() if path.exists() else bytes(200)
        path.write_bytes(
            bytes.fromhex("00000000000f4240000000a60000000000000000") + edit_or_make[20:]
        )

        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            placed = store.append(batch(["a"], queues=1))

        assert placed.queue_offsets.tolist() == [30]
        assert check(root) == []


class TestIndex:
    def test_index_that_was_not_flushed_is_made_anew(self, root: Path, tmp_path: Path) -> None:
        before = index_bytes(root)
        paths = list_index_files(root / "index")
        for path in paths[1:]:
            edit(path, lambda data: data.__setitem__(slice(0, 2000), b"\xff" * len(data[:2000])))
        lose_power(root)

        StoreWriter.open(root, SMALL_GIVEN, files=QuickFiles()).close()

        assert index_bytes(root) == before == rebuilt_index(root, tmp_path / "again", SMALL)

    def test_kept_files_are_not_touched_and_split_records_go_on(
        self, root: Path, tmp_path: Path
    ) -> None:
        with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
            store.flush()
        flushed = read_checkpoint(root / "checkpoint").index_msg_timestamp
        paths = list_index_files(root / "index")
        headers = [IndexHeader.decode(path.read_bytes()) for path in paths]
        assert flushed == headers[-2].end_timestamp
        first = paths[0].stat().st_mtime_ns
        lose_power(root)
        (root / "abort").write_text("1")

        recover(root)

        assert paths[0].stat().st_mtime_ns == first
        assert index_bytes(root) == rebuilt_index(root, tmp_path / "again", SMALL)

    def test_disabled_index_is_left_alone(self, tmp_path: Path) -> None:
        root = tmp_path / "store"
        settings = replace(SMALL, index_enabled=False)
        with StoreWriter.open(root, settings, create=True, files=QuickFiles()) as store:
            store.append(batch(named(30)))

        lose_power(root)
        StoreWriter.open(root, settings).close()

        assert list_index_files(root / "index") == []


SMALL_GIVEN = StoreSettings.load(
    {
        "mappedFileSizeCommitLog": 4096,
        "mappedFileSizeConsumeQueue": 200,
        "maxHashSlotNum": 50,
        "maxIndexNum": 40,
    }
)


def test_a_writer_rebuilds_removed_consume_queues_of_a_store_that_was_closed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with open_broker(f"file:{store}", mode="rw", create=True) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(3):
            broker.send("orders", b"%d" % number)
    shutil.rmtree(store / "consumequeue")

    with open_broker(f"file:{store}", mode="rw") as broker:
        sent = broker.send("orders", b"3")
        bodies = broker.read("orders")["body"].to_pylist()

    assert sent.queue_offset == 3
    assert bodies == [b"0", b"1", b"2", b"3"]
