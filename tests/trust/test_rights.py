"""Rights: what each actor gets from each method, with a request that its owner would be answered.

RIGHTS is the whole table, one row a method. It is held to the table of methods: a method without a
row fails here, and so does one whose rule is missing in the server, or was taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from broker_core.errors import PermissionDeniedError
from broker_core.service.auth.method_rules import RULES as SERVER_RULES
from broker_core.service.auth.user_rights import UserIdentity
from broker_core.service.core import rpc
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.methods import METHODS, Method
from tests.kit.raw_calls import raw_channel
from tests.trust.attacks import OWN_TOPICS
from tests.trust.line import NOBODY, Code, GrpcLine, Line, Metadata
from tests.trust.requests import BUILDERS, Chunks, Requests, sent_as
from tests.trust.world import ACTORS, OPEN, Template, World, may

KNOWN = frozenset(ACTORS) - {NOBODY}
SENDERS = frozenset({"stranger", "neighbour", "wide", "owner", "admin"})
PUBLISHERS = frozenset({"wide", "owner", "admin"})
READERS = frozenset({"reader", "wide-reader", "owner", "admin"})
ADMIN = frozenset({"admin"})


@dataclass(frozen=True)
class Row:
    """Actors who are answered, and those who are told that there is nothing; others are denied."""

    answered: frozenset[str]
    told_nothing: frozenset[str] = frozenset()


DECIDERS = Row(frozenset({"owner"}), SENDERS - {"owner"})
RIGHTS: Mapping[Method, Row] = {
    methods.HELLO: Row(KNOWN),
    methods.STATS: Row(ADMIN),
    methods.TOPICS: Row(KNOWN),
    methods.DESCRIBE: Row(PUBLISHERS | READERS),
    methods.CREATE_TOPIC: Row(ADMIN),
    methods.ADD_QUEUES: Row(ADMIN),
    methods.DELETE_TOPIC: Row(ADMIN),
    methods.OFFSETS: Row(READERS),
    methods.OFFSET_AT: Row(READERS),
    methods.CONSUMER_OFFSETS: Row(READERS),
    methods.COMMIT_OFFSET: Row(READERS),
    methods.AWAIT: Row(READERS),
    methods.PULL: Row(READERS),
    methods.QUERY: Row(READERS),
    methods.MESSAGE: Row(READERS, KNOWN - READERS),
    methods.APPEND: Row(PUBLISHERS),
    methods.APPEND_CHUNKS: Row(PUBLISHERS),
    methods.DELETE_BEFORE: Row(ADMIN),
    methods.IS_DECIDED: Row(SENDERS),
    methods.PREPARE: Row(PUBLISHERS),
    methods.PREPARE_CHUNKS: Row(PUBLISHERS),
    methods.COMMIT_BATCH: DECIDERS,
    methods.ABORT_BATCH: DECIDERS,
    methods.PREPARE_MESSAGE: Row(PUBLISHERS),
    methods.END: Row(frozenset({"owner", "admin"}), SENDERS - {"owner", "admin"}),
    methods.LISTEN: Row(SENDERS),
    methods.CHECK_BACK: Row(ADMIN),
}
"""Requests are the owner's, about the owner's topic and what the owner has prepared."""

OWN_NAMES = [name for topic in OWN_TOPICS for name in (topic, topic.lower())]
NOISE = b"\x5a" * 64
OUTCOMES = {
    Code.OK: "answered",
    Code.NOT_FOUND: "told nothing",
    Code.PERMISSION_DENIED: "denied",
    Code.UNAUTHENTICATED: "unauthenticated",
    Code.INVALID_ARGUMENT: "looked at",
}


def expected(method: Method) -> dict[str, str]:
    """What each actor gets for the owner's request, and for noise where records are expected."""
    row = RIGHTS[method]
    found = {actor: _outcome(row, actor) for actor in ACTORS}
    if _takes_records(method):
        # Nothing of a request is looked at for a caller who may publish nowhere.
        for actor in ACTORS:
            is_read = "looked at" if actor in SENDERS else _outcome(row, actor)
            found[f"{actor}, noise"] = is_read
    return found


def _outcome(row: Row, actor: str) -> str:
    if actor == NOBODY:
        return "unauthenticated"
    if actor in row.answered:
        return "answered"
    return "told nothing" if actor in row.told_nothing else "denied"


def outcomes(world: World, line: Line | GrpcLine, method: Method) -> dict[str, str]:
    """What each actor gets."""
    by = Requests(world, "owner", "orders")
    found = {}
    for actor in ACTORS:
        answer = line.call(method, actor, *sent_as(method, by.valid(method)))
        found[actor] = OUTCOMES.get(answer.code, str(answer))
        if answer.is_ok:
            by.spent()
        if _takes_records(method):
            answer = line.call(method, actor, NOISE)
            found[f"{actor}, noise"] = OUTCOMES.get(answer.code, str(answer))
    return found


def _takes_records(method: Method) -> bool:
    return isinstance(method.request.parse(b""), bytes)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, template: Template) -> Iterator[World]:
    """One world for all rows, which serves a port; each row prepares what it needs anew."""
    world = World(tmp_path_factory.mktemp("rights") / "world", template)
    world.process.server.start()
    yield world
    world.close()


@pytest.fixture(scope="module")
def port(shared: World) -> Iterator[GrpcLine]:
    with raw_channel(shared.process) as channel:
        yield GrpcLine(shared.process, channel)


