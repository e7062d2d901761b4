"""Requests that a fuzzer sends, drawn by a seeded generator: one function a kind.

Fields, records and values are those of tests/kit/hostile.py and hostile_records.py, and valid
requests are made by requests.py; here they are drawn, joined and spoiled. What a draw needs to know
of others comes from their estates: real receipts and handles, as if every guess were right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from broker_core.codec.record import Record, decode_record
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import Flag, pack_records, unpack
from broker_core.wire.core.methods import METHODS, Method
from tests.kit.hostile import NUMBERS, TEXTS, Mutation, Values, mutations
from tests.kit.hostile_records import Facts, RecordMutation, record_mutations
from tests.trust.requests import GROUP, MARK, OWNER_ID, Chunks, Requests, attempt_id, sent_as
from tests.trust.world import Estate

OWN_TOPICS = (BATCH_TOPIC, OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, DISCARD_TOPIC, "RMQ_SYS_NEW")
WITH_RECORDS = (methods.APPEND, methods.APPEND_CHUNKS, methods.PREPARE, methods.PREPARE_CHUNKS)
FATES = ("commit", "rollback", "unknown", "", "COMMIT")
FORGED = b"<forged>"
_STOLEN = 0.4
"""Share of requests that are about what others have."""


@dataclass(frozen=True)
class Drawn:
    """A request: method, messages, and whether it is somebody else's, sent as it is."""

    method: Method
    messages: tuple[bytes, ...]
    is_theft: bool = False


@dataclass
class Known:
    """What an attacker has heard so far: estates of others, and how far the half queue goes.

    `appended` is a record of the attacker's own that is in the log.
    """

    estates: dict[str, Estate]
    half_offset: int = 0
    physical_offset: int = 0
    appended: bytes | None = None


@dataclass(frozen=True)
class Changes:
    """Every change of a request's field, or of its head's, and of a record."""

    fields: Mapping[Method, Sequence[Mutation]]
    records: Sequence[RecordMutation]

    @classmethod
    def of(cls, by: Requests, known: Known) -> Changes:
        """Return the changes of requests as `by` makes them, with what is known of others."""
        fields: dict[Method, list[Mutation]] = {}
        for method in METHODS:
            sample = by.valid(method)
            changed = sample.head if isinstance(sample, Chunks) else sample
            fields[method] = list(mutations(changed, values_of(known)))
        return cls(fields, list(record_mutations(facts_of(known))))


