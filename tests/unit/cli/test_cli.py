"""The `rocketmq-broker` command: what it prints, and how it fails."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker_core.cli import main
from broker_core.cli.output import JsonLines
from broker_core.store.io.segments import list_segments
from tests.kit import fixtures, stores


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with stores.create(path) as broker:
        broker.create_topic("orders", queues=2)
        for number in range(6):
            broker.send(
                "orders",
                b"body %d" % number,
                queue_id=number % 2,
                tags="AB"[number % 2],
                keys=[f"k{number}"],
                properties={"n": str(number)},
            )
    return path


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], input=stdin)


def ok(*arguments: object) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def ok_json(*arguments: object) -> Any:
    return json.loads(ok(*arguments, "--json"))


def lines_json(*arguments: object) -> list[Any]:
    return [json.loads(line) for line in ok(*arguments, "--json").splitlines()]


def failed(*arguments: object) -> str:
    """The one line that a failing command prints."""
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("rocketmq-broker: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_topics_are_created_listed_described_and_deleted(tmp_path: Path) -> None:
    at = ("--broker", f"file:{tmp_path}/store")

    ok("topics", "create", "orders", "--queues", 3, "--create-store", *at)
    assert [row["topic"] for row in ok_json("topics", "list", *at)] == ["orders"]
    described = ok_json("topics", "describe", "orders", *at)
    assert (described["writeQueueNums"], len(described["queues"])) == (3, 3)
    assert "exists already" in failed("topics", "create", "orders", *at)
    ok("topics", "delete", "orders", *at)
    assert ok_json("topics", "list", *at) == []


def test_a_message_is_sent_and_found_again(root: Path) -> None:
    sent = ok_json(
        "send", "orders", "hello", "--tags", "T", "--key", "a", "--key", "b",
        "--property", "x=1=2", "--queue", 1, "--broker", root,
    )  # fmt: skip

    assert (sent["queueId"], sent["queueOffset"]) == (1, 3)
    (found,) = lines_json("query", "orders", "--key", "b", "--broker", root)
    assert (found["body"], found["tags"], found["keys"]) == ("hello", "T", "a b")
    assert found["properties"]["x"] == "1=2"
    for message_id in (sent["msgId"], sent["offsetMsgId"]):
        (found,) = lines_json("query", "--id", message_id, "--broker", root)
        assert found["queueOffset"] == 3


def test_a_body_comes_from_stdin_or_a_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\xfe")

    assert run("send", "orders", "--broker", root, stdin=b"piped").exit_code == 0
    ok("send", "orders", "--file", tmp_path / "body", "--queue", 0, "--broker", root)

    bodies = [
        row.get("body", row.get("bodyBase64"))
        for row in lines_json("tail", "orders", "--broker", root)
    ]
    assert "piped" in bodies
    assert "//4=" in bodies


def test_tail_prints_the_last_messages_of_each_queue(root: Path) -> None:
    rows = lines_json("tail", "orders", "-n", 2, "--broker", root)

    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]
    assert len(lines_json("tail", "orders", "--all", "--broker", root)) == 6
    assert len(lines_json("tail", "orders", "--all", "--queue", 1, "--broker", root)) == 3
    assert len(ok("tail", "orders", "-n", 1, "--broker", root).splitlines()) == 2


def test_tail_filters_and_explains(root: Path) -> None:
    by_tag = lines_json("tail", "orders", "--tags", "A", "--broker", root)
    explained = run("tail", "orders", "--sql", "n > 3", "--explain", "--json", "--broker", root)

    assert {row["tags"] for row in by_tag} == {"A"}
    assert [json.loads(line)["properties"]["n"] for line in explained.stdout.splitlines()] == [
        "4",
        "5",
    ]
    assert explained.stderr.splitlines()[:2] == ["filter: (n > 3)", "examined: 6 messages, kept 2"]
    assert explained.stderr.splitlines()[2].startswith("sql: examined 6, dropped 4, read ")


def test_tail_explains_that_a_tag_is_told_by_its_hash(root: Path) -> None:
    explained = run("tail", "orders", "--tags", "A || Bx", "--explain", "--broker", root)

    assert explained.stderr.splitlines()[:3] == [
        "filter: TAGS = 'A' or TAGS = 'Bx'",
        "examined: 6 messages, kept 3",
        "tag_hash: examined 6, dropped 3, read 120 B",
    ]
    assert explained.stderr.splitlines()[3].startswith("tag_text: examined 3, dropped 0, read ")


def test_tail_explains_what_bitmaps_spared(tmp_path: Path) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)

    explained = run(
        "tail", "Filtered", "--all", "--sql", "price > 50.5", "--explain", "--broker", root
    )

    stages = dict(line.split(": ") for line in explained.stderr.splitlines()[2:])
    assert stages["bitmap"].startswith("examined 480, dropped 329")
    assert stages["sql"].startswith("examined 151, ")
    assert list(stages) == ["bitmap", "sql"]


def test_a_topic_may_be_an_argument_or_an_option(root: Path) -> None:
    at = ("--broker", root)

    ok("send", "--topic", "orders", "as argument", *at)
    ok("send", "--topic", "orders", "--body", "as option", *at)
    ok("send", "orders", "--body", "as option", *at)

    assert ok("tail", "--topic", "orders", *at) == ok("tail", "orders", *at)
    assert ok("offsets", "--topic", "orders", *at) == ok("offsets", "orders", *at)
    bodies = [row["body"] for row in lines_json("tail", "orders", *at)]
    assert sorted(bodies)[:3] == ["as argument", "as option", "as option"]


def test_a_stores_path_may_be_an_address(root: Path) -> None:
    for command in ("dump", "check", "stats"):
        assert ok(command, f"file:{root}") == ok(command, root)


def test_query_by_time_reads_every_queue(root: Path) -> None:
    (last,) = lines_json("query", "orders", "--key", "k5", "--broker", root)
    at = last["storeTimestamp"]

    everything = lines_json("query", "orders", "--from", 0, "--broker", root)
    before = lines_json("query", "--topic", "orders", "--to", at, "--broker", root)
    nothing = ok("query", "orders", "--from", "2100-01-01T00:00:00", "--broker", root, "--json")

    assert len(everything) == 6
    assert all(row["storeTimestamp"] < at for row in before)
    assert nothing == ""


def test_offsets_show_group_lag_and_time(root: Path) -> None:
    with stores.open_rw(root) as broker:
        broker.commit_offset("group", "orders", 0, 1)

    rows = ok_json("offsets", "orders", "--group", "group", "--at", 0, "--broker", root)

    assert rows[0] == {
        "brokerName": "broker-a",
        "queueId": 0,
        "minOffset": 0,
        "maxOffset": 3,
        "groupOffset": 1,
        "lag": 2,
        "offsetAtTime": 0,
    }
    assert rows[1]["groupOffset"] is None
    assert (
        ok("offsets", "orders", "--broker", root).splitlines()[0].startswith("brokerName\tqueueId")
    )


def test_stats_count_a_store(root: Path) -> None:
    found = ok_json("stats", root)

    assert (found["topics"], found["queues"], found["messages"]) == (1, 2, 6)
    assert found == ok_json("stats", "--broker", root)
    assert found["needsRecovery"] is False


def test_stats_say_that_a_crashed_store_needs_recovery(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)

    found = ok_json("stats", root)

    assert (found["needsRecovery"], found["messages"]) == (True, 771)


def test_dump_prints_one_topic(root: Path) -> None:
    dumped = ok_json("dump", root, "--topic", "orders")

    assert list(dumped) == ["orders"]
    assert [len(queue["messages"]) for queue in dumped["orders"]["queues"].values()] == [3, 3]
    assert "body 4" in ok("dump", root)
    assert "Topic none does not exist" in failed("dump", root, "--topic", "none")


def test_dump_prints_a_topic_that_only_the_log_knows(root: Path) -> None:
    with stores.open_rw(root) as broker:
        broker.delete_topic("orders")
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"second life")
        broker.create_topic("other", queues=1)
        broker.send("other", b"x")
        broker.delete_topic("orders")

    dumped = ok_json("dump", root)

    messages = dumped["orders"]["queues"]["0"]["messages"]
    assert dumped["orders"]["queues"]["0"]["maxOffset"] == len(messages) > 1
    assert messages[-1]["bodyLength"] == len(b"second life")
    assert sorted(dumped) == ["orders", "other"]


def test_a_topic_made_anew_shows_its_new_life_only(root: Path) -> None:
    with stores.open_rw(root) as broker:
        broker.delete_topic("orders")
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"new")

    dumped = ok_json("dump", root)

    assert [len(m["messages"]) for m in dumped["orders"]["queues"].values()] == [1]


def test_dump_leaves_out_a_topic_with_batch_queues_and_says_so(root: Path) -> None:
    path = root / "batchconsumequeue" / "batched" / "3" / "00000000000000000000"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(460))

    result = run("dump", root, "--json")

    assert result.exit_code == 1
    assert list(json.loads(result.stdout)) == ["orders"]
    assert result.stderr.startswith("rocketmq-broker: Topic batched has batch consume queues")
    assert result.stderr.count("\n") == 1
    assert "Topic batched has batch" in failed("dump", root, "--topic", "batched")
    assert list(ok_json("dump", root, "--topic", "orders")) == ["orders"]
    rows = {row["topic"]: row for row in ok_json("topics", "list", "--broker", root)}
    assert rows["batched"]["attributes"] == {"queue.type": "BatchCQ"}
    assert rows["batched"]["readQueueNums"] == 4


def test_check_is_silent_on_a_sound_store(root: Path) -> None:
    assert ok("check", root) == ""
    assert ok_json("check", root) == []


def test_check_names_what_is_wrong(root: Path) -> None:
    stores.flip(list_segments(root / "commitlog")[0].path, 90)

    result = run("check", root)

    assert result.exit_code == 1
    assert "00000000000000000000" in result.stdout


@pytest.mark.parametrize(
    ("properties", "verdict"),
    [(["price=7"], "true"), (["price=3"], "false"), ([], "null"), (["price=x"], "error")],
)
def test_filter_says_what_it_thinks(properties: list[str], verdict: str) -> None:
    given = [part for each in properties for part in ("--property", each)]

    assert ok("filter", "price > 5", *given) == f"{verdict}\n(price > 5)\n"
    assert ok_json("filter", "price > 5", *given) == {
        "expression": "price > 5",
        "parsed": "(price > 5)",
        "dropped": "",
        "properties": ["price"],
        "verdict": verdict,
    }


def test_filter_shows_what_is_ignored() -> None:
    given = ("--property", "zone=eu")

    assert ok("filter", "zone LIKE 'e%'", *given) == "false\nzone\nignored: LIKE 'e%'\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["dump", "/no/such/store"], "There is no store at /no/such/store"),
        (["check", "/no/such/store"], "There is no store at /no/such/store"),
        (["stats", "/no/such/store"], "There is no store at /no/such/store"),
        (["tail", "t", "--broker", "/no/such/store"], "There is no store"),
        (["tail", "t", "--broker", "http://x:1"], "Unknown kind of broker 'http'"),
        (["tail", "t", "--broker", "grpc://u:hunter2@x:1"], "contains credentials"),
        (["filter", "price >"], "Filter does not parse at line 1, column"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], what: str) -> None:
    line = failed(*arguments)

    assert what in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["tail", "nope", "--broker"], "Topic nope does not exist"),
        (["tail", "../x", "--broker"], "Topic name '../x' contains '.'"),
        (["tail", "orders", "--queue", "9", "--broker"], "has queues 0 to 1, not 9"),
        (["tail", "orders", "--tags", "A", "--sql", "n > 1", "--broker"], "not both"),
        (["topics", "create", "x" * 300, "--broker"], "has 300 characters, 127 are allowed"),
        (["topics", "delete", "nope", "--broker"], "Topic nope does not exist"),
        (["send", "orders", "", "--broker"], "has no body"),
        (["query", "--id", "nope", "--broker"], "No message with id nope"),
        (["offsets", "nope", "--broker"], "Topic nope does not exist"),
    ],
)
def test_a_request_that_can_not_be_done_is_one_line(
    root: Path, arguments: list[str], what: str
) -> None:
    assert what in failed(*arguments, root)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["tail"],
        ["tail", "orders"],
        ["tail", "orders", "--topic", "orders", "--broker", "x"],
        ["offsets", "--broker", "x"],
        ["dump", "grpc://localhost:1"],
        ["query", "--broker", "x"],
        ["query", "--key", "k", "--broker", "x"],
        ["query", "t", "--from", "yesterday", "--broker", "x"],
        ["send", "t", "body", "--property", "novalue", "--broker", "x"],
        ["send", "t", "body", "--file", "/tmp", "--broker", "x"],
        ["stats"],
        ["topics", "create", "t", "--queues", "many", "--broker", "x"],
    ],
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_reading_commands_change_nothing(root: Path) -> None:
    before = stores.snapshot(root)

    for arguments in (
        ["dump", root],
        ["check", root],
        ["stats", root],
        ["topics", "list", "--broker", root],
        ["topics", "describe", "orders", "--broker", root],
        ["tail", "orders", "--broker", root],
        ["query", "orders", "--key", "k1", "--broker", root],
        ["offsets", "orders", "--broker", root],
    ):
        ok(*arguments)
    assert stores.snapshot(root) == before


def test_a_missing_store_is_never_made_by_a_read(tmp_path: Path) -> None:
    for command in ("dump", "check", "stats"):
        failed(command, tmp_path / "none")
    failed("send", "orders", "x", "--broker", tmp_path / "none")

    assert list(tmp_path.iterdir()) == []


def test_a_corrupt_store_fails_with_the_place(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))
    stores.flip(list_segments(root / "commitlog")[0].path, 90)

    line = failed("dump", root, "--json")

    assert "physical offset 0" in line
    assert str(root) in line


def test_a_server_logs_json_if_asked_to() -> None:
    try:
        raise ValueError("no")  # noqa: TRY301 - to have a traceback
    except ValueError:
        record = logging.LogRecord(
            "core", logging.WARNING, "", 0, "event=%s", ("x",), sys.exc_info()
        )

    line = JsonLines().format(record)

    assert "\n" not in line
    document = json.loads(line)
    assert (document["level"], document["logger"], document["message"]) == (
        "WARNING",
        "core",
        "event=x",
    )
    assert document["error"].endswith("ValueError: no")
    assert "--json" in run("serve", "--help").stdout


@pytest.mark.parametrize(
    "command",
    [
        *("serve", "send", "tail", "query", "offsets", "dump", "check", "stats", "filter"),
        *("topics list", "topics create", "topics delete", "topics describe"),
    ],
)
def test_every_command_takes_json(command: str) -> None:
    assert "--json" in ok(*command.split(), "--help")
