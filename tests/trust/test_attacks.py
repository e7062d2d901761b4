"""Attackers, not cases: the world after an attack is the world without the attacker.

Each actor sends every field of every method with hostile values (attacks.py). What the others are
answered, what lies in their topics, in the broker's own tables, folders and log, and how the others
go on, is compared with what it would have been. trust.md, 1 to 14, 33, 35, 36 and 38.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.wire.core import methods
from broker_core.wire.core.methods import METHODS, Method
from tests.trust.attacks import Attack, attacks, everyday, share
from tests.trust.judging import Judge
from tests.trust.world import ACTORS, TOPICS, Template, World

RECORDS = (methods.APPEND, methods.APPEND_CHUNKS)
PREPARED = (methods.PREPARE, methods.PREPARE_CHUNKS, methods.PREPARE_MESSAGE)
DECIDED = (methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.END)
FAMILIES: dict[str, tuple[Method, ...]] = {
    "append": RECORDS,
    "prepare": PREPARED,
    "decide": DECIDED,
    # All others, so that a method that is added is in one of them.
    "control": tuple(each for each in METHODS if each not in (*RECORDS, *PREPARED, *DECIDED)),
}


@pytest.mark.parametrize("actor", ACTORS)
def test_the_world_is_as_if_the_attacker_had_not_been_there(judge: Judge, actor: str) -> None:
    verdict = judge.verdict(actor, everyday)

    assert not verdict, verdict


@pytest.mark.parametrize("actor", ["stranger", "reader"])
def test_a_days_share_leaves_out_no_field(world: World, actor: str) -> None:
    all_of_them = attacks(world, actor)
    wanted = {each.field for each in all_of_them if not (each.is_of_record or each.is_dear)}

    assert wanted <= {each.field for each in share(all_of_them, actor)}


@pytest.mark.parametrize("method", [methods.APPEND, methods.PREPARE])
def test_somebody_sends_each_hostile_record_every_day(world: World, method: Method) -> None:
    by_actor = {actor: attacks(world, actor, [method]) for actor in TOPICS}
    sent = {each.label for actor in TOPICS for each in share(by_actor[actor], actor)}
    wanted = {each.label for each in by_actor["wide"] if each.is_of_record}
    # Those that name a victim differ from actor to actor, who are not all victims of all.
    named = ("orders", "next", "preparedTransactionOffset")

    assert [label for label in wanted - sent if not any(name in label for name in named)] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("actor", ACTORS)
def test_no_attack_whatever_changes_the_world(
    judge: Judge, either_way: None, actor: str, family: str
) -> None:
    def all_of_family(world: World, actor: str) -> list[Attack]:
        return attacks(world, actor, FAMILIES[family])

    verdict = judge.verdict(actor, all_of_family)

    assert not verdict, verdict


@pytest.mark.slow
@pytest.mark.parametrize("actor", ACTORS)
def test_it_is_the_same_over_a_port(tmp_path: Path, template: Template, actor: str) -> None:
    verdict = Judge(tmp_path, template, over_port=True).verdict(actor, everyday)

    assert not verdict, verdict
