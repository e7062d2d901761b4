"""Encode: columns of messages to commit-log records, in one buffer.

One rule, three twins, held equal by property tests: `encode_record` (record.py) for one record,
`_encode_joined` here for small batches, and the kernel `encode_records` (encode_kernels.py) for
batches that are worth it.

A record is header, body, topic, properties. The joined way fills a structured array of big-endian
headers, sees it as binary values of one width, and lets Arrow join it element-wise with the other
columns: the joined data are the bytes to append.

Queue offset, physical offset and store time are known only under the store's lock. Records are
encoded outside of it with zeros there, and `EncodedRecords.patch` writes the three under the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.hosts import is_v6
from broker_core.codec.layout import header_dtype
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.spans import Spans, regular_offsets, sliding, spans_of
from broker_core.errors import IllegalMessageError
from broker_core.jit import arguments, availability
from broker_core.process_settings import keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode_kernels import KernelTopics

_NO_BYTES = np.empty(0, dtype=np.uint8)
_NOTHING = pa.scalar(b"", type=pa.binary())


@dataclass(frozen=True)
class EncodedRecords:
    """Records in a writable buffer, complete but for the fields that `patch` writes.

    `store_timestamp_at` is the position of STORETIMESTAMP in a record, which moves with the width
    of the born host: one number for all records, or one for each.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    store_timestamp_at: int | NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def patch(
        self,
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        store_timestamp_ms: int,
    ) -> None:
        """Write offsets and store time, which only the holder of the store's lock knows."""
        if availability.is_worth(len(self)):
            from broker_core.codec.encode_kernels import patch_records

            patch_records(
                self.buffer,
                arguments.longs(self.starts),
                arguments.longs(queue_offsets),
                arguments.longs(physical_offsets),
                arguments.longs(self.store_timestamp_at),
                store_timestamp_ms,
            )
            return
        # A view with an item at every byte: one assignment writes a field of all records.
        longs = sliding(self.buffer, ">i8")
        longs[self.starts + layout.QUEUE_OFFSET] = queue_offsets
        longs[self.starts + layout.PHYSICAL_OFFSET] = physical_offsets
        longs[self.starts + self.store_timestamp_at] = store_timestamp_ms


class StoredTopics:
    """Topics as records store them: TOPICLENGTH and TOPIC, and the magic number each needs.

    TOPICLENGTH has one byte, and two where the topic is longer than 127 bytes: a V2 record.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        texts = [topic.encode() for topic in topics]
        is_v2 = [len(text) > layout.MAX_TOPIC_V1 for text in texts]
        self.texts = [
            len(text).to_bytes(2 if is_wide else 1, "big") + text
            for text, is_wide in zip(texts, is_v2, strict=True)
        ]
        self.magics = np.where(is_v2, layout.MAGIC_V2, layout.MAGIC_V1).astype(np.uint32)

    def lengths(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the bytes that the topic of each record takes, its length field included."""
        lengths = np.array([len(text) for text in self.texts], dtype=np.int64)
        return lengths[codes]

    def column(self, codes: NDArray[np.int32]) -> pa.Array | pa.Scalar:
        """Return TOPICLENGTH and TOPIC of each record; one topic for all is a scalar."""
        if len(self.texts) == 1:
            return pa.scalar(self.texts[0], type=pa.binary())
        return pa.array(self.texts, type=pa.binary()).take(pa.array(codes))

    def for_kernel(self) -> KernelTopics:
        """Return the topics as kernels take them."""
        return *arguments.joined(self.texts), self.magics.view(np.int32)


def record_sizes(messages: MessageBatch) -> NDArray[np.int64]:
    """Return the size in bytes of each message's record."""
    return _sizes(messages, spans_of(messages.bodies), StoredTopics(messages.topics))


def _sizes(messages: MessageBatch, bodies: Spans, topics: StoredTopics) -> NDArray[np.int64]:
    variable = bodies.lengths + messages.property_parts.lengths
    return variable + topics.lengths(messages.topic_codes) + (_header_bytes(messages) + 2)


