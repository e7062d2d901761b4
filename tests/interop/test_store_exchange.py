"""One store, two brokers: what we write Apache RocketMQ serves, and the other way round."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_core import open_broker
from broker_core.errors import StoreLockedError
from tests.interop.kit import peers
from tests.interop.kit.clients import Query, dump, produce
from tests.interop.kit.ours import check_ours, dump_ours, used_topics, write_variety
from tests.interop.kit.servers import Broker, NameServer
from tests.kit.fixtures import SIZES
from tests.kit.pending import pending_records

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def served(broker: Broker, queries: list[Query] | None = None) -> dict[str, Any]:
    return dump(broker, queries or [])


def test_apache_serves_every_message_that_we_wrote(name_server: NameServer, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_variety(store, seed=1)
    ours = used_topics(dump_ours(store))
    one = next(iter(ours["ours-one"]["queues"].values()))["messages"][0]
    queries = [
        Query("key", "ours-four", "shared3"),
        Query("unique", "ours-one", one["uniqKey"]),
        Query("id", "ours-one", one["msgId"]),
    ]

    with Broker(store, name_server, tmp_path, SIZES) as broker:
        theirs = served(broker, queries)

    assert used_topics(theirs["topics"]) == ours
    answers = theirs["queries"]
    with open_broker(f"file:{store}") as reader:
        found = reader.query("ours-four", key="shared3")["offsetMsgId"].to_pylist()
    assert answers["byKey"][0]["msgIds"] == found
    assert answers["byKey"][1]["msgIds"] == [one["msgId"]]
    assert len(answers["byId"]) == 1


def test_a_store_goes_from_us_to_apache_and_back_twice(
    name_server: NameServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_variety(store, seed=2)
    for round_number in range(2):
        with Broker(store, name_server, tmp_path, SIZES) as broker:
            produce(broker, round_number, "plain:ours-four:4:60", "batch:ours-one:1:20")
            theirs = served(broker)
        assert used_topics(dump_ours(store)) == used_topics(theirs["topics"])

        write_variety(store, seed=10 + round_number, count=100)
        ours = used_topics(dump_ours(store))
        check_ours(store)
        with Broker(store, name_server, tmp_path, SIZES) as broker:
            theirs = served(broker)
        assert used_topics(theirs["topics"]) == ours


def test_apache_recovers_a_store_that_we_did_not_close(
    name_server: NameServer, tmp_path: Path
) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    with open_broker(f"file:{store}", mode="rw", create=True, config=SIZES) as broker:
        broker.create_topic("ours-four", queues=4)
        for number in range(150):
            broker.send("ours-four", b"x" * (number + 1), keys=[f"k{number}"], tags="T")
        shutil.copytree(store, copy)  # As it would be left by SIGKILL now.
    assert (copy / "abort").exists()
    ours = used_topics(dump_ours(copy))

    with Broker(copy, name_server, tmp_path, SIZES) as broker_of_theirs:
        theirs = served(broker_of_theirs, [Query("key", "ours-four", "k3")])

    assert used_topics(theirs["topics"]) == ours
    assert sum(len(queue["messages"]) for queue in ours["ours-four"]["queues"].values()) == 150
    assert len(theirs["queries"]["byKey"][0]["msgIds"]) == 1


# Sends what is dispatched by a flush, then what stays pending; then it is killed, or ends in order.
_SENDER = """
import os, signal, sys
from broker_core import open_broker
from tests.kit.batches import batch, named
from tests.kit.fixtures import SIZES

