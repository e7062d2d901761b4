"""Valid requests of every method, as a user sends them in their own world or with stolen things.

BUILDERS has one row a method: a method without a row has no tests here, which test_rights.py
refuses. A request is a control message, or, for methods that take records, a head with records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import Record, encode_record
from broker_core.types import DEFAULT_BROKER_NAME
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.methods import PROTOCOL, Method
from tests.kit.raw_calls import sizes_of

if TYPE_CHECKING:
    from tests.trust.world import Estate, World

OWNER_ID = "query:q"
"""Names the batches of every user: query ids are no secret, and may be the same by chance."""
GROUP = "producers"
CONSUMERS = "billing"
MARK = b"<hostile>"
"""Is in every body that an attacker sends, so that what they may write can be told apart."""


@dataclass(frozen=True)
class Chunks:
    """A request that carries records: its head, whose size is filled in here, and the records."""

    head: pb.AppendHead | pb.PrepareHead
    records: tuple[bytes, ...]

    def packed(self) -> bytes:
        """All of it in one chunk."""
        return self._chunk(self.records)

    def in_two(self) -> tuple[bytes, bytes]:
        """All of it in two chunks, whose records are not split."""
        half = (len(self.records) + 1) // 2
        return (
            self._chunk(self.records[:half], has_more=True),
            pack_records(b"", sizes_of(*map(len, self.records[half:])), self._rest(half)),
        )

    def _rest(self, start: int) -> bytes:
        return b"".join(self.records[start:])

    def _chunk(self, records: tuple[bytes, ...], *, has_more: bool = False) -> bytes:
        head = deepcopy(self.head)
        head.total_bytes = head.total_bytes or sum(map(len, self.records))
        sizes = sizes_of(*map(len, records))
        return pack_records(head.SerializeToString(), sizes, b"".join(records), has_more=has_more)


Request = Message | Chunks


def attempt_id(number: int) -> str:
    return f"{number:020X}"


def plain_record(topic: str, queue_id: int, body: bytes, properties: Mapping[str, str]) -> Record:
    return Record(topic, queue_id, 0, 0, body, format_properties(properties))


def delayed(record: Record, level: int) -> Record:
    """The same message, to be delivered later: as a client sends it."""
    real = {"DELAY": str(level), "REAL_TOPIC": record.topic, "REAL_QID": str(record.queue_id)}
    return replace(
        record,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=record.properties + format_properties(real),
    )


class Requests:
    """Valid requests of one user about a topic; with `stolen`, about what another user has."""

    def __init__(self, world: World, user: str, topic: str, stolen: Estate | None = None) -> None:
        self.world = world
        self.user = user
        self.topic = topic if stolen is None else stolen.topic
        self.stolen = stolen
        self._receipt: pb.Receipt | None = None
        self._half: pb.HalfMessage | None = None

    def valid(self, method: Method) -> Request:
        """A request that the owner of what it is about would be answered."""
        return BUILDERS[method](self)

    # What requests are made of

    def batch(self) -> pb.Batch:
        return pb.Batch(owner=OWNER_ID, name="", number=7)

    def record(self, attempt: str | None = None, body: bytes = MARK) -> Record:
        """A message of the user's; with an attempt, one of a batch."""
        number = self.world.number()
        key = f"{attempt or attempt_id(number)}{number:012X}"
        properties = {"UNIQ_KEY": key, "TAGS": "A", "KEYS": f"k{number}"}
        if attempt is not None:
            properties = {"TRAN_MSG": "true", "PGROUP": GROUP, **properties}
        return plain_record(self.topic, 0, body, properties)

    def append_head(self) -> pb.AppendHead:
        head = pb.AppendHead(flush="async")
        head.request.client = self.user.encode().ljust(16, b".")
        head.request.sequence, head.request.attempt = self.world.number(), 1
        head.request.instance = self.world.process.pool.instance
        return head

    def prepare_head(self) -> pb.PrepareHead:
        attempt = attempt_id(self.world.number())
        return pb.PrepareHead(batch=self.batch(), attempt=attempt, is_first=True, flush="async")

    def appended(self, *records: Record) -> Chunks:
        return Chunks(self.append_head(), tuple(map(encode_record, records)))

    def prepared(self, head: pb.PrepareHead, *records: Record) -> Chunks:
        return Chunks(head, tuple(map(encode_record, records)))

    # What was prepared, and can be decided

    def receipt(self) -> pb.Receipt:
        """A receipt that is not spent: stolen, or of the user's own."""
        if self.stolen is not None:
            return self.stolen.receipt
        if self._receipt is None:
            head = self.prepare_head()
            request = self.prepared(head, self.record(head.attempt))
            reply = self.world.call(methods.PREPARE, self.user, request.packed()).reply
            self._receipt = pb.Receipt(
                batch=head.batch, attempt=head.attempt, prepared=[pb.Prepared.FromString(reply)]
            )
        return self._receipt

    def half(self) -> pb.HalfMessage:
        """The handle of a half message that is open: stolen, or of the user's own."""
        if self.stolen is not None:
            return self.stolen.half
        if self._half is None:
            request = _prepare_message(self).SerializeToString()
            reply = self.world.call(methods.PREPARE_MESSAGE, self.user, request).reply
            self._half = pb.HalfMessage.FromString(reply)
        return self._half

    def spent(self) -> None:
        """Forget what was prepared: a decision was answered, so it may be settled."""
        self._receipt = self._half = None

    def decide(self, receipt: pb.Receipt) -> pb.Decide:
        """A decision that is no repeat of an earlier one."""
        return pb.Decide(
            batch=receipt.batch,
            receipts=[receipt],
            run="run",
            keep=True,
            flush="async",
            fingerprint=f"f{self.world.number()}",
            conflict="write",
        )