def _header_bytes(messages: MessageBatch) -> int:
    return header_dtype(len(messages.born_host), len(messages.store_host)).itemsize


def encode(
    messages: MessageBatch,
    *,
    max_message_bytes: int = layout.MAX_BODY_BYTES,
    gaps: NDArray[np.int64] | None = None,
) -> EncodedRecords:
    """Encode a batch; IllegalMessageError naming the first message over a limit.

    `gaps` leaves that many bytes free before each record and behind the last one: it has one number
    more than there are messages. The caller fills the gaps.
    """
    keep_freed_memory()
    bodies, topics = spans_of(messages.bodies), StoredTopics(messages.topics)
    # Limits and sizes first: a batch is refused before a byte is written, and every record has its
    # position before it is written, so that the kernel fills one buffer in any order.
    _check_limits(messages, bodies.lengths, max_message_bytes)
    sizes = _sizes(messages, bodies, topics)
    starts = np.cumsum(sizes) - sizes
    end = int(sizes.sum())
    if gaps is not None:
        starts += np.cumsum(gaps[:-1])
        end += int(gaps.sum())
    store_timestamp_at = layout.BORN_HOST + len(messages.born_host)
    records = EncodedRecords(_NO_BYTES, starts, sizes.astype(np.int32), store_timestamp_at)
    if availability.is_worth(len(messages)):
        buffer = _encode_compiled(messages, records, bodies, topics, end)
    else:
        buffer = _encode_joined(messages, records, bodies, topics, gaps)
    return replace(records, buffer=buffer)


def _encode_joined(
    messages: MessageBatch,
    records: EncodedRecords,
    bodies: Spans,
    topics: StoredTopics,
    gaps: NDArray[np.int64] | None,
) -> NDArray[np.uint8]:
    """Return the records' bytes, joined by Arrow; the twin of `_encode_compiled`."""
    count, properties = len(messages), messages.property_parts
    headers = _headers(messages, bodies, records.sizes, topics.magics[messages.topic_codes])
    joined = pc.binary_join_element_wise(
        *([] if gaps is None else [_zeros(gaps[:-1])]),
        fixed_binary(headers, count, _header_bytes(messages)),
        messages.bodies.cast(pa.binary()),
        topics.column(messages.topic_codes),
        fixed_binary(properties.lengths.astype(">i2").view(np.uint8), count, 2),
        properties.joined(),
        _NOTHING,  # the last argument is the separator
    )
    # Gaps are joined as a column before each record; the last one has no record behind it.
    buffer = writable(joined)
    if gaps is None or not gaps[-1]:
        return buffer
    return np.concatenate([buffer, np.zeros(int(gaps[-1]), dtype=np.uint8)])


def _encode_compiled(
    messages: MessageBatch,
    records: EncodedRecords,
    bodies: Spans,
    topics: StoredTopics,
    end: int,
) -> NDArray[np.uint8]:
    """Return the records' bytes, written by a kernel; the twin of `_encode_joined`."""
    from broker_core.codec.encode_kernels import encode_records

    properties = messages.property_parts
    kind = header_dtype(len(messages.born_host), len(messages.store_host))
    template = np.zeros(1, dtype=kind)
    template["bornHost"] = np.frombuffer(messages.born_host, dtype=np.uint8)
    template["storeHost"] = np.frombuffer(messages.store_host, dtype=np.uint8)
    # Not zeroed: the kernel writes every byte of every record, and the caller fills the gaps.
    buffer = np.empty(end, dtype=np.uint8)
    encode_records(
        buffer,
        records.starts,
        records.sizes,
        template.view(np.uint8),
        arguments.spans(*bodies),
        properties.for_kernel(),
        properties.lengths,
        topics.for_kernel(),
        arguments.ints(messages.topic_codes),
        (
            arguments.ints(messages.queue_ids),
            arguments.ints(messages.flags),
            arguments.ints(_stored_flags(messages)),
            arguments.ints(messages.reconsume_times),
        ),
        (
            arguments.longs(messages.born_timestamps),
            arguments.longs(messages.prepared_offsets),
        ),
    )
    return buffer