def test_every_method_has_a_row_a_rule_and_a_request() -> None:
    assert set(RIGHTS) == set(SERVER_RULES) == set(BUILDERS) == set(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_actor_gets_what_the_table_says(
    shared: World, port: GrpcLine, method: Method
) -> None:
    assert outcomes(shared, port, method) == expected(method)


# Removing any one rule makes it fail


def _restricts(world: World, method: Method) -> bool:
    """Tell whether a method's rule refuses anybody."""
    request = Requests(world, "owner", "orders").valid(method)
    given = request.packed() if isinstance(request, Chunks) else request
    try:
        SERVER_RULES[method](UserIdentity("norule"), given)
    except PermissionDeniedError:
        return True
    return False


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_rule_that_is_taken_away_is_noticed(
    shared: World, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    def permit(identity: UserIdentity, request: object) -> None:
        del identity, request

    monkeypatch.setattr(rpc, "RULES", {**SERVER_RULES, method: permit})
    found = outcomes(shared, Line(shared.process), method)

    assert (found != expected(method)) == _restricts(shared, method)


# Who nobody is, and what refusals tell

BAD_CREDENTIALS: Mapping[str, Metadata] = {
    "none": [],
    "wrong secret": [("authorization", "Bearer owner.wrong")],
    "no secret": [("authorization", "Bearer owner.")],
    "no name": [("authorization", "Bearer .hush")],
    "unknown name": [("authorization", "Bearer mallory.hush")],
    "another scheme": [("authorization", "Basic owner.hush")],
    "a very long secret": [("authorization", f"Bearer owner.{'x' * 6000}")],
    "name alone": [("x-rocketmq-access-key-bin", "owner")],
}


@pytest.mark.parametrize("kind", BAD_CREDENTIALS)
def test_without_right_credentials_no_method_says_anything(shared: World, kind: str) -> None:
    by = Requests(shared, "owner", "orders")
    for method in METHODS:
        messages = sent_as(method, by.valid(method))
        answer = shared.line.call_with(method, BAD_CREDENTIALS[kind], *messages)

        assert answer.code is Code.UNAUTHENTICATED, method.name
        assert "owner" not in answer.details


@pytest.mark.parametrize("actor", sorted(KNOWN))
def test_topics_are_listed_by_right(shared: World, actor: str) -> None:
    with shared.process.pool.broker() as broker:
        there = broker.topics()

    listed = pb.TopicList.FromString(shared.call(methods.TOPICS, actor, b"").reply).topics

    assert list(listed) == [each for each in there if _may_see(actor, each)]


def _may_see(actor: str, topic: str) -> bool:
    return any(may(actor, right, topic) for right in ("publish", "subscribe", "admin"))


# The broker's own topics and groups

NAMING = [each for each in METHODS if hasattr(each.request.parse(b""), "topic")]
CHANGING = (
    methods.CREATE_TOPIC,
    methods.ADD_QUEUES,
    methods.DELETE_TOPIC,
    methods.COMMIT_OFFSET,
    methods.PREPARE_MESSAGE,
)


@pytest.mark.parametrize("method", NAMING, ids=lambda method: method.name)
def test_the_brokers_own_topics_are_closed_to_every_method(shared: World, method: Method) -> None:
    """An administrator may look at them, and changes nothing."""
    for topic, actor in product(OWN_NAMES, KNOWN):
        request: Any = Requests(shared, "owner", "orders").valid(method)
        request.topic = topic
        answer = shared.call(method, actor, request.SerializeToString())

        where = f"{actor} and {topic}: {answer}"
        if actor != "admin":
            assert answer.code is Code.PERMISSION_DENIED, where
        elif method in CHANGING:
            assert answer.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND), where
        else:
            assert answer.code in (Code.OK, Code.NOT_FOUND, Code.OUT_OF_RANGE), where


@pytest.mark.parametrize("group", ["CID_RMQ_SYS_TRANS", "cid_rmq_sys_trans", "CID_RMQ_SYS_NEW"])
def test_the_brokers_own_groups_are_moved_by_nobody(shared: World, group: str) -> None:
    request = pb.CommitOffset(group=group, topic="orders", offset=10**15).SerializeToString()
    for actor in KNOWN:
        assert not shared.call(methods.COMMIT_OFFSET, actor, request).is_ok, actor


DECISIONS = (methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.END)
# An administrator may end what others prepared.
GUESSES = [
    pytest.param(actor, method, id=f"{actor}-{method.name}")
    for actor, method in product(sorted(SENDERS - {"owner"}), DECISIONS)
    if (actor, method) != ("admin", methods.END)
]


@pytest.mark.parametrize(("actor", "method"), GUESSES)
def test_a_refusal_says_the_same_of_what_is_there_and_of_what_is_not(
    world: World, actor: str, method: Method
) -> None:
    """Numbers can be counted: an answer that differed would tell which of them are somebody's."""
    owner = Requests(world, "owner", "orders", world.estates["owner"])
    there = owner.valid(method)
    assert isinstance(there, pb.Decide | pb.End)
    nowhere = type(there).FromString(there.SerializeToString())
    if isinstance(nowhere, pb.Decide):
        nowhere.receipts[0].prepared[0].start += 1000
        nowhere.receipts[0].prepared[0].end += 1000
    else:
        nowhere.half.half_offset += 1000
    told = [world.call(method, actor, request.SerializeToString()) for request in (there, nowhere)]

    assert told[0].code is told[1].code is Code.NOT_FOUND
    assert len({re.sub(r"\d+", "n", answer.details) for answer in told}) == 1
    decided = pb.Batch(owner="query:q", number=OPEN).SerializeToString()
    assert world.call(methods.IS_DECIDED, "owner", decided).reply == b""
