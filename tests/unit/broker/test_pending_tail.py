"""Whatever lives in a store knows its pending tail: what is in the log and not yet dispatched.

Each line of `LOOKS` is somebody who reads; each store of `KINDS` has the same messages, six of them
pending, under a writer that lives, holds the lock, was killed, or was killed while it wrote.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import SqlFilter
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.dump import Dump
from broker_core.broker.topics import PERM_DEFAULT
from broker_core.cli.stats import counted
from broker_core.codec.record import Record
from broker_core.errors import MessageNotFoundError
from broker_core.filter.pipeline import MessageFilter
from broker_core.store.check.store import check
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import LogicalOffset, OffsetRange
from tests.kit.pending import marker, pending_records, require_pending, tear
from tests.kit.stores import open_r, snapshot
from tests.kit.transactions import SMALL_FILES, START_MS, ManualClock

SETTLED, PENDING = 4, 6
ALL = [b"m%d" % number for number in range(SETTLED + PENDING)]
KINDS = ("open", "held", "killed", "torn", "copied", "copied-anew")
PROBLEMS = {
    "torn": ["a writer died; recovery will take back an append at physical offset"],
    # Its marker is not believed, so recovery compares the queues with the log.
    "copied-anew": ["recovery keeps 2 entries and adds 3"] * 2 + ["message 2 at"] * 2,
}


def opened(root: Path, clock: ManualClock, *, hold: bool = False) -> EmbeddedBroker:
    """A broker over a store whose clock is a test's; with `hold` it has the lock for life."""
    writer = StoreWriter.open(
        root,
        StoreSettings.load(SMALL_FILES),
        create=True,
        options=SessionOptions(clock_ms=clock),
        hold=hold,
    )
    return EmbeddedBroker(str(root), StoreReader(root, writer.settings), writer, clock_ms=clock)


def send(broker: EmbeddedBroker, number: int, clock: ManualClock) -> None:
    clock.now_ms = START_MS + number
    broker.send(
        "t",
        b"m%d" % number,
        tags="even" if number % 2 == 0 else "odd",
        keys=["all", f"k{number}"],
        properties={"price": str(number)},
        queue_id=number % 2,
    )


def fill(broker: EmbeddedBroker, clock: ManualClock) -> None:
    """Ten messages, of which the first four are dispatched: at a flush."""
    broker.create_topic("t", queues=2)
    for number in range(SETTLED):
        send(broker, number, clock)
    broker.writer.flush()
    assert pending_records(broker.reader.root) == 0
    for number in range(SETTLED, SETTLED + PENDING):
        send(broker, number, clock)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.kit.transactions import ManualClock
from tests.unit.broker import test_pending_tail as here

