"""Observation: all that other users can see of a broker, and all that the broker keeps for itself.

`observe` is taken before and after an attack. What the attacker has a right to change is left out:
messages of theirs in topics that they may publish to, offsets of groups in topics that they may
subscribe to, rows of topics that they administer or have made. The rest must be the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker_core.codec.legal_names import is_legal_topic, is_own_topic
from broker_core.codec.property_names import TRANSACTION_GROUP
from broker_core.errors import BrokerError
from broker_core.store import config_files
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from tests.trust.ledger import LEVELS
from tests.trust.requests import CONSUMERS, MARK, OWNER_ID
from tests.trust.world import (
    DECIDED,
    OPEN,
    QUEUES,
    RULES,
    TOPICS,
    Estate,
    World,
    may,
    spare_topic,
)

Observation = dict[str, Any]
_MADE = frozenset(each for topic in TOPICS.values() for each in (topic, spare_topic(topic)))
_SCHEDULED = re.compile(r"SCHEDULE_TOPIC_XXXX(/\d+)?")


def observe(world: World, attacker: str) -> Observation:
    """What there is to see, by the name of the look."""
    seen: Observation = {}
    for estate in world.victims(attacker):
        for look, found in _answers(world, estate, attacker):
            seen[f"{estate.user}: {look}"] = found
    seen |= _tables(world, attacker)
    seen["folders"] = sorted(_folders(world, attacker))
    return seen


def differences(before: Observation, after: Observation) -> list[str]:
    """What has changed, in words."""
    return [
        f"{look}: {_gone(before.get(look), after.get(look))} became"
        f" {_gone(after.get(look), before.get(look))}"
        for look in sorted(before.keys() | after.keys())
        if before.get(look) != after.get(look)
    ]


def _gone(one: Any, other: Any) -> Any:
    """What is in one and not in the other, as far as they can be taken apart."""
    if isinstance(one, list) and isinstance(other, list):
        return [each for each in one if each not in other]
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: value for key, value in one.items() if other.get(key) != value}
    return one


# What a user is answered


def _answers(world: World, estate: Estate, attacker: str) -> Iterator[tuple[str, object]]:
    topic = estate.topic
    shared = may(attacker, "publish", topic)

    def ask(method: methods.Method, request: Any) -> Any:
        answer = world.call(method, estate.user, request.SerializeToString())
        if not answer.is_ok:
            return str(answer)
        return [method.reply.parse(reply) for reply in answer.replies]

    if not may(attacker, "admin", topic):
        [listed] = ask(methods.TOPICS, pb.Empty())
        yield "topics", [name for name in listed.topics if not _may_have_row(attacker, name)]
        yield "description", ask(methods.DESCRIBE, pb.Topic(topic=topic))
    if not shared:
        yield "offsets", ask(methods.OFFSETS, pb.Topic(topic=topic))
    if not may(attacker, "subscribe", topic):
        group = pb.Group(group=CONSUMERS, topic=topic)
        yield "consumer offsets", ask(methods.CONSUMER_OFFSETS, group)
    yield "one message", ask(methods.MESSAGE, pb.MessageId(message_id=estate.message_id))
    for number in (DECIDED, OPEN, OPEN + 1):
        batch = pb.Batch(owner=OWNER_ID, number=number)
        yield f"is batch {number} decided", ask(methods.IS_DECIDED, batch)
    yield "messages", messages_of(world, estate, attacker)


def messages_of(world: World, estate: Estate, attacker: str) -> list[dict[str, Any]]:
    """The rows of an estate's topic, queue by queue, without what an attacker may have sent.

    A queue that can't be read has one row, which says why.
    """
    shared = may(attacker, "publish", estate.topic)
    found: list[dict[str, Any]] = []
    with world.process.pool.broker() as broker:
        for queue_id in range(QUEUES):
            try:
                rows = broker.read(estate.topic, queue_id).to_pylist()
            except BrokerError as error:
                rows = [{"body": str(error).encode()}]
            found += [row for row in rows if not (shared and MARK in row["body"])]
    return found


# What the broker keeps


def _tables(world: World, attacker: str) -> Observation:
    """The tables in config/, without the rows that an attacker may change."""
    seen: Observation = {}
    for path in (world.root / "config").glob("*.json"):
        document = config_files.load(path)
        table = document.get("topicConfigTable", document.get("offsetTable", {}))
        rows = {key: row for key, row in table.items() if not _may_change(attacker, path.name, key)}
        if rows:
            seen[path.name] = rows
    return seen


def _may_change(attacker: str, table: str, key: str) -> bool:
    if table == "topics.json":
        return _may_have_row(attacker, key)
    topic, is_offset, group = key.partition("@")
    is_own = is_own_topic(topic) or group == TRANSACTION_GROUP
    return bool(is_offset) and not is_own and may(attacker, "subscribe", topic)


def _may_have_row(attacker: str, topic: str) -> bool:
    """Tell whether a row may change: of an administrator's, or made by somebody who sends there."""
    if is_own_topic(topic) or not is_legal_topic(topic):
        return False
    is_new = topic not in _MADE
    return may(attacker, "admin", topic) or (is_new and may(attacker, "publish", topic))


def _folders(world: World, attacker: str) -> Iterator[str]:
    """All folders under the world's, and files beside the store, but those of topics that grow."""
    inside = world.root / "consumequeue"
    for folder, _, files in os.walk(world.base):
        path = Path(folder)
        if path.is_relative_to(inside):
            name = str(path.relative_to(inside))
            if not _may_grow(world, attacker, name):
                yield name
            continue
        yield str(path.relative_to(world.base))
        if not path.is_relative_to(world.root):
            yield from (str(path.relative_to(world.base) / name) for name in files)


def _may_grow(world: World, attacker: str, name: str) -> bool:
    """Tell whether an attacker may cause a folder of consume queues: TOPIC or TOPIC/QUEUE."""
    if _SCHEDULED.fullmatch(name):
        return int(name.partition("/")[2] or 0) < LEVELS and attacker in RULES
    topic, _, queue = name.partition("/")
    if is_own_topic(topic) or not is_legal_topic(topic) or not may(attacker, "publish", topic):
        return False
    with world.process.pool.broker() as broker:
        config = broker.catalog.table().topics.get(topic)
    return config is not None and (not queue or int(queue) < config.write_queues)