# One row a method


def _commit_offset(by: Requests) -> Message:
    name = DEFAULT_BROKER_NAME
    return pb.CommitOffset(group=CONSUMERS, topic=by.topic, queue_id=0, offset=1, broker_name=name)


def _await(by: Requests) -> Message:
    known = [pb.QueueOffset(queue_id=0, offset=1 << 20)]
    return pb.Await(topic=by.topic, queues=known, timeout_ms=1)


def _pull(by: Requests) -> Message:
    return pb.Pull(
        topic=by.topic,
        broker_name=DEFAULT_BROKER_NAME,
        queue_id=0,
        start=0,
        end=1,
        filter=pb.Filter(tags="A"),
        batch_rows=100,
        batch_bytes=10_000,
        verify=True,
        columns=["body"],
    )


def _append(by: Requests) -> Request:
    return by.appended(by.record())


def _append_chunks(by: Requests) -> Request:
    return by.appended(by.record(), by.record())


def _prepare(by: Requests) -> Request:
    head = by.prepare_head()
    return by.prepared(head, by.record(head.attempt))


def _prepare_chunks(by: Requests) -> Request:
    head = by.prepare_head()
    return by.prepared(head, by.record(head.attempt), by.record(head.attempt))


def _prepare_message(by: Requests) -> Message:
    return pb.PrepareMessage(
        topic=by.topic,
        body=MARK,
        group=GROUP,
        tags="A",
        keys=["k"],
        properties={"colour": "red"},
        queue_id=0,
    )


def _message_id(by: Requests) -> Message:
    estate = by.stolen or by.world.estates.get(by.user) or by.world.estates["owner"]
    return pb.MessageId(message_id=estate.message_id)


BUILDERS: Mapping[Method, Callable[[Requests], Request]] = {
    methods.HELLO: lambda by: pb.HelloRequest(protocol=PROTOCOL, client="c"),
    methods.STATS: lambda by: pb.Empty(),
    methods.TOPICS: lambda by: pb.Empty(),
    methods.DESCRIBE: lambda by: pb.Topic(topic=by.topic),
    methods.CREATE_TOPIC: lambda by: pb.CreateTopic(
        topic=f"{by.topic}-{by.world.number()}", queues=1, exist_ok=True
    ),
    methods.ADD_QUEUES: lambda by: pb.AddQueues(topic=by.topic, total=2),
    methods.DELETE_TOPIC: lambda by: pb.Topic(topic=by.world.spare_topic(by.topic)),
    methods.OFFSETS: lambda by: pb.Topic(topic=by.topic),
    methods.OFFSET_AT: lambda by: pb.OffsetAt(
        topic=by.topic, queue_id=0, timestamp_ms=1, broker_name=DEFAULT_BROKER_NAME
    ),
    methods.CONSUMER_OFFSETS: lambda by: pb.Group(group=CONSUMERS, topic=by.topic),
    methods.COMMIT_OFFSET: _commit_offset,
    methods.AWAIT: _await,
    methods.PULL: _pull,
    methods.QUERY: lambda by: pb.Query(topic=by.topic, key="k", limit=8),
    methods.MESSAGE: _message_id,
    methods.APPEND: _append,
    methods.APPEND_CHUNKS: _append_chunks,
    methods.DELETE_BEFORE: lambda by: pb.DeleteBefore(physical_offset=0),
    methods.IS_DECIDED: lambda by: by.batch(),
    methods.PREPARE: _prepare,
    methods.PREPARE_CHUNKS: _prepare_chunks,
    methods.COMMIT_BATCH: lambda by: by.decide(by.receipt()),
    methods.ABORT_BATCH: lambda by: by.decide(by.receipt()),
    methods.PREPARE_MESSAGE: _prepare_message,
    methods.END: lambda by: pb.End(half=by.half(), fate="commit"),
    methods.LISTEN: lambda by: pb.Listen(group=GROUP),
    methods.CHECK_BACK: lambda by: pb.Empty(),
}


def sent_as(method: Method, request: Request) -> tuple[bytes, ...]:
    """The messages of a request on the wire; a method that takes a stream gets two."""
    if isinstance(request, Chunks):
        if method.shape is methods.Shape.REQUESTS:
            return request.in_two()
        return (request.packed(),)
    return (request.SerializeToString(),)
