"""The aftermath: after an attack the others go on, and all is as if nobody had attacked.

Each victim sends, replays the batch that is decided, commits the one that is prepared, is asked
about the half message and ends it, and gets the delayed message. In the end each of their messages
is there once, the store is whole, and no service of the broker has failed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from broker_core.store.check.store import check
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from tests.trust.ledger import Ledger
from tests.trust.observation import messages_of
from tests.trust.requests import GROUP, Requests
from tests.trust.world import DECIDED, OPEN, Estate, World, secret_of

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


def go_on(world: World, attacker: str, ledger: Ledger) -> list[str]:
    """Let all victims go on; what is not as it would have been without the attacker."""
    complaints: list[str] = []
    expected = {}
    for estate in world.victims(attacker):
        try:
            expected[estate.user] = _work(world, estate)
        except AssertionError as error:
            complaints.append(str(error))
    complaints += _ask(world, attacker)
    complaints += _visible(world, attacker, expected)
    # Now the longest delay is over, and half messages of the attacker's have been asked about.
    world.pass_time(3 * _HOUR_MS)
    complaints += _visible(world, attacker, expected)
    complaints += [f"{record.topic}: {what}" for record, what in ledger.read()[1]]
    return complaints + world.watch.take()


def _work(world: World, estate: Estate) -> Counter[bytes]:
    """Send, replay and commit; the bodies that must be in the estate's topic in the end."""
    by = Requests(world, estate.user, estate.topic)
    bodies = [*estate.bodies, world.send(by, "after"), world.send(by, "after, too", 1)]
    again, _ = world.prepare_batch(by, DECIDED)
    outcome = world.commit(estate.user, again, "second")
    assert outcome.is_repeat, f"{estate.user}: batch {DECIDED} was committed twice"
    assert outcome.run == "first", f"{estate.user}: batch {DECIDED} was done by {outcome.run}"
    outcome = world.commit(estate.user, estate.receipt, "first")
    assert not outcome.is_repeat, f"{estate.user}: batch {OPEN} was done by {outcome.run}"
    bodies.append(secret_of(estate.user) + f": batch {OPEN}".encode())
    bodies += [secret_of(estate.user) + what for what in (b": half", b": delayed")]
    return Counter(bodies)


def _ask(world: World, attacker: str) -> list[str]:
    """Run check-back with listeners of all; what they heard and should not, or the reverse."""
    estates = world.victims(attacker)
    # An administrator may answer for others, and takes part in the turn.
    nosy = [] if attacker == "admin" else [world.line.listen(attacker, GROUP) for _ in range(3)]
    listeners = [world.line.listen(estate.user, GROUP) for estate in estates]
    nosy += [] if attacker == "admin" else [world.line.listen(attacker, GROUP)]
    world.pass_time(_MINUTE_MS)
    complaints = []
    for estate, listener in zip(estates, listeners, strict=True):
        heard = listener.end()
        own = [each for each in heard if each.body.startswith(estate.secret)]
        if len(own) != 1 or len(heard) != 1:
            what = [(each.half.topic, each.body[:60]) for each in heard]
            complaints.append(f"{estate.user} was asked about {what}, not the one half message")
            continue
        request = pb.End(half=own[0].half, fate="commit")
        answer = world.call(methods.END, estate.user, request.SerializeToString())
        if not answer.is_ok:
            complaints.append(f"{estate.user} can't end the half message: {answer}")
    for spy in nosy:
        complaints += [
            f"{attacker} heard of {each.half.topic}: {each.body[:60]!r}"
            for each in spy.end()
            if any(each.body.startswith(estate.secret) for estate in estates)
        ]
    return complaints


def _visible(world: World, attacker: str, expected: dict[str, Counter[bytes]]) -> list[str]:
    """What is missing of the victims' messages, doubled, or not theirs."""
    complaints = []
    for user, bodies in expected.items():
        rows = messages_of(world, world.estates[user], attacker)
        found = Counter(row["body"] for row in rows)
        if found != bodies:
            complaints.append(f"{user} misses {bodies - found} and has {found - bodies}")
    return complaints


def damage(root: Path) -> list[str]:
    """What `rocketmq-broker check` finds in a store that is closed."""
    return [f"check: {problem}" for problem in check(root)]
