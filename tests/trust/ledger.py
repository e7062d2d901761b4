"""The ledger: everything in a store's log, and whether it is there by right.

The log is read to its end after every call. While one actor attacks, each new record must be one
that this actor may cause, and be what the broker would have written:

    a message     to a topic and queue that exist and that the actor may publish to, with a head and
                  properties that only the broker could have given it
    delayed       the same, for the one place that it names; in the queue of its level
    half          prepared by the actor, for places as above
    commit        a copy of a half message of the actor's, the only one
    op, journal   about half messages and batches of the actor's

Who has which right is asked of the world's rules, never of the broker.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.broker.transactions.decision_records import BatchAttempt, Decision, parse_body
from broker_core.codec.hosts import pack_host
from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.layout import COMPRESSION_MASK, MAGIC_BLANK, TRANSACTION_MASK, SysFlag
from broker_core.codec.legal_names import is_legal_topic, is_own_topic
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DELAY,
    HALF_BLOCK,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_BY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
)
from broker_core.codec.record import Record, decode_record
from broker_core.errors import CorruptRecordError
from tests.trust.line import PEER
from tests.trust.world import LOG_FILE_BYTES, may

if TYPE_CHECKING:
    from broker_core.broker.topics import TopicConfig
    from tests.trust.world import World

OWN_PROPERTIES = frozenset(
    (
        HALF_BLOCK,
        PREPARED_BY,
        TRANSACTION_CHECK_TIMES,
        TRANSACTION_PREPARED_QUEUE_OFFSET,
        REAL_TOPIC,
        REAL_QUEUE_ID,
    )
)
"""Properties that no message which can be read has, unless the broker put them there."""
LEVELS = 18
FORGED = b"<forged>"
"""The body of records that attackers put inside of other bodies: never a message of its own."""
_CLIENT_FLAGS = int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | COMPRESSION_MASK)
_SIZE_AND_MAGIC = struct.Struct(">iI")
_OFFSETS = re.compile(rb"[0-9]{1,18}(,[0-9]{1,18})*,?")


@dataclass(frozen=True)
class Half:
    """A half message: who prepared it, and the bytes of the log that it takes."""

    user: str
    start: int
    end: int


class Ledger:
    """All records of a world's log, read in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at = 0
        self._attempts: dict[str, str] = {}
        self._halves: list[Half] = []
        self._committed: set[int] = set()
        self._settled: set[int] = set()
        self._table: Mapping[str, TopicConfig] = {}
        self.read()

    def read(self, actor: str | None = None) -> tuple[list[Record], list[tuple[Record, str]]]:
        """The records since the last look, and what is wrong with them.

        With an actor nobody else has done anything since.
        """
        records = self._new_records()
        if records:
            with self._world.process.pool.broker() as broker:
                self._table = broker.catalog.table().topics
        return records, [(record, what) for record in records for what in self._note(record, actor)]

    def _new_records(self) -> list[Record]:
        """Read the files themselves: a store's reader costs more than most calls."""
        found: list[Record] = []
        end, raw, base = self._world.log_end, b"", -1
        while self._at < end:
            if self._at - self._at % LOG_FILE_BYTES != base:
                base = self._at - self._at % LOG_FILE_BYTES
                raw = (self._world.root / "commitlog" / f"{base:020d}").read_bytes()
            size, magic = _SIZE_AND_MAGIC.unpack_from(raw, self._at - base)
            if magic == MAGIC_BLANK:
                self._at = base + LOG_FILE_BYTES
                continue
            found.append(decode_record(memoryview(raw)[self._at - base :][:size]))
            self._at += size
        return found

    # One record

    def _note(self, record: Record, actor: str | None) -> Iterator[str]:
        if record.topic == BATCH_TOPIC:
            yield from self._journal(record, actor)
        elif record.topic == HALF_TOPIC:
            yield from self._half(record, actor)
        elif record.topic == OP_TOPIC:
            yield from self._op(record, actor)
        elif record.topic != SCHEDULE_TOPIC and is_own_topic(record.topic):
            if actor is not None:
                yield "nobody but the broker writes here"
        else:
            yield from self._message(record, actor)

    def _message(self, record: Record, actor: str | None) -> Iterator[str]:
        if record.body.startswith(FORGED):
            yield "it was inside of another message"
        is_commit = (record.sys_flag & TRANSACTION_MASK) == SysFlag.COMMIT
        yield from self._head(record, is_commit=is_commit)
        # A delayed message that was committed is delivered with its bits, and without its place.
        is_delivered = actor is None and DELAY in record.property_map and not record.prepared_offset
        if is_commit and not is_delivered:
            yield from self._copy(record, actor)
        try:
            _ = record.plain_body
        except CorruptRecordError as error:
            yield f"no reader gets past it: {error.__cause__}"
        if actor is not None:
            if record.store_timestamp != self._world.clock.now_ms:
                yield f"store time {record.store_timestamp} is the client's word"
            yield from self._place(actor, record.topic, record.queue_id, record.properties)
            yield from _own_properties(record, is_commit=is_commit)

    def _head(self, record: Record, *, is_commit: bool) -> Iterator[str]:
        settings = self._world.process.pool.settings
        known = (pack_host(PEER, 0), pack_host("127.0.0.1", 0), settings.store_host)
        if record.born_host not in known:
            yield f"born host {record.born_host_text} is the client's word"
        if record.store_host != settings.store_host:
            yield f"store host {record.store_host_text} is the client's word"
        if record.prepared_offset and not is_commit:
            yield f"prepared offset {record.prepared_offset} is the client's word"
        if record.sys_flag & ~(_CLIENT_FLAGS | SysFlag.COMMIT):
            yield f"system flags {record.sys_flag:#x} are the client's word"

    def _copy(self, record: Record, actor: str | None) -> Iterator[str]:
        at = record.prepared_offset
        half = self._half_around(at)
        if half is None:
            yield f"no half message lies around prepared offset {at}"
        elif actor is not None and half.user != actor:
            yield f"a half message of {half.user} was committed by {actor}"
        if at in self._committed:
            yield f"what was prepared at {at} is visible twice"
        self._committed.add(at)

    def _half_around(self, physical_offset: int) -> Half | None:
        row = bisect_right(self._halves, physical_offset, key=lambda half: half.start) - 1
        if row < 0 or physical_offset >= self._halves[row].end:
            return None
        return self._halves[row]

    # The broker's own topics

    def _half(self, record: Record, actor: str | None) -> Iterator[str]:
        properties = record.property_map
        attempt = self._attempts.get(properties.get(UNIQ_KEY, "")[:MAKER_CHARS])
        user = properties.get(PREPARED_BY, attempt or "")
        end = record.physical_offset + record.size_bytes
        self._halves.append(Half(user, record.physical_offset, end))
        if attempt is not None and PREPARED_BY in properties:
            yield f"a half message of a batch says that {user} prepared it"
        if actor is None:
            return
        if user != actor:
            yield f"a half message is {user or 'nobody'}'s, but {actor} sent it"
        if HALF_BLOCK in properties and attempt is not None:
            for inner in _unpacked(record.body):
                yield from self._place(actor, inner.topic, inner.queue_id, inner.properties)
            return
        if HALF_BLOCK in properties:
            yield "a message by itself passes for a block"
        # The last two say where it goes; before them, in one that is delayed too, where from there.
        text = record.properties.rstrip(b"\x02").split(b"\x02")
        real = parse_properties(b"\x02".join(text[-2:]))
        queue_text = real.get(REAL_QUEUE_ID, "")
        if set(real) != {REAL_TOPIC, REAL_QUEUE_ID} or not queue_text.isdigit():
            yield f"a half message does not end with its place: {text[-2:]}"
            return
        yield from self._place(actor, real[REAL_TOPIC], int(queue_text), b"\x02".join(text[:-2]))

    def _op(self, record: Record, actor: str | None) -> Iterator[str]:
        if not _OFFSETS.fullmatch(record.body):
            yield f"an op message lists {record.body[:40]!r}"
            return
        for number in map(int, record.body.strip(b",").split(b",")):
            if number >= len(self._halves):
                yield f"half message {number} was settled before it was there"
            elif actor is not None and self._halves[number].user != actor:
                yield f"half message {number} of {self._halves[number].user} was settled"
            if number in self._settled:
                yield f"half message {number} was settled twice"
            self._settled.add(number)

    def _journal(self, record: Record, actor: str | None) -> Iterator[str]:
        try:
            said = parse_body(record.body, record.physical_offset)
        except CorruptRecordError:
            yield f"a journal record makes no sense: {record.body[:60]!r}"
            return
        if record.property_map.get(TAGS) != said.tag:
            yield f"a journal record has tag {record.property_map.get(TAGS)!r}, not {said.tag!r}"
        if not isinstance(said, BatchAttempt | Decision):
            return  # of no user: how far delays are delivered, for instance
        if isinstance(said, BatchAttempt):
            known = self._attempts.setdefault(said.id, said.user)
            if known != said.user:
                yield f"attempt {said.id} of {known} was taken by {said.user}"
        if actor is not None and said.user != actor:
            yield f"a journal record is {said.user or 'nobody'}'s, but {actor} caused it"

    # Places

    def _place(self, actor: str, topic: str, queue_id: int, text: bytes) -> Iterator[str]:
        """Yield what is wrong with a destination that an actor's message has."""
        if topic == SCHEDULE_TOPIC:
            yield from self._delayed_place(actor, queue_id, text)
        elif not is_legal_topic(topic) or is_own_topic(topic):
            yield f"{topic!r} is no topic for messages"
        elif not may(actor, "publish", topic):
            yield f"{actor} may not publish to {topic!r}"
        elif not 0 <= queue_id < self._queues(topic):
            yield f"{topic!r} has no queue {queue_id}"

    def _delayed_place(self, actor: str, queue_id: int, text: bytes) -> Iterator[str]:
        said = [entry.partition(b"\x01") for entry in text.split(b"\x02")]
        places: dict[str, list[str]] = {}
        for name, _, value in said:
            places.setdefault(name.decode("utf-8", "replace"), []).append(
                value.decode("utf-8", "replace")
            )
        topics, queues = places.get(REAL_TOPIC, []), places.get(REAL_QUEUE_ID, [])
        if not 0 <= queue_id < LEVELS:
            yield f"no delay level has queue {queue_id}"
        if places.get("DELAY", [str(queue_id + 1)]) != [str(queue_id + 1)]:
            yield f"it says level {places['DELAY']} and waits in queue {queue_id}"
        if len(topics) != 1 or len(queues) != 1 or not re.fullmatch("[0-9]{1,9}", queues[0]):
            yield f"a delayed message has topics {topics} and queues {queues}"
        elif topics[0] == SCHEDULE_TOPIC:
            yield "a delayed message is for the schedule topic itself"
        else:
            yield from self._place(actor, topics[0], int(queues[0]), b"")

    def _queues(self, topic: str) -> int:
        config = self._table.get(topic)
        return 0 if config is None else config.write_queues


def _own_properties(record: Record, *, is_commit: bool) -> Iterator[str]:
    properties = record.property_map
    own = OWN_PROPERTIES.intersection(properties)
    if record.topic == SCHEDULE_TOPIC:
        own -= {REAL_TOPIC, REAL_QUEUE_ID}
    if own:
        yield f"it has properties of the broker's own: {sorted(own)}"
    said = properties.get(TRANSACTION_ID)
    if said is not None and not (is_commit and said == properties.get(UNIQ_KEY)):
        yield f"it has {TRANSACTION_ID}={said!r}"


def _unpacked(block: bytes) -> Iterator[Record]:
    at = 0
    while at < len(block):
        record = decode_record(memoryview(block)[at:])
        yield record
        at += record.size_bytes
