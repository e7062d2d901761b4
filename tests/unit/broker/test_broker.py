"""The embedded broker: the calls of the Python API on a store of our own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core import QueueRef, SqlFilter, open_broker
from broker_core.api import Broker
from broker_core.broker import query
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.hosts import pack_host
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.errors import (
    ConfigError,
    CorruptRecordError,
    IllegalMessageError,
    InvalidNameError,
    MessageNotFoundError,
    OffsetRangeError,
    PermissionDeniedError,
    RequestError,
    TopicExistsError,
    TopicNotFoundError,
)
from broker_core.store.index import view
from broker_core.store.index.file import list_index_files
from broker_core.store.io.segments import list_segments
from broker_core.types import LogicalOffset, OffsetRange
from tests.kit import stores

ORDERS_0 = QueueRef("orders", "broker-a", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with stores.create(tmp_path / "store") as opened:
        opened.create_topic("orders", queues=4)
        yield opened


def test_it_is_a_broker(broker: EmbeddedBroker) -> None:
    assert isinstance(broker, Broker)


def test_the_example_of_the_contract_works(tmp_path: Path) -> None:
    with open_broker(f"file:{tmp_path}/store", mode="rw", create=True, config=None) as broker:
        broker.create_topic("orders", queues=4)
        sent = broker.send(
            "orders", b"hello", tags="A", keys=["o-1"], properties={"price": "10"}, queue_id=2
        )

        assert (sent.queue_id, sent.queue_offset) == (2, 0)
        assert broker.offsets("orders")[QueueRef("orders", "broker-a", 2)] == (0, 1)
        row = broker.read("orders", queue_id=2).to_pylist()[0]
        assert (row["body"], row["tags"], row["keys"]) == (b"hello", "A", "o-1")
        assert row["msgId"] == sent.msg_id
        assert broker.query("orders", key="o-1")["msgId"].to_pylist() == [sent.msg_id]
        assert broker.query("orders", key=sent.msg_id).num_rows == 1
        for message_id in (sent.msg_id, sent.offset_msg_id):
            assert broker.message(message_id)["body"].to_pylist() == [b"hello"]
        stored = round(row["storeTimestamp"].timestamp() * 1000)
        assert broker.offset_at("orders", queue_id=2, timestamp_ms=stored) == 0
        assert broker.offset_at("orders", queue_id=2, timestamp_ms=stored + 1) == 1
        broker.commit_offset("group", "orders", queue_id=2, offset=1)
        assert broker.consumer_offsets("group", "orders") == {sent.queue: 1}
        assert broker.add_queues("orders", 8).write_queues == 8
        broker.delete_topic("orders")
        assert broker.topics() == []
    assert SqlFilter("price > 5").verdicts([{"price": "7"}]) == ["true"]


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with stores.create(root) as broker:
        broker.create_topic("orders", queues=2)
        sent = [broker.send("orders", b"%d" % n, queue_id=n % 2) for n in range(10)]
        broker.commit_offset("group", "orders", 1, 4)

    with stores.open_r(root) as broker:
        assert broker.topics() == ["orders"]
        assert broker.read("orders", 1)["msgId"].to_pylist() == [s.msg_id for s in sent[1::2]]
        assert broker.consumer_offsets("group", "orders") == {QueueRef("orders", "broker-a", 1): 4}


# Topics


def test_a_topic_exists_once(broker: EmbeddedBroker) -> None:
    with pytest.raises(TopicExistsError, match="orders exists already"):
        broker.create_topic("orders", queues=2)
    assert broker.create_topic("orders", queues=2, exist_ok=True).write_queues == 4


def test_queues_are_only_ever_added(broker: EmbeddedBroker) -> None:
    with pytest.raises(RequestError, match="has 4 queues and can't have 3"):
        broker.add_queues("orders", 3)
    assert broker.add_queues("orders", 6).queues[-1].queue_id == 5


@pytest.mark.parametrize("queues", [0, -1, 65537])
def test_a_topic_has_a_sensible_number_of_queues(broker: EmbeddedBroker, queues: int) -> None:
    with pytest.raises(RequestError, match=f"can't have {queues} queues"):
        broker.create_topic("other", queues=queues)


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 300, "", "../orders"])
def test_a_name_that_is_no_name_reaches_no_path(broker: EmbeddedBroker, name: str) -> None:
    before = stores.snapshot(broker.reader.root)

    for call in (
        lambda: broker.create_topic(name),
        lambda: broker.describe(name),
        lambda: broker.offsets(name),
        lambda: broker.read(name),
        lambda: broker.query(name, "k"),
        lambda: broker.send(name, b"x"),
        lambda: broker.delete_topic(name),
        lambda: broker.offset_at(name, 0, 0),
        lambda: broker.consumer_offsets("group", name),
    ):
        with pytest.raises(InvalidNameError, match="use letters, digits"):
            call()
    assert stores.snapshot(broker.reader.root) == before


def test_a_topic_that_a_broker_named_after_its_host_is_read(broker: EmbeddedBroker) -> None:
    path = broker.reader.root / "config" / "topics.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    row = document["topicConfigTable"]["orders"] | {"topicName": "host.example.com"}
    document["topicConfigTable"]["host.example.com"] = row
    document["topicConfigTable"]["../etc"] = row
    path.write_text(json.dumps(document), encoding="utf-8")

    assert broker.topics() == ["host.example.com", "orders"]
    assert broker.describe("host.example.com").read_queues == 4
    assert broker.read("host.example.com").num_rows == 0
    with pytest.raises(InvalidNameError):
        broker.describe("../etc")


def test_a_missing_topic_is_named_with_one_that_is_near(broker: EmbeddedBroker) -> None:
    for call in (
        lambda: broker.describe("order"),
        lambda: broker.offsets("order"),
        lambda: broker.read("order"),
        lambda: broker.query("order", "k"),
        lambda: broker.send("order", b"x"),
        lambda: broker.delete_topic("order"),
        lambda: broker.add_queues("order", 9),
        lambda: broker.offset_at("order", 0, 0),
        lambda: broker.consumer_offsets("group", "order"),
        lambda: broker.commit_offset("group", "order", 0, 0),
    ):
        with pytest.raises(TopicNotFoundError, match=r"Topic order does not exist.*mean orders"):
            call()


def test_a_topic_made_anew_goes_on_with_the_numbers(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"old", queue_id=0)
    broker.commit_offset("group", "orders", 0, 1)

    broker.delete_topic("orders")
    with pytest.raises(TopicNotFoundError):
        broker.read("orders")
    broker.create_topic("orders", queues=1)

    assert broker.offsets("orders") == {ORDERS_0: (1, 1)}
    assert broker.consumer_offsets("group", "orders") == {}
    assert broker.offset_at("orders", 0, 0) == 1
    assert broker.read("orders").num_rows == 0
    assert broker.send("orders", b"new").queue_offset == 1
    assert broker.read("orders")["body"].to_pylist() == [b"new"]


def test_a_topic_of_another_process_is_seen(broker: EmbeddedBroker) -> None:
    with stores.open_r(broker.reader.root) as other:
        assert other.topics() == ["orders"]
        broker.create_topic("more")
        assert other.topics() == ["more", "orders"]


# Reading


def test_only_requested_columns_are_read(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"x", queue_id=0, properties={"price": "7"})

    table = broker.read("orders", columns=["queueOffset", "property:price", "body"])

    assert table.to_pylist() == [{"queueOffset": 0, "price": "7", "body": b"x"}]
    with pytest.raises(RequestError, match="no column 'nope'"):
        broker.read("orders", columns=["nope"])


def test_a_read_is_filtered_by_tag_or_sql(broker: EmbeddedBroker) -> None:
    for number in range(20):
        broker.send(
            "orders", b"x", queue_id=0, tags="ABC"[number % 3], properties={"n": str(number)}
        )

    by_tag = broker.read("orders", tags="A || B", columns=["tags"])
    by_sql = broker.read("orders", sql="n BETWEEN 3 AND 5", columns=["queueOffset"])

    assert set(by_tag["tags"].to_pylist()) == {"A", "B"}
    assert by_sql["queueOffset"].to_pylist() == [3, 4, 5]
    with pytest.raises(RequestError, match="not both"):
        broker.read("orders", tags="A", sql="n > 1")


def test_tags_of_equal_hash_are_told_apart(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"1", queue_id=0, tags="Aa")
    broker.send("orders", b"2", queue_id=0, tags="BB")

    assert broker.read("orders", tags="BB")["body"].to_pylist() == [b"2"]


def test_a_python_read_checks_bodies(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
        sent = broker.send("orders", b"hello", keys=["k"])
    stores.flip(list_segments(tmp_path / "store" / "commitlog")[0].path, 88)

    with stores.open_r(tmp_path / "store") as broker:
        calls: list[Callable[[], object]] = [
            lambda: broker.read("orders"),
            lambda: broker.query("orders", "k"),
            lambda: broker.query("orders", sent.msg_id),
        ]
        for call in calls:
            with pytest.raises(CorruptRecordError, match="checksum"):
                call()


def test_a_queue_that_does_not_exist_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(RequestError, match="orders has queues 0 to 3, not 7"):
        broker.read("orders", queue_id=7)
    with pytest.raises(RequestError, match="is broker broker-a, but other was asked"):
        broker.offset_at("orders", 0, 0, broker_name="other")


def test_offsets_out_of_range_carry_what_there_is(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"x", queue_id=0)

    with pytest.raises(OffsetRangeError, match="holds offsets 0 to 1") as caught:
        broker.read("orders", 0, start=0, end=2)
    assert (caught.value.minimum, caught.value.maximum) == (0, 1)
    wanted = OffsetRange(ORDERS_0, LogicalOffset(5), LogicalOffset(6))
    with pytest.raises(OffsetRangeError):
        broker.pull(wanted)


def test_an_unknown_id_is_not_found(broker: EmbeddedBroker) -> None:
    sent = broker.send("orders", b"x" * 200)
    inside = sent.offset_msg_id[:-2] + "10"

    for message_id in ("", "nope", "0" * 32, inside, sent.offset_msg_id[:-16] + "7" * 16):
        with pytest.raises(MessageNotFoundError, match="No message with id"):
            broker.message(message_id)


def test_bytes_in_a_body_are_not_taken_for_a_record(broker: EmbeddedBroker) -> None:
    first = broker.send("orders", b"x", queue_id=0)
    record = broker.reader.log.record_bytes(first.physical_offset)
    place = len(record) + 88
    forged = record[:28] + place.to_bytes(8, "big") + record[36:]
    broker.send("orders", forged, queue_id=0)

    assert broker.reader.record_at(place).body == b"x"
    with pytest.raises(MessageNotFoundError):
        broker.message(f"7F00000100002A9F{place:016X}")


def test_keys_of_equal_hash_are_told_apart(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"1", keys=["kAa"])
    broker.send("orders", b"2", keys=["kBB"])
    broker.send("orders", b"3", tags="kAa")

    assert broker.query("orders", "kBB")["body"].to_pylist() == [b"2"]
    assert broker.query("orders", "T#kAa").num_rows == 0


@pytest.mark.parametrize("limit", [1, 32, 64, 65])
def test_messages_of_another_topic_and_equal_hash_hide_nothing(
    broker: EmbeddedBroker, limit: int
) -> None:
    """`Aa` and `BB` have one hash, and so has any key behind them."""
    for topic in ("Aa", "BB"):
        broker.create_topic(topic, queues=1)
    own = broker.send("Aa", b"own", keys=["k"])
    for _ in range(70):
        broker.send("BB", b"other", keys=["k", own.msg_id])

    assert broker.query("Aa", "k", limit=limit)["body"].to_pylist() == [b"own"]
    assert broker.query("Aa", own.msg_id, limit=limit)["body"].to_pylist() == [b"own"]
    assert broker.message(own.msg_id)["body"].to_pylist() == [b"own"]


def test_an_id_is_looked_for_in_all_topics_at_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        broker.create_topic(f"t{number}", queues=1)
    sent = [broker.send(f"t{number}", b"%d" % number) for number in (3, 17)]
    opened: list[Path] = []
    files = list_index_files

    def listing(directory: Path) -> list[Path]:
        opened.append(directory)
        return files(directory)

    monkeypatch.setattr(view, "list_index_files", listing)

    found = [broker.message(each.msg_id)["body"].to_pylist() for each in sent]

    assert found == [[b"3"], [b"17"]]
    # Once for all topics, and once for the topic that has it.
    assert len(opened) == 2 * len(sent)
    with pytest.raises(MessageNotFoundError):
        broker.message("A" * (1 << 16))


def test_a_query_whose_answer_would_take_long_says_so(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MOST_OTHERS", 100)
    broker.create_topic("Aa", queues=1)
    broker.create_topic("BB", queues=1)
    broker.send("Aa", b"own", keys=["k"])
    for _ in range(164):
        broker.send("BB", b"other", keys=["k"])

    with pytest.raises(RequestError, match="limit above 164"):
        broker.query("Aa", "k")
    assert broker.query("Aa", "k", limit=165)["body"].to_pylist() == [b"own"]
    for _ in range(64):
        broker.send("Aa", b"new", keys=["k"])
    assert broker.query("Aa", "k")["body"].to_pylist() == [b"new"] * 64


def test_a_query_gives_at_most_its_limit_and_the_newest(broker: EmbeddedBroker) -> None:
    for number in range(100):
        broker.send("orders", b"%d" % number, keys=["k", f"o{number}"])

    default = broker.query("orders", "k")["body"].to_pylist()

    assert default == [b"%d" % number for number in range(36, 100)]
    assert broker.query("orders", "k", limit=5).num_rows == 5
    assert broker.query("orders", "k", limit=1000).num_rows == 100


def test_a_complete_query_does_not_need_an_index(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", messageIndexEnable=False) as broker:
        broker.create_topic("orders", queues=1)
        for number in range(10):
            broker.send("orders", b"%d" % number, keys=["k"])

        assert broker.query("orders", "k").num_rows == 0
        assert broker.query("orders", "k", limit=1000).num_rows == 10


# Writing


def test_messages_take_turns_or_stay_with_their_sharding_key(broker: EmbeddedBroker) -> None:
    turns = {broker.send("orders", b"x").queue_id for _ in range(4)}
    sharded = {broker.send("orders", b"x", sharding_key="customer-1").queue_id for _ in range(4)}

    assert turns == {0, 1, 2, 3}
    assert len(sharded) == 1


def test_a_delayed_message_waits_in_the_schedule_topic(broker: EmbeddedBroker) -> None:
    sent = broker.send("orders", b"later", queue_id=3, delay_level=3)

    assert (sent.topic, sent.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    properties = dict(broker.message(sent.msg_id)["properties"][0].as_py())
    assert properties["REAL_TOPIC"] == "orders"
    assert properties["REAL_QID"] == "3"
    assert properties["DELAY"] == "3"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"body": b""}, "has no body"),
        ({"body": None}, "has a body of type NoneType"),
        ({"body": "text"}, "has a body of type str"),
        ({"properties": {"KEYS": "x"}}, "property KEYS, which RocketMQ keeps"),
        ({"properties": {"a": ""}}, "'a'=''; both must be text"),
        ({"properties": {"a": 1}}, "'a'=1; both must be text"),
        ({"properties": {"a": "x\x02y"}}, "separator"),
        ({"keys": ["a b"]}, "the key 'a b'"),
        ({"keys": [""]}, "the key ''"),
        ({"tags": "a\x01b"}, "separator"),
        ({"delay_level": 19}, "Delay level 19"),
        ({"body": b"x" * (4 << 20) + b"x"}, "4194305 bytes, the limit is 4194304"),
        ({"properties": {"a": "x" * 40_000}}, "bytes of properties"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_an_illegal_message_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: dict[str, object], what: str
) -> None:
    with stores.create(tmp_path / "store", mappedFileSizeCommitLog=8 << 20) as broker:
        broker.create_topic("orders", queues=1)
        call: dict[str, object] = {"body": b"x"} | arguments
        with pytest.raises(IllegalMessageError, match=what):
            broker.send("orders", **call)  # type: ignore[arg-type]  # wrong on purpose
        assert broker.offsets("orders") == {ORDERS_0: (0, 0)}


def test_a_batch_is_appended_whole_with_ipv6_hosts_and_long_topics(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 200
    with stores.create(tmp_path / "store", brokerIP1="fe80::1") as broker:
        broker.create_topic(topic, queues=2)
        broker.append(
            MessageBatch(
                topics=[topic],
                topic_codes=np.zeros(3, dtype=np.int32),
                queue_ids=np.array([0, 1, 0], dtype=np.int32),
                bodies=pa.array([b"a", b"b", b"c"]),
                properties=join_properties([("TAGS", "T")], 3),
                born_host=pack_host("2001:db8::2", 1234),
            )
        )

        table = broker.read(topic, 0, columns=["body", "tags", "bornHost", "storeHost"])

    assert table.to_pylist() == [
        {
            "body": body,
            "tags": "T",
            "bornHost": "[2001:db8:0:0:0:0:0:2]:1234",
            "storeHost": "[fe80:0:0:0:0:0:0:1]:10911",
        }
        for body in (b"a", b"c")
    ]


def test_a_batch_for_a_queue_that_is_not_there_is_refused(broker: EmbeddedBroker) -> None:
    batch = MessageBatch(
        topics=["orders"],
        topic_codes=np.zeros(2, dtype=np.int32),
        queue_ids=np.array([0, 4], dtype=np.int32),
        bodies=pa.array([b"a", b"b"]),
        properties=join_properties([], 2),
    )

    with pytest.raises(RequestError, match="queues 0 to 3 to write to, not 4"):
        broker.append(batch)
    assert broker.offsets("orders")[ORDERS_0] == (0, 0)


def test_a_topic_without_the_permission_is_not_written(broker: EmbeddedBroker) -> None:
    path = broker.reader.root / "config" / "topics.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["topicConfigTable"]["orders"]["perm"] = 4
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(PermissionDeniedError, match=r"not writable \(perm 4\)"):
        broker.send("orders", b"x")


def test_a_broker_opened_for_reading_writes_nothing(broker: EmbeddedBroker) -> None:
    before = stores.snapshot(broker.reader.root)

    with stores.open_r(broker.reader.root) as reader:
        for call in (
            lambda: reader.send("orders", b"x"),
            lambda: reader.create_topic("other"),
            lambda: reader.add_queues("orders", 9),
            lambda: reader.delete_topic("orders"),
            lambda: reader.commit_offset("group", "orders", 0, 1),
            lambda: reader.delete_before(1),
        ):
            with pytest.raises(RequestError, match=r"mode='r'.*mode='rw'"):
                call()
    assert stores.snapshot(broker.reader.root) == before


def test_deleting_files_moves_the_minimum(broker: EmbeddedBroker) -> None:
    for number in range(200):
        broker.send("orders", b"%d" % number * 200, queue_id=0)

    start = broker.delete_before(100_000)

    assert start == 65536
    minimum, maximum = broker.offsets("orders")[ORDERS_0]
    assert 0 < minimum < maximum == 200
    assert broker.read("orders")["body"].to_pylist()[0] == b"%d" % minimum * 200


def test_offsets_of_groups_are_checked(broker: EmbeddedBroker) -> None:
    with pytest.raises(RequestError, match="is negative"):
        broker.commit_offset("group", "orders", 0, -1)
    with pytest.raises(InvalidNameError, match="Group name"):
        broker.commit_offset("a/b", "orders", 0, 1)
    with pytest.raises(RequestError, match="not 9"):
        broker.commit_offset("group", "orders", 9, 1)


def test_a_configuration_that_contradicts_the_files_is_refused(broker: EmbeddedBroker) -> None:
    broker.send("orders", b"x")

    for mode in ("r", "rw"):
        with pytest.raises(ConfigError, match="mappedFileSizeCommitLog=131072, but the files"):
            open_broker(broker.reader.root, mode=mode, config={"mappedFileSizeCommitLog": 131072})


def test_results_are_plain_values(broker: EmbeddedBroker) -> None:
    sent = broker.send("orders", b"x")

    assert all(type(value) in (int, str) for value in dataclasses.asdict(sent).values())


def test_an_option_that_a_store_does_not_have_is_refused(broker: EmbeddedBroker) -> None:
    root = broker.reader.root

    with pytest.raises(ConfigError, match=r"no option 'moed'; it has mode, create"):
        open_broker(root, moed="rw")  # type: ignore[call-arg]  # on purpose
    with open_broker(root, access_key="a", secret_key="b", token="t") as other:
        assert other.topics() == ["orders"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_query_for_nothing_is_refused(broker: EmbeddedBroker, limit: int) -> None:
    with pytest.raises(RequestError, match=f"limit is {limit}; give 1 or more"):
        broker.query("orders", "k", limit=limit)