clock = ManualClock()
here.fill(here.opened(Path(sys.argv[1]), clock), clock)
os.kill(os.getpid(), signal.SIGKILL)
"""


def make(kind: str, root: Path) -> EmbeddedBroker | None:
    """A store of a kind, and its writer if that lives."""
    clock = ManualClock()
    if kind == "killed":
        ended = subprocess.run([sys.executable, "-c", KILLED, str(root)], check=False)
        assert ended.returncode < 0
        return None
    writer = opened(root, clock, hold=kind == "held")
    fill(writer, clock)
    if kind == "torn":
        whole = [b"torn %d" % number for number in range(3)]
        messages = writer.door.messages(torn_messages(whole))
        writer.append(messages)
        tear(root)
    if kind.startswith("copied"):
        shutil.copytree(root, root.with_name("moved"), copy_function=shutil.copy2)
        writer.close()
        shutil.rmtree(root)
        root.with_name("moved").rename(root)
        if kind == "copied-anew":
            os.utime(root / "lock")
        return None
    return writer


def torn_messages(bodies: list[bytes]) -> Any:
    import numpy as np
    import pyarrow as pa

    from broker_core.codec.message_batch import MessageBatch
    from broker_core.codec.properties.join import join_properties

    count = len(bodies)
    pairs = [("KEYS", pa.array(["all"] * count)), ("UNIQ_KEY", pa.array(["torn"] * count))]
    return MessageBatch(
        topics=["t"],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=np.zeros(count, dtype=np.int32),
        bodies=pa.array(bodies, type=pa.binary()),
        properties=join_properties(pairs, count),
        born_timestamps=START_MS,
    )


@pytest.fixture(scope="module", params=KINDS)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    root = tmp_path_factory.mktemp(request.param) / "store"
    writer = make(request.param, root)
    require_pending(root, PENDING)
    yield root
    if writer is not None and request.param != "torn":
        writer.close()


def bodies(broker: EmbeddedBroker, tags: str | None = None, sql: str | None = None) -> list[bytes]:
    queues = [broker.read("t", queue_id, tags=tags, sql=sql) for queue_id in range(2)]
    found = [queue["body"].to_pylist() for queue in queues]
    return sorted(body for queue in found for body in queue)


def newest(broker: EmbeddedBroker) -> Record:
    (entry,) = broker.reader.entries("t", 1, 4, 5)
    return broker.reader.record_at(int(entry["physical_offset"]))


def offsets(broker: EmbeddedBroker) -> None:
    assert broker.offsets("t") == {broker.catalog.ref("t", n): (0, 5) for n in range(2)}


def read(broker: EmbeddedBroker) -> None:
    assert bodies(broker) == ALL


def read_by_tag(broker: EmbeddedBroker) -> None:
    assert bodies(broker, tags="odd") == ALL[1::2]


def read_by_sql(broker: EmbeddedBroker) -> None:
    assert bodies(broker, sql="price >= 3") == ALL[3:]


def pull_the_newest(broker: EmbeddedBroker) -> None:
    last = OffsetRange(broker.catalog.ref("t", 1), LogicalOffset(4), LogicalOffset(5))
    assert [len(frames) for frames in broker.pull(last)] == [1]


def query_by_key(broker: EmbeddedBroker) -> None:
    assert broker.query("t", "k9")["body"].to_pylist() == ALL[9:]
    assert broker.query("t", "all", 3)["body"].to_pylist() == ALL[7:]
    assert broker.query("t", "all")["body"].to_pylist() == ALL


def query_beyond_the_index(broker: EmbeddedBroker) -> None:
    assert broker.query("t", "all", 1000)["body"].to_pylist() == ALL


def message_by_id(broker: EmbeddedBroker) -> None:
    record = newest(broker)
    for message_id in (record.msg_id, record.offset_id):
        assert broker.message(message_id)["body"].to_pylist() == ALL[9:]


def no_message_behind_the_end(broker: EmbeddedBroker) -> None:
    """The whole records of an append that does not count have no ids."""
    tail = marker(broker.reader.root)
    if tail.pending_end == broker.reader.log_range()[1]:
        return
    record = broker.reader.record_at(tail.log_end)
    assert record.body == b"torn 0"
    for message_id in (record.offset_id, "torn"):
        with pytest.raises(MessageNotFoundError):
            broker.message(message_id)


def offset_by_time(broker: EmbeddedBroker) -> None:
    found = [broker.offset_at("t", 0, START_MS + number) for number in range(4, 11)]
    assert found == [2, 3, 3, 4, 4, 5, 5]


def topics(broker: EmbeddedBroker) -> None:
    assert broker.topics() == ["t"]
    assert broker.describe("t").perm == PERM_DEFAULT
    assert broker.reader.queues() == [("t", 0), ("t", 1)]


def stats(broker: EmbeddedBroker) -> None:
    found = counted(broker)
    last = newest(broker).physical_offset
    end = last + len(broker.reader.log.record_bytes(last))
    assert (found["messages"], found["messagesEver"]) == (10, 10)
    assert found["commitLogMaxOffset"] == end


def dump(broker: EmbeddedBroker) -> None:
    whole = Dump(broker.reader, broker.catalog, lambda _done, _total: None)
    found = [
        (topic.name, queue.queue_id, queue.minimum, queue.maximum, len(list(queue.records)))
        for topic in whole.topics()
        for queue in topic.queues
    ]
    assert found == [("t", 0, 0, 5, 5), ("t", 1, 0, 5, 5)]


def whole_log(broker: EmbeddedBroker) -> None:
    """What deleted topics are found by."""
    assert sum(len(requests.sizes) for requests in broker.reader.scan_log()) == len(ALL)


def registered_filter(broker: EmbeddedBroker) -> None:
    wanted = MessageFilter(sql=SqlFilter("price = 9"))
    whole = OffsetRange(broker.catalog.ref("t", 1), LogicalOffset(0), LogicalOffset(5))
    assert sum(len(frames) for frames in broker.pull(whole, message_filter=wanted)) == 1


LOOKS: list[Callable[[EmbeddedBroker], None]] = [
    offsets,
    read,
    read_by_tag,
    read_by_sql,
    pull_the_newest,
    query_by_key,
    query_beyond_the_index,
    message_by_id,
    no_message_behind_the_end,
    offset_by_time,
    topics,
    stats,
    dump,
    whole_log,
    registered_filter,
]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
def test_who_reads_sees_what_is_pending(
    store: Path, look: Callable[[EmbeddedBroker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(store)
    really = os.open

    def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return really(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    with open_r(store) as broker:
        look(broker)
    assert snapshot(store) == before


def test_check_finds_nothing_wrong_but_what_does_not_count(store: Path) -> None:
    before = snapshot(store)
    found = [problem.what for problem in check(store)]
    expected = PROBLEMS.get(store.parent.name.rstrip("0123456789"), [])
    assert len(found) == len(expected)
    assert all(what.startswith(words) for what, words in zip(found, expected, strict=True))
    assert snapshot(store) == before