with open_broker(f"file:{sys.argv[1]}", mode="rw", create=True, config=SIZES) as broker:
    broker.create_topic("ours-four", queues=4)
    for number in range(80):
        if number == 40:
            broker.writer.flush()
        broker.send("ours-four", b"%d" % number, tags="T", keys=[f"k{number}", "all"])
    broker.append(batch(named(8), topic="ours-four", queues=4))
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_apache_serves_what_was_sent_one_by_one(
    name_server: NameServer, tmp_path: Path, version: str, end: str
) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-c", _SENDER, str(store), end]
    ended = subprocess.run(command, cwd=peers.ROOT, check=False, timeout=60)
    assert (ended.returncode == 0) == (end == "closed")
    assert pending_records(store) == (0 if end == "closed" else 48)
    ours = used_topics(dump_ours(store))
    queries = [Query("key", "ours-four", key) for key in ("k3", "k79", "key-7")]

    with Broker(store, name_server, tmp_path, SIZES, version=version) as broker:
        theirs = served(broker, queries)
        sent = produce(broker, 1, "plain:ours-four:4:20")
        broker.kill()

    assert used_topics(theirs["topics"]) == ours
    assert sum(len(queue["messages"]) for queue in ours["ours-four"]["queues"].values()) == 88
    assert [len(answer["msgIds"]) for answer in theirs["queries"]["byKey"]] == [1, 1, 1]
    # And we go on behind what it wrote.
    with open_broker(f"file:{store}", mode="rw", config=SIZES) as back:
        back.send("ours-four", b"back")
        assert sum(last for _, last in back.offsets("ours-four").values()) == 89 + len(sent)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_apache_serves_what_is_left_of_a_store_with_a_past(
    name_server: NameServer, tmp_path: Path, is_closed: bool
) -> None:
    store = tmp_path / "store"
    long_name = "%RETRY%" + "g" * 200  # too long for the first version of a record
    config = SIZES | {"brokerIP1": "fe80::1", "mappedFileSizeCommitLog": 20_000}
    with open_broker(f"file:{store}", mode="rw", create=True, config=config) as broker:
        for name in ("kept", "gone", "again", "idle", long_name):
            broker.create_topic(name, queues=2)
        broker.send("idle", b"x")
        for number in range(400):
            for name in ("kept", "gone", "again"):
                broker.send(name, b"%d" % number, keys=[f"k{number}"], queue_id=number % 2)
        broker.delete_topic("gone")
        broker.delete_topic("again")
        broker.create_topic("again", queues=1)
        broker.delete_before(100_000)
        for number in range(20):
            broker.send("again", b"%d" % number, keys=[f"k{number}"])
            broker.send(long_name, b"%d" % number)
    if not is_closed:
        (store / "abort").write_text("0")
    ours = used_topics(dump_ours(store))
    first = ours["kept"]["queues"]["0"]["minOffset"]
    sizes = {name: config[name] for name in SIZES}

    with Broker(store, name_server, tmp_path, sizes) as apache:
        theirs = served(apache, [Query("key", "again", "k19"), Query("key", "kept", "k399")])

    assert used_topics(theirs["topics"]) == {
        name: topic for name, topic in ours.items() if name != "gone"
    }
    assert 0 < first < 200
    assert [queue["minOffset"] for queue in ours["idle"]["queues"].values()] == [1]
    # After a crash Apache makes the index anew, from where its scan of the log began.
    found = [len(answer["msgIds"]) for answer in theirs["queries"]["byKey"]]
    assert found == [1, 1 if is_closed else 0]


def test_apache_verifies_the_property_checksums_that_we_write(
    name_server: NameServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    config = SIZES | {"enabledAppendPropCRC": "true"}
    write_variety(store, seed=3, config=config)
    (store / "abort").write_text("0")  # Makes Apache read the whole log again, checksums and all.
    ours = used_topics(dump_ours(store))

    with Broker(store, name_server, tmp_path, config | {"forceVerifyPropCRC": "true"}) as broker:
        theirs = served(broker)
        produce(broker, 3, "plain:ours-four:4:40", "batch:ours-one:1:20")
        more = served(broker)

    assert used_topics(theirs["topics"]) == ours
    messages = ours["ours-four"]["queues"]["0"]["messages"]
    assert all("__CRC32#" in message["properties"] for message in messages)
    assert used_topics(dump_ours(store)) == used_topics(more["topics"])


def test_we_follow_a_store_that_apache_is_writing(name_server: NameServer, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Broker(store, name_server, tmp_path, SIZES) as broker:
        produce(broker, 1, "plain:live:2:10")
        with open_broker(f"file:{store}") as reader:
            seen = 10
            for step in range(3):
                sent = produce(broker, 100 + step, "plain:live:2:200")
                seen += len(sent)
                offsets = reader.offsets("live")
                assert sum(last for _, last in offsets.values()) == seen
                rows = [reader.read("live", queue_id=ref.queue_id) for ref in offsets]
                assert sum(table.num_rows for table in rows) == seen
        with pytest.raises(StoreLockedError) as refused:
            open_broker(f"file:{store}", mode="rw").send("live", b"no")
        assert str(broker.pid) in str(refused.value)
        theirs = served(broker)
        broker.kill()
    assert used_topics(dump_ours(store))["live"] == theirs["topics"]["live"]


def test_we_continue_a_store_that_apache_was_killed_over(
    name_server: NameServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with Broker(store, name_server, tmp_path, SIZES) as broker:
        produce(broker, 5, "plain:crashed:4:300")
        theirs = used_topics(served(broker)["topics"])
        broker.kill()

    write_variety(store, seed=6, count=40)

    check_ours(store)
    ours = used_topics(dump_ours(store))
    assert {name: ours[name] for name in theirs} == theirs
