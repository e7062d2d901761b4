"""Attacks: every method × every field × hostile values, as one actor sends them.

They are made from the table of methods itself. `attacks` returns all of an actor's. `everyday` is a
share of them: each value of each field of each method is sent by somebody, and each actor tries
each field of each method. Only of those that are slow there are fewer (`Attack.is_dear`). The slow
tests send all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING
from zlib import crc32

from google.protobuf.message import DecodeError, Message

from broker_core.codec.layout import MAGIC_V2
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from broker_core.codec.record import Record, decode_record, encode_record
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import HEAD
from broker_core.wire.core.methods import METHODS, Method, Shape
from tests.kit.hostile import HUGE_TEXT, NUMBERS, TEXTS, Mutation, Values, mutations
from tests.kit.hostile_records import Facts, record_mutations
from tests.trust.ledger import FORGED
from tests.trust.requests import GROUP, MARK, OWNER_ID, Chunks, Requests, sent_as
from tests.trust.world import TOPICS, World, may

if TYPE_CHECKING:
    from tests.trust.world import Estate

OWN_TOPICS = (BATCH_TOPIC, OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, DISCARD_TOPIC, "RMQ_SYS_NEW")
ENTITLED = {"admin": (methods.DELETE_TOPIC, methods.END)}
"""Methods by which somebody may harm others by right, and which are not tried on others' things."""
LEFT_OUT = {"admin": (methods.DELETE_BEFORE, methods.CHECK_BACK)}
"""Methods that change what is everybody's, by right, whatever the request says."""
_FEW_OF = 30
"""An actor who may not write tries one of so many attacks every day."""
_DEAR = (methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.END, methods.PREPARE_MESSAGE)
_DEAR_OF = 6
"""Of attacks that are dear, one of so many is tried every day."""
_FIXED_HEAD = (
    *(("magic", 32), ("version", 8), ("flags", 8), ("reserved", 16), ("head_bytes", 32)),
    *(("count", 32), ("record_bytes", 64), ("first_offset", 63), ("next_offset", 63)),
)
"""The numbers at the beginning of a chunk, in order, and their bits (frames.HEAD)."""


@dataclass(frozen=True)
class Attack:
    """One request; `make` builds it anew each time, as ids and numbers may not repeat."""

    method: Method
    label: str
    is_stolen: bool
    make: Callable[[Requests], tuple[bytes, ...]]

    @property
    def field(self) -> tuple[Method, str]:
        """What it changes: a method, and a field of its request."""
        return self.method, self.label.partition("=")[0]

    @property
    def is_of_record(self) -> bool:
        """True if it is a record that is hostile, and not the request."""
        return self.label.startswith("record")

    @property
    def is_dear(self) -> bool:
        """True if it may decide something, which takes as long as thirty refusals.

        So may a record in one of several chunks; those of one chunk go the same way.
        """
        if self.method.shape is Shape.REQUESTS:
            return self.is_of_record
        return self.method in _DEAR and not self.is_stolen

    def __str__(self) -> str:
        kind = " with stolen things" if self.is_stolen else ""
        return f"{self.method.name}{kind}: {self.label}"


def attacks(world: World, actor: str, wanted: Collection[Method] = METHODS) -> list[Attack]:
    """All attacks of an actor by some methods, in the order of METHODS."""
    return [
        attack
        for method in METHODS
        if method in wanted
        for is_stolen in _bases(actor, method)
        for attack in _of_method(world, actor, method, is_stolen=is_stolen)
    ]


def everyday(world: World, actor: str) -> list[Attack]:
    """The share of an actor's attacks that is tried every day."""
    return share(attacks(world, actor), actor)


def share(all_of_them: Sequence[Attack], actor: str) -> list[Attack]:
    """Those attacks that are dealt to an actor, and the first by each field."""
    chosen: list[Attack] = []
    fields: set[tuple[Method, str]] = set()
    for attack in all_of_them:
        is_first = attack.field not in fields and not (attack.is_of_record or attack.is_dear)
        if is_first or _is_dealt_to(actor, attack):
            chosen.append(attack)
            fields.add(attack.field)
    return chosen


def _is_dealt_to(actor: str, attack: Attack) -> bool:
    """Tell whether it is this actor who tries an attack today, with these things."""
    number = crc32(attack.label.encode())
    if actor not in TOPICS:
        return number % _FEW_OF == 0
    if attack.is_dear:
        number, left = divmod(number, _DEAR_OF)
        if left:
            return False
    players = _players(attack.method, with_stolen=not (attack.is_of_record or attack.is_dear))
    return players[number % len(players)] == (actor, attack.is_stolen)


