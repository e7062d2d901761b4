"""Following a queue: what arrives comes from memory, and is what the files hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from broker_core.broker.query import as_frames
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import Record
from broker_core.errors import MessageNotFoundError, OffsetRangeError, RequestError
from broker_core.service import arrival_notifier
from broker_core.service.arrival_notifier import ArrivalNotifier, ArrivedRecords
from broker_core.service.auth.user_rights import ANYONE, Right, Rule, UserIdentity
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.core import read
from broker_core.service.core.read import ReadHandlers
from broker_core.service.core.rpc import Call
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.frames import unpack, unpack_columns
from broker_core.wire.core.methods import Limits
from tests.contract.test_messages import outgoing
from tests.kit.served import SMALL_FILES

QUEUE = ("t", 0)


class Follower:
    """A call that never ends by itself."""

    identity: UserIdentity = ANYONE
    is_active = True
    recheck_s = 1.0

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def require_still(self) -> None:
        pass

    def when_over(self, callback: object) -> None:
        del callback


@pytest.fixture(params=[False, True], ids=["direct", "pooled"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerPool]:
    settings = StoreSettings.load(SMALL_FILES)
    opened = BrokerPool.open(tmp_path / "store", settings, create=True, is_pooled=request.param)
    with opened.broker() as broker:
        broker.create_topic("t", queues=2)
    yield opened
    opened.close()


def send(pool: BrokerPool, *bodies: bytes, queue_id: int = 0) -> None:
    with pool.broker() as broker:
        broker.append(outgoing(*bodies, topic="t", queue_id=queue_id))


def pull(pool: BrokerPool, *, chunk_bytes: int = 4096, **more: Any) -> Iterator[bytes]:
    request = pb.Pull(topic="t", broker_name="broker-a", queue_id=0)
    request.columns.extend(more.pop("columns", ()))
    for name, value in more.items():
        setattr(request, name, value)
    reading = ReadHandlers(pool, Limits(4096, chunk_bytes, 1 << 20))
    return reading.pull(request, cast("Call", Follower()))


def records(chunk: bytes) -> tuple[list[int], bytes, int]:
    found = unpack(chunk)
    return found.offsets.tolist(), found.records.tobytes(), found.next_offset


def test_what_arrives_is_what_the_files_hold(pool: BrokerPool) -> None:
    send(pool, b"before")
    followed = pull(pool, follow=True)
    first = next(followed)
    assert not pool.arrivals.arrived(QUEUE, 1, 1 << 20)  # it came from the files

    send(pool, b"one", b"two")
    send(pool, b"other", queue_id=1)
    send(pool, b"three")
    assert len(pool.arrivals.arrived(QUEUE, 1, 1 << 20)) == 2
    chunks = [first, next(followed)]

    (whole,) = pull(pool, start=0, end=4)
    offsets, data, end = records(whole)
    parts = [records(chunk) for chunk in chunks]
    assert [offset for part in parts for offset in part[0]] == offsets == [0, 1, 2, 3]
    assert b"".join(part[1] for part in parts) == data
    assert [part[2] for part in parts] == [1, end]  # what lay there travels together


@pytest.mark.parametrize("more", [{"verify": True}, {"chunk_bytes": 200}], ids=str)
def test_what_memory_can_not_give_comes_from_the_files(
    pool: BrokerPool, more: dict[str, bool]
) -> None:
    followed = pull(pool, follow=True, **more)
    send(pool, b"a")
    chunks = [next(followed)]
    send(pool, b"b" * 40, b"c" * 40)
    while records(chunks[-1])[2] < 3:
        chunks.append(next(followed))

    assert [offset for chunk in chunks for offset in records(chunk)[0]] == [0, 1, 2]


def test_a_follower_that_is_behind_reads_files_until_it_has_caught_up(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival_notifier, "KEPT_ARRIVALS", 2)
    followed = pull(pool, follow=True)
    send(pool, b"0")
    next(followed)
    for number in range(1, 6):
        send(pool, b"%d" % number)

    seen: list[int] = []
    while len(seen) < 5:
        seen += records(next(followed))[0]

    assert seen == [1, 2, 3, 4, 5]


def test_a_topic_made_anew_is_followed_from_where_the_old_one_ended(pool: BrokerPool) -> None:
    followed = pull(pool, follow=True)
    send(pool, b"0", b"1")
    next(followed)
    with pool.broker() as broker:
        broker.delete_topic("t")
        broker.create_topic("t", queues=2)
    send(pool, b"new")

    assert records(next(followed))[0] == [2]
    with pytest.raises(OffsetRangeError, match="holds offsets 2 to 3, but 0 to 3 was asked for"):
        next(pull(pool, follow=True))


def test_a_follower_that_finds_nothing_may_not_ask_for_too_many_columns(pool: BrokerPool) -> None:
    request = pb.Pull(topic="t", broker_name="broker-a", follow=True, columns=["body"] * 257)
    reading = ReadHandlers(pool, Limits())

    with pytest.raises(RequestError, match="257 columns"):
        next(reading.pull(request, cast("Call", Follower())))


def test_a_queue_of_another_broker_is_refused(pool: BrokerPool) -> None:
    with pool.arrivals.follow(QUEUE):
        send(pool, b"0")
        followed = pull(pool, follow=True, broker_name="broker-b")

        with pytest.raises(RequestError, match="There is no queue"):
            next(followed)


@pytest.mark.parametrize(
    "named", [[2], [0, 0], [-1], range(100_000)], ids=["2", "0 0", "-1", "many"]
)
def test_only_queues_of_the_topic_are_awaited_and_each_once(
    pool: BrokerPool, named: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = ReadHandlers(pool, Limits(4096, 4096, 1 << 20))
    monkeypatch.setattr(pool.arrivals, "watch", lambda keys: pytest.fail(f"watched {len(keys)}"))
    queues = [pb.QueueOffset(queue_id=queue_id) for queue_id in named]

    with pytest.raises(RequestError, match=f"{len(named)} queues of topic t .* but it has 2"):
        reading.wait(pb.Await(topic="t", queues=queues), cast("Call", Follower()))


def test_messages_with_a_key_are_read_as_they_are_sent(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool.broker() as broker:
        for number in range(50):
            broker.send("t", b"%04d" % number * 250, keys="k", queue_id=0)
    made: list[int] = []

    def counted(records: Sequence[Record], reader: StoreReader) -> FrameBatch:
        made.append(len(records))
        return as_frames(records, reader)

    monkeypatch.setattr(read, "as_frames", counted)
    reading = ReadHandlers(pool, Limits(4096, 4096, 1 << 20))
    wanted = pb.Query(topic="t", key="k", limit=2**31 - 1)
    chunks = reading.query(wanted, cast("Call", Follower()))

    first = unpack(next(chunks))
    assert sum(made) < 5
    rest = [unpack(chunk) for chunk in chunks]
    assert [at for chunk in (first, *rest) for at in chunk.offsets.tolist()] == list(range(50))
    assert sum(made) == 50
    assert max(made) < 5


def test_a_key_that_no_message_has_is_answered_with_none(pool: BrokerPool) -> None:
    reading = ReadHandlers(pool, Limits(4096, 4096, 1 << 20))

    [chunk] = reading.query(pb.Query(topic="t", key="k", limit=64), cast("Call", Follower()))

    assert not len(unpack(chunk).sizes)


@pytest.mark.parametrize(
    "columns",
    [["body", "topic", "body"], [f"property:{n}" for n in range(257)], ["body", "nope"]],
    ids=["twice", "many", "unknown"],
)
@pytest.mark.parametrize("follow", [False, True])
def test_columns_are_few_and_each_is_named_once(
    pool: BrokerPool, columns: list[str], follow: bool
) -> None:
    with pytest.raises(RequestError, match=r"each once|no column"):
        next(pull(pool, columns=columns, follow=follow))


def test_many_columns_are_decoded_for_few_rows_at_a_time(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(pool, *[b"%d" % number for number in range(50)])
    monkeypatch.setattr(read, "MOST_VALUES", 60)
    wanted = [f"property:{number}" for number in range(20)]

    chunks = list(pull(pool, columns=wanted, end=50))

    assert [unpack_columns(unpack(chunk), wanted).num_rows for chunk in chunks[:-1]] == [3] * 16


def test_an_id_that_may_not_be_read_is_told_as_one_that_is_not_there(pool: BrokerPool) -> None:
    stranger = UserIdentity("stranger", (Rule("other", frozenset(Right)),))
    reading = ReadHandlers(pool, Limits(4096, 4096, 1 << 20))
    with pool.broker() as broker:
        held = broker.send("t", b"secret")
    told = []

    for name in (held.offset_msg_id, held.offset_msg_id[:-1] + "F", held.msg_id, "k" * 4_000_000):
        call = Follower()
        call.identity = stranger
        with pytest.raises(MessageNotFoundError) as caught:
            next(reading.message(pb.MessageId(message_id=name), cast("Call", call)))
        told.append(str(caught.value).replace(name, "ID").replace("k" * 128 + "…", "ID"))

    assert len(set(told)) == 1


def test_only_the_last_pieces_of_followed_queues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_notifier, "KEPT_BYTES", 10)
    kept = ArrivalNotifier()
    kept.keep(QUEUE, ArrivedRecords(0, 1, b"nobody follows"))

    with kept.follow(QUEUE):
        assert kept.arrived(QUEUE, 0, 100) == []
        for start in range(3):
            kept.keep(QUEUE, ArrivedRecords(start, start + 1, b"12345"))
        kept.keep(QUEUE, ArrivedRecords(2, 3, b"54321"))  # once more: the first was taken back
        found = [[piece.start for piece in kept.arrived(QUEUE, at, 10)] for at in range(4)]
        assert found == [[], [1, 2], [2], []]
        assert [piece.start for piece in kept.arrived(QUEUE, 1, 9)] == [1]
        assert kept.is_at_end(QUEUE, 3)
        kept.keep(QUEUE, ArrivedRecords(3, 4, b"too large to be kept"))
        assert kept.arrived(QUEUE, 3, 100) == []

    assert not kept.is_followed(QUEUE)


class Puller(Follower):
    def __init__(self, name: str) -> None:
        self.identity = UserIdentity(name) if name else ANYONE


def test_replies_get_smaller_as_a_user_has_more_pulls_open(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads none of them has the server hold one reply of each."""
    monkeypatch.setattr(read, "REPLY_BYTES", 8192)
    send(pool, *[b"x" * 100] * 100)
    reading = ReadHandlers(pool, Limits(4096, 4096, 1 << 20))
    request = pb.Pull(topic="t", broker_name="broker-a", end=100)
    held: list[tuple[Iterator[bytes], int]] = []

    def begin(name: str) -> int:
        replies = reading.pull(request, cast("Call", Puller(name)))
        held.append((replies, len(unpack(next(replies)).records)))
        return held[-1][1]

    sizes = [begin("one") for _ in range(8)]
    assert sizes[0] > 3500
    assert all(size <= max(4096 // count, 200) for count, size in enumerate(sizes, 1))
    assert begin("two") > 700  # an eighth of it is theirs, whatever the first one has

    held.clear()
    assert reading._pulls == {}
    assert begin("") > 3500