def _check_limits(
    messages: MessageBatch, body_lengths: NDArray[np.int64], max_message_bytes: int
) -> None:
    def refuse(row: int, what: str) -> None:
        topic = messages.topics[int(messages.topic_codes[row])]
        message = f"Message {row} of this batch for topic '{topic}' {what}. Nothing was written."
        raise IllegalMessageError(message)

    for topic in messages.topics:
        if len(topic.encode()) > layout.MAX_TOPIC_BYTES:
            message = f"Topic '{topic[:40]}…' is longer than {layout.MAX_TOPIC_BYTES} bytes."
            raise IllegalMessageError(message)
    if int(body_lengths.max(initial=0)) > max_message_bytes:
        row = int((body_lengths > max_message_bytes).argmax())
        refuse(
            row,
            f"has a body of {int(body_lengths[row])} bytes, the limit is {max_message_bytes}"
            " (maxMessageSize)",
        )
    lengths, limit = messages.property_parts.lengths, layout.MAX_PROPERTIES_BYTES
    if int(lengths.max(initial=0)) > limit:
        row = int((lengths > limit).argmax())
        refuse(row, f"has {int(lengths[row])} bytes of properties, the limit is {limit}")


def _headers(
    messages: MessageBatch,
    bodies: Spans,
    sizes: NDArray[np.int32],
    magics: NDArray[np.uint32],
) -> NDArray[np.uint8]:
    """Return the headers of all records, hosts included, one behind the other."""
    born, stored = messages.born_host, messages.store_host
    headers = np.zeros(len(messages), dtype=header_dtype(len(born), len(stored)))
    headers["size"] = sizes
    headers["magic"] = magics
    headers["bodyCrc"] = body_crcs(bodies)
    headers["queueId"] = messages.queue_ids
    headers["flag"] = messages.flags
    headers["sysFlag"] = _stored_flags(messages)
    headers["bornTimestamp"] = messages.born_timestamps
    headers["bornHost"] = np.frombuffer(born, dtype=np.uint8)
    headers["storeHost"] = np.frombuffer(stored, dtype=np.uint8)
    headers["reconsumeTimes"] = messages.reconsume_times
    headers["preparedTransactionOffset"] = messages.prepared_offsets
    headers["bodyLength"] = bodies.lengths
    return headers.view(np.uint8)


def _stored_flags(messages: MessageBatch) -> NDArray[np.int32] | int:
    """Return SYSFLAG with the bits that say how wide the hosts are, whatever the caller set."""
    # The hosts decide, not the caller: readers derive every position behind them from these bits.
    widths = layout.SysFlag.BORN_HOST_V6 if is_v6(messages.born_host) else 0
    widths |= layout.SysFlag.STORE_HOST_V6 if is_v6(messages.store_host) else 0
    return (messages.sys_flags & ~layout.HOSTS_V6_MASK) | int(widths)


def _zeros(lengths: NDArray[np.int64]) -> pa.Array:
    """Return binary values of zeros, of these lengths."""
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    zeros = pa.py_buffer(bytes(int(bounds[-1])))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(bounds), zeros])


def fixed_binary(data: NDArray[np.uint8], count: int, width: int) -> pa.Array:
    """Return `count` binary values of one width, over the same bytes."""
    return pa.Array.from_buffers(
        pa.binary(), count, [None, regular_offsets(count, width), pa.py_buffer(data)]
    )


def writable(joined: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of an array that was just joined, as a buffer that can be patched.

    Arrow made the buffer for this array alone, so writing into it changes nothing else.
    """
    _, offsets, data = joined.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[joined.offset : joined.offset + len(joined) + 1]
    if data is None or not len(joined):
        return _NO_BYTES
    found = np.frombuffer(data, dtype=np.uint8)[int(bounds[0]) : int(bounds[-1])]
    return found if found.flags.writeable else found.copy()