@cache
def _players(method: Method, *, with_stolen: bool) -> list[tuple[str, bool]]:
    """Who can attack by a method, with their own things or with stolen ones."""
    return [
        (actor, is_stolen)
        for actor in TOPICS
        for is_stolen in _bases(actor, method)
        if with_stolen or not is_stolen
    ]


def _bases(actor: str, method: Method) -> Iterator[bool]:
    """Tell whether requests begin with the actor's own things, with stolen ones, or with both."""
    if method in LEFT_OUT.get(actor, ()):
        return
    if actor in TOPICS:
        yield False
    if actor != "owner" and method not in ENTITLED.get(actor, ()):
        yield True


def requests_of(world: World, actor: str, *, is_stolen: bool) -> Requests:
    victim = world.estates["owner"]
    return Requests(world, actor, TOPICS.get(actor, "mal"), victim if is_stolen else None)


def _of_method(world: World, actor: str, method: Method, *, is_stolen: bool) -> Iterator[Attack]:
    sample = requests_of(world, actor, is_stolen=is_stolen).valid(method)
    values = values_of(world, actor)
    made = partial(Attack, method, is_stolen=is_stolen)
    if isinstance(sample, Chunks):
        for change in mutations(sample.head, values):
            yield made(f"head: {change.label}", make=partial(_with_head, method, change))
        for record_change in record_mutations(facts_of(world, actor)):
            make = partial(_with_record, method, record_change.apply)
            yield made(f"record: {record_change.label}", make=make)
        for label, change_bytes in _chunk_changes():
            yield made(f"chunk: {label}", make=partial(_with_bytes, method, change_bytes))
        return
    for change in mutations(sample, values):
        yield made(change.label, make=partial(_with_field, method, change))
    if isinstance(sample, pb.Decide) and not is_stolen:
        for label, join in _joins(world, actor):
            yield made(f"joined: {label}", make=partial(_joined, join))
    for label, noise in (("nothing", b""), ("noise", b"\xff" * 64), ("a cut", b"\x0a\x7f")):
        yield made(label, make=partial(_noise, noise))


def _noise(noise: bytes, by: Requests) -> tuple[bytes, ...]:
    del by
    return (noise,)


Join = Callable[[pb.Receipt], list[pb.Receipt]]


def _joins(world: World, actor: str) -> Iterator[tuple[str, Join]]:
    """Yield receipts that are part the actor's own, part a victim's."""
    for victim in world.victims(actor):
        other = victim.receipt
        [named] = other.prepared
        single = victim.half.half_offset
        half = pb.Prepared(start=single, end=single + 1)
        for label, before, own, behind in (
            ("range", [named], False, []),
            ("single half message", [half], False, []),
            ("range before one's own", [named], True, []),
            ("range behind one's own", [], True, [named]),
        ):
            for whose, attempt in (("own", ""), ("victim's", other.attempt)):
                join = partial(_with_ranges, before, own, behind, attempt)
                yield f"{victim.user}'s {label}, {whose} attempt", join
        yield f"{victim.user}'s receipt behind one's own", partial(_with_receipts, [], [other])
        yield f"{victim.user}'s receipt before one's own", partial(_with_receipts, [other], [])


def _with_ranges(
    before: list[pb.Prepared],
    has_own: bool,
    behind: list[pb.Prepared],
    attempt: str,
    own: pb.Receipt,
) -> list[pb.Receipt]:
    ranges = [*before, *(own.prepared if has_own else ()), *behind]
    return [pb.Receipt(attempt=attempt or own.attempt, prepared=ranges)]


def _with_receipts(
    before: list[pb.Receipt], behind: list[pb.Receipt], own: pb.Receipt
) -> list[pb.Receipt]:
    return [*before, own, *behind]


def _joined(join: Join, by: Requests) -> tuple[bytes, ...]:
    request = by.decide(by.receipt())
    receipts = [*join(by.receipt())]
    request.ClearField("receipts")
    request.receipts.extend(receipts)
    for receipt in request.receipts:
        receipt.batch.CopyFrom(request.batch)
    return (request.SerializeToString(),)


def _with_field(method: Method, change: Mutation, by: Requests) -> tuple[bytes, ...]:
    request = by.valid(method)
    assert isinstance(request, Message)
    return (change.apply(request),)


def _with_head(method: Method, change: Mutation, by: Requests) -> tuple[bytes, ...]:
    request = by.valid(method)
    assert isinstance(request, Chunks)
    # The size is part of the head, and so is to be changed; else it is the right one.
    request.head.total_bytes = sum(map(len, request.records))
    raw = change.apply(request.head)
    first, *rest = sent_as(method, _rekeyed(request, raw))
    return (_with_raw_head(first, raw), *rest)