class Draws:
    """The requests of one attacker. `by` makes valid ones, of their own or with stolen things."""

    def __init__(
        self,
        random: Random,
        by: Callable[[Estate | None], Requests],
        known: Known,
        changes: Changes,
        topic: str,
    ) -> None:
        self._random = random
        self._by = by
        self._known = known
        self._changes = changes
        self._topic = topic

    # Kinds

    def fields(self) -> Drawn:
        """Draw a method's request with one field, or a few, that are hostile."""
        method, estate = self._random.choice(METHODS), self._victim()
        request = self._by(estate).valid(method)
        if isinstance(request, Chunks):
            request.head.total_bytes = sum(map(len, request.records))
            head, _ = self._changed(method, request.head)
            first, *rest = sent_as(method, request)
            return Drawn(method, (with_head(first, head), *rest))
        raw, is_changed = self._changed(method, request)
        is_theft = estate is not None and method is methods.END and not is_changed
        return Drawn(method, (raw,), is_theft)

    def stolen(self) -> Drawn:
        """Draw a request that its owner would be answered, as it is."""
        method = self._random.choice(METHODS)
        messages = sent_as(method, self._by(self._estate()).valid(method))
        return Drawn(method, messages, is_theft=method is methods.END)

    def noise(self) -> Drawn:
        """Draw a valid request, and change some of its bytes."""
        method = self._random.choice((*METHODS, *WITH_RECORDS))
        messages = list(sent_as(method, self._by(self._victim()).valid(method)))
        at = self._random.randrange(len(messages))
        messages[at] = self._spoiled(messages[at])
        return Drawn(method, tuple(messages))

    def records(self) -> Drawn:
        """Draw an append or a prepare with hostile records among good ones."""
        method = self._random.choice(WITH_RECORDS)
        by = self._by(None)
        request = by.valid(method)
        assert isinstance(request, Chunks)
        if isinstance(request.head, pb.PrepareHead):
            request.head.batch.number = self._random.randrange(1, 200)
            request.head.batch.name = self._random.choice(("", "", "aborted", "other"))
        good = decode_record(request.records[0])
        records = [*request.records, *self._more(good)]
        at = self._random.randrange(len(records))
        records[at] = self._hostile(decode_record(records[at]))
        if self._random.random() < 0.3:
            records[-1] = self._hostile(good)
        return Drawn(method, sent_as(method, replace(request, records=tuple(records))))

    def repeats(self) -> Drawn:
        """Draw an append that says it was sent before, with a record that was, and others."""
        request = self._by(None).valid(methods.APPEND)
        assert isinstance(request, Chunks)
        assert isinstance(request.head, pb.AppendHead)
        request.head.request.attempt = self._random.choice((2, 2, 2, 77, (1 << 32) - 1))
        if self._random.random() < 0.8:
            request.head.request.instance = b"of another server"
        good = decode_record(request.records[0])
        first = self._known.appended or request.records[0]
        if self._random.random() < 0.3:
            first = self._spoiled(first)
        count = self._random.choice((0, 1, 3, 40))
        others = [self._hostile(good) for _ in range(count)]
        records = tuple(filter(None, (first, *others)))  # a chunk holds no records of no bytes
        return Drawn(methods.APPEND, sent_as(methods.APPEND, replace(request, records=records)))

    def receipts(self) -> Drawn:
        """Draw a decision whose receipts are own, stolen, guessed, or can't be."""
        choose = self._random.choice
        own, estate = self._by(None).receipt(), self._victim() or self._estate()
        batch = choose((own.batch, estate.receipt.batch, self._guessed_batch()))
        receipts = [
            pb.Receipt(
                batch=choose((batch, batch, batch, own.batch, estate.receipt.batch)),
                attempt=choose((own.attempt, estate.receipt.attempt, attempt_id(0), "")),
                prepared=[self._range(own, estate) for _ in range(self._random.randrange(4))],
            )
            for _ in range(self._random.randrange(1, 4))
        ]
        if self._random.random() < 0.3:
            receipts.append(choose((own, estate.receipt)))
        decide = pb.Decide(
            batch=batch,
            receipts=receipts,
            run=choose(("run", "first", "")),
            keep=choose((True, False)),
            flush="async",
            fingerprint=choose(("", f"rows of {batch.number}", "f")),
            conflict=choose(("", "refuse", "repeat", "write")),
        )
        if self._random.random() < 0.2:
            decide.previous = choose((0, batch.number, *NUMBERS[:3]))
        method = choose((methods.COMMIT_BATCH, methods.ABORT_BATCH))
        return Drawn(method, (decide.SerializeToString(),))

    def handles(self) -> Drawn:
        """Draw an End with a handle that is stolen or own, whole or with guesses in it."""
        choose, known = self._random.choice, self._known
        estate = self._victim() or self._estate()
        is_stolen = self._random.random() < 0.7
        half = pb.HalfMessage()
        half.CopyFrom(estate.half if is_stolen else self._by(None).half())
        guesses: dict[str, Any] = {
            "topic": choose((self._topic, estate.topic, *OWN_TOPICS, "")),
            "queue_id": choose((-1, 0, 1, 2, (1 << 31) - 1)),
            "transaction_id": choose((estate.half.transaction_id, "", "x")),
            "group": choose((GROUP, TRANSACTION_GROUP, "", "g\x02HALF_BLOCK\x011")),
            "half_offset": choose((known.half_offset + self._random.randrange(-9, 9), *NUMBERS)),
            "physical_offset": choose(
                (known.physical_offset + self._random.randrange(-999, 999), *NUMBERS)
            ),
        }
        changed = self._random.sample(sorted(guesses), self._random.randrange(4))
        for name in changed:
            setattr(half, name, guesses[name])
        request = pb.End(half=half, fate=choose(FATES))
        is_theft = is_stolen and half == estate.half
        return Drawn(methods.END, (request.SerializeToString(),), is_theft)

    def garbage(self) -> Drawn:
        """Draw bytes that mean nothing, for any method."""
        size = self._random.choice((0, 1, 7, 40, 41, 300, 5000))
        return Drawn(self._random.choice(METHODS), (self._random.randbytes(size),))

    def valid(self, *wanted: Method) -> Drawn:
        """Draw a good request of one of some methods, about what the attacker may use."""
        method = self._random.choice(wanted)
        return Drawn(method, sent_as(method, self._by(None).valid(method)))

    # Parts

    def _estate(self) -> Estate:
        return self._random.choice(list(self._known.estates.values()))

    def _victim(self) -> Estate | None:
        return self._estate() if self._random.random() < _STOLEN else None

    def _changed(self, method: Method, request: Message) -> tuple[bytes, bool]:
        """Return a request with one change, sometimes more, and whether there is any."""
        raw, plain = b"", request.SerializeToString()
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            raw = self._random.choice(self._changes.fields[method]).apply(request)
            try:
                request = type(request).FromString(raw)
            except DecodeError:  # not UTF-8: no further change can be made
                break
        return raw, raw != plain

    def _spoiled(self, raw: bytes) -> bytes:
        random, data = self._random, bytearray(raw)
        how = random.randrange(5)
        if how == 0 or not data:
            return bytes(data[: random.randrange(len(data) + 1)]) + random.randbytes(how)
        at = random.randrange(len(data))
        if how == 1:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        elif how == 2:
            data[at : at + random.randrange(1, 9)] = b""
        else:
            for _ in range(random.randrange(1, 9)):
                data[random.randrange(len(data))] = random.randrange(256)
        return bytes(data)

    def _hostile(self, record: Record) -> bytes:
        raw = self._random.choice(self._changes.records).apply(record)
        return self._spoiled(raw) if self._random.random() < 0.2 else raw

    def _more(self, record: Record) -> list[bytes]:
        """Return some more records, hostile ones too."""
        count = self._random.choice((0, 0, 1, 3, 12))
        return [self._changes.records[0].apply(record) for _ in range(count)]

    def _guessed_batch(self) -> pb.Batch:
        choose = self._random.choice
        return pb.Batch(
            owner=choose((OWNER_ID, OWNER_ID, f"{OWNER_ID}#", "", "a\x02TAGS\x01delay#1")),
            name=choose(("", "aborted", "#", "\x02")),
            number=choose((0, 1, 7, self._random.randrange(500), *NUMBERS)),
        )

    def _range(self, own: pb.Receipt, estate: Estate) -> pb.Prepared:
        """Return a range of half messages: somebody's, near the queue's end, or impossible."""
        random, end = self._random, self._known.half_offset
        near = max(0, end + random.randrange(-20, 20))
        somebody = [*own.prepared, *estate.receipt.prepared, pb.Prepared(start=near, end=near)]
        guesses = [
            pb.Prepared(start=near, end=near + random.randrange(1, 5)),
            pb.Prepared(start=near + 5, end=near),
            pb.Prepared(start=0, end=10 ** random.randrange(1, 18)),
            pb.Prepared(start=random.choice(NUMBERS), end=random.choice(NUMBERS)),
        ]
        return random.choice(somebody + guesses)


