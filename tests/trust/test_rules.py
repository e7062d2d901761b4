"""Taking away any one rule of the core is noticed: some attack then changes the world.

test_rights.py does the same with the rules of methods. While all rules stand, these attacks change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from broker_core.broker.admission import own_names, records
from broker_core.broker.admission.door import Door
from broker_core.broker.topics import TopicConfig
from broker_core.broker.transactions import half_blocks
from broker_core.broker.transactions.commit import BatchCommits
from broker_core.broker.transactions.ownership import Caller, Claims
from broker_core.service.auth import method_rules
from broker_core.service.core.transactions import _Listener
from broker_core.wire.core import methods
from broker_core.wire.core.methods import Method
from tests.trust.attacks import Attack, attacks
from tests.trust.judging import Judge
from tests.trust.world import World

Mutate = Callable[[pytest.MonkeyPatch], None]


def _always(target: object, name: str, value: object) -> Mutate:
    """A rule that gives one answer, whatever it is asked."""
    return lambda patch: patch.setattr(target, name, lambda *_, **__: value)


def _believe_blocks(patch: pytest.MonkeyPatch) -> None:
    """Take away both lines of defence: the door, and the one that makes half messages."""
    patch.setattr(records, "refuse_own_in", lambda *_: None)
    patch.setattr(half_blocks, "_checked", lambda first, *_: first.property_map)


@dataclass(frozen=True)
class Mutation:
    """A rule that is taken away, and by whom and how that is used."""

    actor: str
    tried: Collection[Method]
    labels: tuple[str, ...]
    mutate: Mutate

    def choose(self, world: World, actor: str) -> list[Attack]:
        return [
            attack
            for attack in attacks(world, actor, self.tried)
            if attack.label.startswith(self.labels)
        ]


AS_IT_IS = ("as it is", "record: as it is")
MUTATIONS: dict[str, Mutation] = {
    "what others prepared is decided": Mutation(
        "wide", [methods.COMMIT_BATCH], AS_IT_IS, _always(Caller, "may_settle", True)
    ),
    "what others prepared is rolled back": Mutation(
        "wide", [methods.ABORT_BATCH], AS_IT_IS, _always(Caller, "may_settle", True)
    ),
    "what others prepared is ended": Mutation(
        "wide", [methods.END], AS_IT_IS, _always(Caller, "may_settle", True)
    ),
    "records go to any topic": Mutation(
        "stranger", [methods.APPEND], AS_IT_IS, _always(method_rules, "publish_permit", None)
    ),
    "half messages go to any topic": Mutation(
        "stranger", [methods.PREPARE], AS_IT_IS, _always(method_rules, "publish_permit", None)
    ),
    "questions go to anybody who listens": Mutation(
        "stranger", [], (), _always(_Listener, "may_hear", True)
    ),
    "messages are told to anybody": Mutation(
        "stranger",
        [methods.MESSAGE],
        AS_IT_IS,
        lambda patch: patch.setattr(method_rules, "readable", lambda _, topics: list(topics)),
    ),
    "attempts are taken from others": Mutation(
        "stranger",
        [methods.PREPARE],
        ("head: attempt=victim",),
        _always(BatchCommits, "_require_own_attempt", None),
    ),
    "receipts name what another attempt prepared": Mutation(
        "wide",
        [methods.COMMIT_BATCH],
        ("joined: owner's range, own",),
        _always(Claims, "_require_keys", None),
    ),
    "the broker's own properties are taken": Mutation(
        "wide",
        [methods.PREPARE],
        ("record: REAL_TOPIC=1",),
        _always(records, "refuse_own_in", None),
    ),
    "a message passes for a block": Mutation(
        "stranger", [methods.PREPARE], ("record: a block for orders/0 of 17",), _believe_blocks
    ),
    "delayed messages go anywhere": Mutation(
        "wide",
        [methods.APPEND],
        ("record: delayed: REAL_TOPIC={topic} REAL_QID=abc",),
        _always(Door, "_require_delayed", None),
    ),
    "the broker's own topics are open": Mutation(
        "admin",
        [methods.DELETE_TOPIC],
        ("topic='RMQ_SYS_TRANS_BATCH",),
        _always(own_names, "is_own_topic", False),
    ),
    "the broker's own groups are open": Mutation(
        "admin",
        [methods.COMMIT_OFFSET],
        ("group='CID_RMQ",),
        _always(own_names, "is_own_group", False),
    ),
    "queues need not be there": Mutation(
        "stranger",
        [methods.APPEND],
        ("record: queueId=77",),
        lambda patch: patch.setattr(TopicConfig, "check_queue", lambda _, queue_id: queue_id),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_noticed(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutation = MUTATIONS[name]

    mutation.mutate(monkeypatch)

    found = judge.findings(mutation.actor, mutation.choose, only_first=True)
    assert found.complaints != []


def test_while_all_rules_stand_nothing_is_noticed(judge: Judge) -> None:
    def chosen(world: World, actor: str) -> list[Attack]:
        return [
            attack
            for mutation in MUTATIONS.values()
            if mutation.actor == actor
            for attack in mutation.choose(world, actor)
        ]

    for actor in {mutation.actor for mutation in MUTATIONS.values()}:
        assert judge.findings(actor, chosen).complaints == []
