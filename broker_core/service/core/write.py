"""Handlers of calls that write: messages, topics, consumer offsets.

Rights are asked before a handler runs (auth/method_rules.py); those of an append once its topics
are known, by admission.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, get_args

import numpy as np
from google.protobuf.message import DecodeError

from broker_core.broker.admission.records import Records
from broker_core.codec.layout import MIN_RECORD_BYTES
from broker_core.codec.legal_names import is_own_topic
from broker_core.errors import IllegalMessageError, RequestError, UnavailableError
from broker_core.service.append_dedup import AppendAttempt, AppendName
from broker_core.service.auth import method_rules
from broker_core.service.call_limits import STALL_S
from broker_core.service.core.read import topic_message
from broker_core.service.group_commit import Job
from broker_core.service.group_quota import GroupQuota, TopicQuota
from broker_core.store.few_records import FewPlaces
from broker_core.types import Flush
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.append_result import pack_append_result, pack_few_places
from broker_core.wire.core.frames import Chunk, Flag, unpack

if TYPE_CHECKING:
    from broker_core.broker.broker import EmbeddedBroker
    from broker_core.service.append_dedup import AppendDedup
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.core.rpc import Call
    from broker_core.service.group_commit import Appended, GroupCommit
    from broker_core.service.room import Claim
    from broker_core.wire.core.methods import Limits

CLIENT_NAME_BYTES = 16
_MORE, _OF_APPENDS = int(Flag.MORE), int(Flag.DENSE | Flag.MORE)
MOST_TOPICS_BY_SENDING = 4096
"""Topics from which on a send makes no more: each makes every later change of topics slower."""
PACE_BYTES_S = 256 << 10
"""Bytes that must come in a second, after the first 10 s, of a request in several chunks."""
_LEAST_CHUNK_BYTES = 2048
"""Two chunks in a row are larger than the limit of one, which is 4096 or more: a request of smaller
ones would take more memory than its bytes."""


class WriteHandlers:
    """Handlers of calls that change something."""

    def __init__(
        self,
        pool: BrokerPool,
        limits: Limits,
        group_commit: GroupCommit,
        dedup: AppendDedup,
        *,
        creates_topics: bool = False,
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._group_commit = group_commit
        self._repeats = dedup
        self._creates_topics = creates_topics
        self._group_quota = GroupQuota()
        self._topic_quota = TopicQuota(MOST_TOPICS_BY_SENDING)

    # Messages

    def append(self, request: bytes, call: Call) -> bytes:
        """Append the records of one chunk."""
        return self._append(iter((request,)), call)

    def append_chunks(self, requests: Iterable[bytes], call: Call) -> bytes:
        """Append the records of several chunks, all of them or none."""
        return self._append(iter(requests), call)

    def _append(self, requests: Iterator[bytes], call: Call) -> bytes:
        first = unpack(next(requests, b""))
        head = append_head(first)
        total = head.total_bytes
        if total > self._limits.append_bytes:
            message = (
                f"{total} bytes are too many for one append, {self._limits.append_bytes} is the "
                f"limit; send them in parts."
            )
            raise IllegalMessageError(message)
        with room_for(first, total, self._group_commit, call) as claim:
            records = join_chunks(first, requests, total, call.born_host, claim=claim)
            result = self._append_once(head, records, call)
            return _packed(result.slice(0, 0) if head.without_places else result)

    def _append_once(self, head: pb.AppendHead, records: Records, call: Call) -> Appended:
        job = Job(
            records,
            flush=head.flush or self._pool.settings.flush,
            permit=method_rules.publish_permit(call.identity),
            deadline_s=call.deadline_s,
        )
        return self._repeats.once(
            attempt_of(head),
            records,
            lambda: self._group_commit.append(job),
            call.left_s,
            user=call.identity.name,
            permit=job.permit,
        )

    def delete_before(self, request: pb.DeleteBefore, call: Call) -> pb.Offset:
        """Delete whole commit-log files that end at or before an offset."""
        with self._pool.broker() as broker:
            return pb.Offset(offset=broker.delete_before(request.physical_offset))

    # Topics

    def create_topic(self, request: pb.CreateTopic, call: Call) -> pb.TopicInfo:
        """Make a topic, for an administrator or, with autoCreateTopicEnable, for a sender."""
        if request.for_sending:
            return self._create_for_sending(request.topic, call)
        with self._pool.broker() as broker:
            info = broker.create_topic(request.topic, request.queues, exist_ok=request.exist_ok)
        return topic_message(info)

    def _create_for_sending(self, topic: str, call: Call) -> pb.TopicInfo:
        with self._pool.broker() as broker:
            if self._creates_topics and not is_own_topic(topic):
                queues = self._pool.settings.default_topic_queues
                with self._room_for(topic, broker, call):
                    return topic_message(broker.create_topic(topic, queues, exist_ok=True))
            return topic_message(broker.describe(topic))

    def _room_for(
        self, topic: str, broker: EmbeddedBroker, call: Call
    ) -> AbstractContextManager[None]:
        """Count a topic that a send makes over a block; RequestError if it is one too many."""
        known = broker.catalog.table().topics
        if topic in known:
            return nullcontext()
        if len(known) >= MOST_TOPICS_BY_SENDING:
            message = (
                f"Topic {topic} does not exist, and the broker has {len(known)} topics: from "
                f"{MOST_TOPICS_BY_SENDING} on a send makes no more. Ask an administrator for it."
            )
            raise RequestError(message)
        return self._topic_quota.making(method_rules.caller_of(call.identity).user, topic)

    def add_queues(self, request: pb.AddQueues, call: Call) -> pb.TopicInfo:
        """Add queues to a topic."""
        with self._pool.broker() as broker:
            return topic_message(broker.add_queues(request.topic, request.total))

    def delete_topic(self, request: pb.Topic, call: Call) -> pb.Empty:
        """Delete a topic; its records stay in the log."""
        with self._pool.broker() as broker:
            broker.delete_topic(request.topic)
        return pb.Empty()

    # Consumer offsets

    def commit_offset(self, request: pb.CommitOffset, call: Call) -> pb.Empty:
        """Record the next offset of a consumer group."""
        name = request.broker_name if request.HasField("broker_name") else None
        with self._pool.broker() as broker, self._quota_for(broker, request, call):
            broker.commit_offset(
                request.group,
                request.topic,
                request.queue_id,
                request.offset,
                broker_name=name,
            )
        return pb.Empty()

    @contextmanager
    def _quota_for(
        self, broker: EmbeddedBroker, request: pb.CommitOffset, call: Call
    ) -> Iterator[None]:
        """Count a group that is new to a topic against its user; not if it is refused."""
        if broker.consumer_offsets(request.group, request.topic):
            yield
            return
        user = method_rules.caller_of(call.identity).user
        self._group_quota.take(user, request.topic, broker.reader.settings)
        try:
            yield
        except BaseException:
            self._group_quota.give_back(user, request.topic)
            raise


def _packed(result: Appended) -> bytes:
    if isinstance(result, FewPlaces):
        return pack_few_places(result)
    return pack_append_result(result)


def room_for(
    first: Chunk, total_bytes: int, group_commit: GroupCommit, call: Call
) -> AbstractContextManager[Claim]:
    """Hold room for a request that begins with a chunk and announces some bytes, over a block."""
    is_coming = has_more(first)
    size = total_bytes if is_coming else len(first.records)
    return group_commit.room(size, call.deadline_s, call, is_coming=is_coming)


def append_head(first: Chunk) -> pb.AppendHead:
    """Return the head of an append; raise RequestError unless it makes sense."""
    try:
        head = pb.AppendHead.FromString(bytes(first.head))
    except DecodeError as error:
        message = "The head of an append can't be read; both ends must be of one version."
        raise RequestError(message) from error
    request = head.request
    if len(request.client) != CLIENT_NAME_BYTES or not request.attempt:
        message = "An append must be named: a client of 16 bytes, a sequence, an attempt from 1."
        raise RequestError(message)
    if head.flush and head.flush not in get_args(Flush):
        message = f"flush={head.flush!r} is not a flush mode; give 'async' or 'sync'."
        raise RequestError(message)
    return head


def attempt_of(head: pb.AppendHead) -> AppendAttempt:
    """Return the name of an append and the number of the attempt."""
    request = head.request
    name = AppendName(request.client, request.sequence)
    return AppendAttempt(name, request.attempt, request.instance)


def join_chunks(
    first: Chunk,
    rest: Iterable[bytes],
    total_bytes: int,
    born_host: bytes | None,
    monotonic: Callable[[], float] = time.monotonic,
    claim: Claim | None = None,
) -> Records:
    """Return the records of all chunks of an append; raise RequestError unless they add up.

    Room is taken for each chunk that has come. Raise UnavailableError for a client that sends less
    than 256 KiB/s: what it has sent holds room.
    """
    _require_records(first)
    held, coming = len(first.records), iter(rest)
    if claim is not None:
        claim.take(held)
    if held == total_bytes and not has_more(first):
        return Records(first.records, first.sizes, born_host)
    chunks = [first]
    most_chunks = total_bytes // _LEAST_CHUNK_BYTES + 2
    spare_s = STALL_S + held / PACE_BYTES_S
    while has_more(chunks[-1]) and held <= total_bytes and len(chunks) < most_chunks:
        asked_s = monotonic()
        request = next(coming, None)
        if request is None:
            break
        chunks.append(unpack(request))
        _require_records(chunks[-1])
        size = len(chunks[-1].records)
        held += size
        # No more than 10 s are saved up: a request with most of its bytes here has to go on too.
        spare_s = min(STALL_S, spare_s - (monotonic() - asked_s) + size / PACE_BYTES_S)
        if spare_s < 0:
            raise _too_slow(held, total_bytes)
        if claim is not None:
            claim.take(size)
    if held != total_bytes or has_more(chunks[-1]):
        message = (
            f"An append of {total_bytes} bytes came as {held}, in {len(chunks)} chunks of at most "
            f"{most_chunks}. Nothing was written."
        )
        raise RequestError(message)
    data = np.concatenate([chunk.records for chunk in chunks])
    sizes = np.concatenate([chunk.sizes for chunk in chunks])
    return Records(data, sizes, born_host)


def has_more(chunk: Chunk) -> bool:
    """Tell whether an append goes on in the next chunk."""
    return bool(int(chunk.flags) & _MORE)


def _require_records(chunk: Chunk) -> None:
    """Raise RequestError if a chunk of an append holds columns, or records of queues.

    So it does if sizes and offsets take more memory than records: room is counted by these alone.
    """
    if int(chunk.flags) & ~_OF_APPENDS:
        message = (
            f"A chunk of an append has flags {int(chunk.flags):#x}, but holds records alone. "
            "Nothing was written."
        )
        raise RequestError(message)
    arrays = chunk.sizes.nbytes + chunk.offsets.nbytes
    if arrays > len(chunk.records) + _LEAST_CHUNK_BYTES:
        message = (
            f"A chunk of an append has {len(chunk.sizes)} records in {len(chunk.records)} bytes; "
            f"a record takes {MIN_RECORD_BYTES} or more. Nothing was written."
        )
        raise RequestError(message)


def _too_slow(held: int, total_bytes: int) -> UnavailableError:
    message = (
        f"{held} of {total_bytes} bytes came with less than {PACE_BYTES_S} bytes a second, too "
        f"slow to hold room for them. Nothing was written; send them in smaller parts."
    )
    return UnavailableError(message)