def _rekeyed(request: Chunks, raw: bytes) -> Chunks:
    """The request with keys that begin with the attempt of another head, as they have to."""
    if not isinstance(request.head, pb.PrepareHead):
        return request
    old = request.head.attempt.encode()
    with suppress(DecodeError):
        new = pb.PrepareHead.FromString(raw).attempt.encode()
        if len(new) == len(old):
            return replace(request, records=tuple(x.replace(old, new) for x in request.records))
    return request


def _with_raw_head(chunk: bytes, head: bytes) -> bytes:
    fixed = list(HEAD.unpack_from(chunk))
    records_at = HEAD.size + (fixed[4] + 7 & ~7)
    fixed[4] = len(head)
    padded = head + bytes(-len(head) % 8)
    return HEAD.pack(*fixed) + padded + chunk[records_at:]


def _with_record(
    method: Method, change: Callable[[Record], bytes], by: Requests
) -> tuple[bytes, ...]:
    request = by.valid(method)
    assert isinstance(request, Chunks)
    # Without its checksum: that of another body is computed anew.
    hostile = change(replace(decode_record(request.records[0]), crc=None))
    records: tuple[bytes, ...] = (hostile,)
    if method.shape is Shape.REQUESTS:
        # Beside a record that is not plain, all are admitted the way that many are.
        wide = replace(decode_record(request.records[1]), version=MAGIC_V2)
        records = (hostile, encode_record(wide))
    return sent_as(method, replace(request, records=records))


def _with_bytes(
    method: Method, change: Callable[[bytes], bytes], by: Requests
) -> tuple[bytes, ...]:
    first, *rest = sent_as(method, by.valid(method))
    return (change(first), *rest)


def _chunk_changes() -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    yield "nothing", lambda chunk: b""
    yield "noise", lambda chunk: b"\x5a" * len(chunk)
    yield "cut short", lambda chunk: chunk[:-1]
    yield "a byte too long", lambda chunk: chunk + b"\x00"
    names = (
        "magic",
        "version",
        "flags",
        "",
        "head_bytes",
        "count",
        "record_bytes",
        "first",
        "next",
    )
    limits = (32, 8, 8, 16, 32, 32, 64, 63, 63)
    for at, (name, bits) in enumerate(zip(names, limits, strict=True)):
        for value in (0, 1, 2, 3, 4, 8, 16, 17, 31, 64, (1 << bits) - 1):
            if name and value < 1 << bits:
                yield f"{name}={value}", partial(_with_fixed, at, value)


def _with_fixed(at: int, value: int, chunk: bytes) -> bytes:
    fixed = list(HEAD.unpack_from(chunk))
    fixed[at] = value
    return HEAD.pack(*fixed) + chunk[HEAD.size :]


# Values of the world


def values_of(world: World, actor: str) -> Values:
    """Hostile values, and what an actor can know or guess of others."""
    victims = world.victims(actor)
    topics = [each.topic for each in victims if not may(actor, "admin", each.topic)]
    own = [text for topic in OWN_TOPICS for text in (topic, topic.lower())]
    ids, numbers = _ids(victims[0]), _numbers(world, victims[0])
    called: dict[object, str] = dict(ids.items())
    called |= dict(numbers.items())
    return Values(
        numbers=(*NUMBERS, *numbers),
        texts=(*TEXTS, *ids, "write", "commit", "rollback", "sync"),
        names=(*own, *topics, TRANSACTION_GROUP, TRANSACTION_GROUP.lower(), "missing", HUGE_TEXT),
        keys=sorted(RESERVED_PROPERTIES),
        called=called,
    )


def _ids(victim: Estate) -> dict[str, str]:
    return {
        victim.user: "victim's name",
        OWNER_ID: "victim's query",
        f"{OWNER_ID}#": "tag of the victim's decisions",
        victim.receipt.attempt: "victim's attempt",
        victim.half.transaction_id: "victim's transaction",
        victim.message_id: "victim's message",
        GROUP: "victim's group",
    }


def _numbers(world: World, victim: Estate) -> dict[int, str]:
    [prepared] = victim.receipt.prepared
    with world.process.pool.broker() as broker:
        end = broker.reader.queue_range(HALF_TOPIC, 0)[1]
    return {
        prepared.start: "victim's first half message",
        prepared.end: "after the victim's half messages",
        victim.half.half_offset: "victim's single half message",
        victim.half.physical_offset: "where that lies",
        end: "end of the half queue",
        end + 1: "after the end of the half queue",
    }


def facts_of(world: World, actor: str) -> Facts:
    own = [text for topic in OWN_TOPICS for text in (topic, topic.lower())]
    return Facts(
        own_topics=own,
        topics=[estate.topic for estate in world.victims(actor)],
        prepared_offsets=[estate.half.physical_offset for estate in world.victims(actor)],
        forged=FORGED,
        mark=MARK,
    )
