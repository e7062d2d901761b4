"""Pulling a range: chunks that are fetched ahead, and a stream that is resumed after a break.

The broker sends as fast as the client takes; gRPC holds a few chunks at most, so the network works
while a batch is being decoded. When the connection breaks, the rest of the range is asked for
again, from the end of the last whole chunk: no message is skipped, none comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pyarrow as pa

from broker_core.codec.decode import decode
from broker_core.codec.schema import schema_of
from broker_core.codec.spans import repeated
from broker_core.errors import UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.types import ColumnBatch, LogicalOffset, OffsetRange, QueueRef
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.frames import Chunk, Flag, unpack, unpack_columns
from broker_core.wire.core.methods import PULL

if TYPE_CHECKING:
    from broker_core.clients.grpc.connection import Connection
    from broker_core.codec.frames import FrameBatch
    from broker_core.filter.pipeline import MessageFilter


def pull(
    connection: Connection,
    wanted: OffsetRange,
    message_filter: MessageFilter | None,
    request: pb.Pull,
) -> Iterator[FrameBatch]:
    """Yield the messages of a range; queue, range and filter are put into `request`."""
    for chunk in _chunks(connection, wanted, message_filter, request):
        yield chunk.frames(wanted.queue, connection.address.text)


def pull_columns(
    connection: Connection,
    wanted: OffsetRange,
    message_filter: MessageFilter | None,
    request: pb.Pull,
) -> Iterator[ColumnBatch]:
    """Yield the columns of a range that `request` names; decoded here if the broker did not.

    Columns with one value for the whole queue, or that follow from the offset, do not travel.
    """
    columns, queue = tuple(request.columns), wanted.queue
    asked = _asked(columns, is_dense=message_filter is None)
    del request.columns[:]
    request.columns.extend(asked)
    for chunk in _chunks(connection, wanted, message_filter, request):
        if chunk.flags & Flag.COLUMNS:
            sent = dict(zip(asked, unpack_columns(chunk, asked).columns, strict=True))
            rows = _completed(sent, columns, queue, chunk.next_offset)
        else:
            rows = decode(chunk.frames(queue, connection.address.text), columns, queue.broker_name)
        yield ColumnBatch(rows, LogicalOffset(chunk.next_offset))


def _asked(columns: Sequence[str], *, is_dense: bool) -> list[str]:
    """Return the columns that the broker has to send, one at least: they tell the row count."""
    known = {"topic", "brokerName", "queueId"} | ({"queueOffset"} if is_dense else set())
    return [name for name in columns if name not in known] or list(columns[:1])


def _completed(
    sent: Mapping[str, pa.Array], columns: Sequence[str], queue: QueueRef, next_offset: int
) -> pa.RecordBatch:
    """Return the columns that were sent and those that are known, in the caller's order.

    `queueOffset` is only left out where nothing is filtered: then offsets have no gaps.
    """
    count = len(next(iter(sent.values())))
    known: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: repeated(queue.topic, count),
        "brokerName": lambda: repeated(queue.broker_name, count),
        "queueId": lambda: pa.repeat(pa.scalar(queue.queue_id, type=pa.int32()), count),
        "queueOffset": lambda: pa.array(np.arange(next_offset - count, next_offset)),
    }
    arrays = [sent[name] if name in sent else known[name]() for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def _chunks(
    connection: Connection,
    wanted: OffsetRange,
    message_filter: MessageFilter | None,
    request: pb.Pull,
) -> Iterator[Chunk]:
    request.topic = wanted.queue.topic
    request.broker_name = wanted.queue.broker_name
    request.queue_id = wanted.queue.queue_id
    put_filter(request, message_filter)
    return _resumed(connection, wanted, request)


def put_filter(request: pb.Pull, message_filter: MessageFilter | None) -> None:
    """Put a filter's text into a request; the broker compiles it again."""
    if message_filter is None:
        return
    if message_filter.sql is not None:
        request.filter.sql = message_filter.sql.text
    elif message_filter.tags is not None:
        request.filter.tags = message_filter.tags.text


def _resumed(connection: Connection, wanted: OffsetRange, request: pb.Pull) -> Iterator[Chunk]:
    left = wanted
    deadline = Deadline.after_ms(connection.options.retry_ms)
    backoff = Backoff()
    while True:
        try:
            for chunk in _once(connection, left, request):
                left = replace(left, start=LogicalOffset(chunk.next_offset))
                yield chunk
                # Progress was made, and the caller may have taken long: time begins anew.
                deadline = Deadline.after_ms(connection.options.retry_ms)
                backoff.reset()
        except UnavailableError:
            connection.forget()
            if deadline.has_passed:
                raise
            backoff.pause(deadline)
        else:
            return


def _once(connection: Connection, wanted: OffsetRange, request: pb.Pull) -> Iterator[Chunk]:
    connection.greeting()
    request.start, request.end = wanted.start, wanted.end
    stream = connection.stream(PULL, request)
    try:
        while True:
            try:
                message = next(stream)
            except StopIteration:
                return
            except grpc.RpcError as error:
                raise connection.error_of(error) from error
            yield unpack(message)
    finally:
        stream.cancel()  # type: ignore[attr-defined]  # a gRPC call is an iterator that can end