def with_head(chunk: bytes, head: bytes) -> bytes:
    """The same chunk with another head."""
    parts = unpack(chunk)
    has_more = bool(parts.flags & Flag.MORE)
    return pack_records(head, parts.sizes, bytes(parts.records), has_more=has_more)


def values_of(known: Known) -> Values:
    """Hostile values, and names and ids of others."""
    estates = known.estates.values()
    ids = [
        text
        for estate in estates
        for text in (estate.user, estate.receipt.attempt, estate.half.transaction_id)
    ]
    topics = [text for estate in estates for text in (estate.user, estate.topic)]
    own = [text for topic in OWN_TOPICS for text in (topic, topic.lower())]
    return Values(
        texts=(*TEXTS, *ids, OWNER_ID, f"{OWNER_ID}#", GROUP, "write", "rollback", "sync"),
        names=(*own, *topics, TRANSACTION_GROUP, "missing"),
    )


def facts_of(known: Known) -> Facts:
    """What hostile records are made of."""
    return Facts(
        own_topics=[text for topic in OWN_TOPICS for text in (topic, topic.lower())],
        topics=[topic for each in known.estates.values() for topic in (each.user, each.topic)],
        prepared_offsets=[each.half.physical_offset for each in known.estates.values()],
        forged=FORGED,
        mark=MARK,
    )
