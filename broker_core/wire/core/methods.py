"""Every call of the broker service: its path, shape, request and reply; and limits of sizes.

The one table that server and client are both made from. Bulk data has the codec RAW: gRPC hands the
bytes through, and frames.py or append_result.py take them apart without a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker_core.codec.layout import MAX_BODY_BYTES, RECORD_HEADROOM_BYTES
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.append_result import ROW_BYTES

if TYPE_CHECKING:
    from google.protobuf.message import Message

SERVICE = "rocketmq.broker.v1.Broker"
PROTOCOL = 1
"""Raised by a change that older peers can't ignore."""
_MEGABYTE = 1 << 20
_SMALLEST_RECORD_BYTES = 91
_HEAD_BYTES = 64 << 10


class Shape(Enum):
    """A call by which of request and reply is a stream; values are gRPC's names."""

    UNARY = "unary_unary"
    REPLIES = "unary_stream"
    REQUESTS = "stream_unary"


@dataclass(frozen=True)
class Codec:
    """A pair of functions from a value to bytes and back."""

    serialize: Callable[[Any], bytes]
    parse: Callable[[bytes], Any]


def _same(message: bytes) -> bytes:
    return message


RAW = Codec(_same, _same)


def _messages(kind: type[Message]) -> Codec:
    return Codec(kind.SerializeToString, kind.FromString)


@dataclass(frozen=True)
class Method:
    """One call. `is_idempotent`: it may be retried, as twice changes no more than once.

    An append is idempotent by its name (service/append_dedup.py).
    """

    name: str
    request: Codec
    reply: Codec
    shape: Shape = Shape.UNARY
    is_idempotent: bool = True

    @property
    def path(self) -> str:
        """Path of the call in gRPC."""
        return f"/{SERVICE}/{self.name}"


def _control(name: str, request: type[Message], reply: type[Message], **more: Any) -> Method:
    return Method(name, _messages(request), _messages(reply), **more)


HELLO = _control("Hello", pb.HelloRequest, pb.HelloReply)
STATS = _control("Stats", pb.Empty, pb.Stats)

TOPICS = _control("Topics", pb.Empty, pb.TopicList)
DESCRIBE = _control("Describe", pb.Topic, pb.TopicInfo)
CREATE_TOPIC = _control("CreateTopic", pb.CreateTopic, pb.TopicInfo, is_idempotent=False)
ADD_QUEUES = _control("AddQueues", pb.AddQueues, pb.TopicInfo)
DELETE_TOPIC = _control("DeleteTopic", pb.Topic, pb.Empty, is_idempotent=False)

OFFSETS = _control("Offsets", pb.Topic, pb.TopicBounds)
OFFSET_AT = _control("OffsetAt", pb.OffsetAt, pb.Offset)
CONSUMER_OFFSETS = _control("ConsumerOffsets", pb.Group, pb.GroupOffsets)
COMMIT_OFFSET = _control("CommitOffset", pb.CommitOffset, pb.Empty)
AWAIT = _control("Await", pb.Await, pb.TopicBounds)

PULL = Method("Pull", _messages(pb.Pull), RAW, Shape.REPLIES)
QUERY = Method("Query", _messages(pb.Query), RAW, Shape.REPLIES)
MESSAGE = Method("Message", _messages(pb.MessageId), RAW, Shape.REPLIES)

APPEND = Method("Append", RAW, RAW)
APPEND_CHUNKS = Method("AppendChunks", RAW, RAW, Shape.REQUESTS)
DELETE_BEFORE = _control("DeleteBefore", pb.DeleteBefore, pb.Offset)

IS_DECIDED = _control("IsDecided", pb.Batch, pb.IsDecided)
PREPARE = Method("Prepare", RAW, _messages(pb.Prepared))
PREPARE_CHUNKS = Method("PrepareChunks", RAW, _messages(pb.Prepared), Shape.REQUESTS)
COMMIT_BATCH = _control("CommitBatch", pb.Decide, pb.Outcome)
ABORT_BATCH = _control("AbortBatch", pb.Decide, pb.Empty)
PREPARE_MESSAGE = _control("PrepareMessage", pb.PrepareMessage, pb.HalfMessage)
END = _control("End", pb.End, pb.Empty, is_idempotent=False)
LISTEN = Method("Listen", _messages(pb.Listen), _messages(pb.Question), Shape.REPLIES)
CHECK_BACK = _control("CheckBack", pb.Empty, pb.CheckBackReport)

METHODS: tuple[Method, ...] = (
    HELLO,
    STATS,
    TOPICS,
    DESCRIBE,
    CREATE_TOPIC,
    ADD_QUEUES,
    DELETE_TOPIC,
    OFFSETS,
    OFFSET_AT,
    CONSUMER_OFFSETS,
    COMMIT_OFFSET,
    AWAIT,
    PULL,
    QUERY,
    MESSAGE,
    APPEND,
    APPEND_CHUNKS,
    DELETE_BEFORE,
    IS_DECIDED,
    PREPARE,
    PREPARE_CHUNKS,
    COMMIT_BATCH,
    ABORT_BATCH,
    PREPARE_MESSAGE,
    END,
    LISTEN,
    CHECK_BACK,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes: of one body, of the records in a chunk, of the records in an append.

    A server says them in its Hello; both ends derive gRPC's own limits from them.
    """

    message_bytes: int = MAX_BODY_BYTES
    chunk_bytes: int = 4 * _MEGABYTE
    append_bytes: int = 128 * _MEGABYTE

    @property
    def request_bytes(self) -> int:
        """Bytes of the largest request: a chunk, or one record alone."""
        return self._with_arrays(self.chunk_bytes)

    @property
    def reply_bytes(self) -> int:
        """Bytes of the largest reply: a chunk, or the offsets of a large append."""
        rows = self.append_bytes // _SMALLEST_RECORD_BYTES
        return max(self._with_arrays(self.chunk_bytes), rows * ROW_BYTES + _HEAD_BYTES)

    def _with_arrays(self, record_bytes: int) -> int:
        largest = max(record_bytes, self.message_bytes + RECORD_HEADROOM_BYTES)
        return largest + largest // _SMALLEST_RECORD_BYTES * 12 + _HEAD_BYTES
