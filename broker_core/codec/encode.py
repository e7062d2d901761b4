"""Messages on their way into the log: columns to commit-log records, encoded as one buffer.

A structured array of big-endian headers, seen as binary of one width, is joined element-wise with
bodies, topics and properties: the joined data are the bytes to append. What is known only under
the store's lock (queue offsets, physical offsets, store time) is patched in afterwards. Large
batches are made by a compiled loop that does the same (compiled/encoding.py).
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
from broker_core.codec.header_dtype import header_dtype
from broker_core.codec.hosts import is_v6
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.columns import PropertyParts, kernel_columns
from broker_core.codec.spans import Spans, regular_offsets, sliding, spans_of
from broker_core.errors import IllegalMessageError
from broker_core.jit import arguments, kernels
from broker_core.process_settings import keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class EncodedRecords:
    """Records one after another in a writable buffer, complete but for what `patch` fills in."""

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
        """Write what only the holder of the store's lock knows."""
        if kernels.is_worth(len(self)):
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
        longs = sliding(self.buffer, ">i8")
        longs[self.starts + layout.QUEUE_OFFSET] = queue_offsets
        longs[self.starts + layout.PHYSICAL_OFFSET] = physical_offsets
        longs[self.starts + self.store_timestamp_at] = store_timestamp_ms


def record_sizes(messages: MessageBatch) -> NDArray[np.int64]:
    """How many bytes the record of each message takes."""
    topics, _ = topic_texts(messages.topics)
    texts = spans_of(messages.bodies).lengths + messages.property_parts.lengths
    return _sizes(messages, topics, texts)


def _sizes(
    messages: MessageBatch, topics: list[bytes], texts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The same, for who knows the topics' texts, and how long body and properties are together."""
    fixed = np.array([len(text) for text in topics], dtype=np.int64) + _head_bytes(messages) + 2
    return texts + (fixed[0] if len(fixed) == 1 else fixed[messages.topic_codes])


def _head_bytes(messages: MessageBatch) -> int:
    """How many bytes the fixed part of each record takes."""
    return header_dtype(len(messages.born_host), len(messages.store_host)).itemsize


def encode(
    messages: MessageBatch,
    *,
    max_message_bytes: int = layout.MAX_BODY_BYTES,
    gaps: NDArray[np.int64] | None = None,
) -> EncodedRecords:
    """Encode a batch; IllegalMessageError naming the first message over a limit.

    `gaps` are how many bytes are left before each record, and behind the last: one number more than
    there are messages. The caller fills them.
    """
    keep_freed_memory()
    count = len(messages)
    bodies, properties = spans_of(messages.bodies), messages.property_parts
    _check_limits(messages, bodies.lengths, properties.lengths, max_message_bytes)
    topics, wide = topic_texts(messages.topics)
    codes = messages.topic_codes
    sizes = _sizes(messages, topics, bodies[2] + properties.lengths)
    starts = np.cumsum(sizes) - sizes
    end = int(sizes.sum())
    if gaps is not None:
        starts += np.cumsum(gaps[:-1])
        end += int(gaps.sum())
    store_timestamp_at = layout.BORN_HOST + len(messages.born_host)
    records = EncodedRecords(
        np.empty(0, dtype=np.uint8), starts, sizes.astype(np.int32), store_timestamp_at
    )
    if kernels.is_worth(count):
        buffer = np.empty(end, dtype=np.uint8)
        _encode_compiled(buffer, messages, records, bodies, properties, topics, wide)
        return replace(records, buffer=buffer)
    heads = _heads(messages, bodies, sizes, wide[codes])
    lengths = properties.lengths.astype(">i2").view(np.uint8)
    joined = pc.binary_join_element_wise(
        *([] if gaps is None else [_blanks(gaps[:-1])]),
        fixed_binary(heads, count, _head_bytes(messages)),
        messages.bodies.cast(pa.binary()),
        topic_column(topics, codes),
        fixed_binary(lengths, count, 2),
        properties.joined(),
        pa.scalar(b"", type=pa.binary()),
    )
    buffer = writable(joined)
    if len(buffer) < end:
        buffer = np.concatenate([buffer, np.zeros(end - len(buffer), dtype=np.uint8)])
    return replace(records, buffer=buffer)


def _blanks(lengths: NDArray[np.int64]) -> pa.Array:
    """Values of zeros, so many bytes each."""
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    zeros = pa.py_buffer(bytes(int(bounds[-1])))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(bounds), zeros])


def _encode_compiled(
    buffer: NDArray[np.uint8],
    messages: MessageBatch,
    records: EncodedRecords,
    bodies: Spans,
    properties: PropertyParts,
    topics: list[bytes],
    wide: NDArray[np.bool_],
) -> None:
    """Put records in their places, by a kernel."""
    from broker_core.codec.encode_kernels import encode_records

    kind = header_dtype(len(messages.born_host), len(messages.store_host))
    template = np.zeros(1, dtype=kind)
    template["bornHost"] = np.frombuffer(messages.born_host, dtype=np.uint8)
    template["storeHost"] = np.frombuffer(messages.store_host, dtype=np.uint8)
    magics = np.where(wide, layout.MAGIC_V2, layout.MAGIC_V1).astype(np.uint32).view(np.int32)
    sys_flags = (messages.sys_flags & ~layout.HOSTS_V6_MASK) | _host_flags(messages)
    encode_records(
        buffer,
        records.starts,
        records.sizes,
        template.view(np.uint8),
        arguments.spans(*bodies),
        kernel_columns(*properties.columns()),
        properties.lengths,
        (*arguments.joined(topics), magics),
        arguments.ints(messages.topic_codes),
        (
            arguments.ints(messages.queue_ids),
            arguments.ints(messages.flags),
            arguments.ints(sys_flags),
            arguments.ints(messages.reconsume_times),
        ),
        (
            arguments.longs(messages.born_timestamps),
            arguments.longs(messages.prepared_offsets),
        ),
    )


def _check_limits(
    messages: MessageBatch,
    body_lengths: NDArray[np.int64],
    properties_lengths: NDArray[np.int64],
    max_message_bytes: int,
) -> None:
    def refuse(row: int, what: str) -> None:
        topic = messages.topics[int(messages.topic_codes[row])]
        message = f"Message {row} of this batch for topic '{topic}' {what}. Nothing was written."
        raise IllegalMessageError(message)

    for topic in messages.topics:
        if len(topic.encode()) > layout.MAX_TOPIC_BYTES:
            message = f"Topic '{topic[:40]}…' is longer than {layout.MAX_TOPIC_BYTES} bytes."
            raise IllegalMessageError(message)
    if len(body_lengths) and int(body_lengths.max()) > max_message_bytes:
        row = int((body_lengths > max_message_bytes).argmax())
        refuse(
            row,
            f"has a body of {int(body_lengths[row])} bytes, the limit is {max_message_bytes}"
            " (maxMessageSize)",
        )
    limit = layout.MAX_PROPERTIES_BYTES
    if len(properties_lengths) and int(properties_lengths.max()) > limit:
        row = int((properties_lengths > limit).argmax())
        refuse(
            row,
            f"has {int(properties_lengths[row])} bytes of properties, the limit is {limit}",
        )


def _heads(
    messages: MessageBatch,
    bodies: Spans,
    sizes: NDArray[np.int64],
    is_v2: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """The fixed parts of all records, hosts included, as one run of bytes."""
    born, stored = messages.born_host, messages.store_host
    kind = header_dtype(len(born), len(stored))
    heads = np.zeros(len(messages), dtype=kind)
    heads["size"] = sizes
    heads["magic"] = np.where(is_v2, layout.MAGIC_V2, layout.MAGIC_V1)
    heads["bodyCrc"] = body_crcs(bodies)
    heads["queueId"] = messages.queue_ids
    heads["flag"] = messages.flags
    heads["sysFlag"] = (messages.sys_flags & ~layout.HOSTS_V6_MASK) | _host_flags(messages)
    heads["bornTimestamp"] = messages.born_timestamps
    heads["bornHost"] = np.frombuffer(born, dtype=np.uint8)
    heads["storeHost"] = np.frombuffer(stored, dtype=np.uint8)
    heads["reconsumeTimes"] = messages.reconsume_times
    heads["preparedTransactionOffset"] = messages.prepared_offsets
    heads["bodyLength"] = bodies.lengths
    return heads.view(np.uint8)


def _host_flags(messages: MessageBatch) -> int:
    """The bits of SYSFLAG that say how wide the hosts are."""
    flags = layout.SysFlag.BORN_HOST_V6 if is_v6(messages.born_host) else 0
    flags |= layout.SysFlag.STORE_HOST_V6 if is_v6(messages.store_host) else 0
    return int(flags)


def fixed_binary(data: NDArray[np.uint8], count: int, width: int) -> pa.Array:
    """A run of bytes as `count` binary values of one width."""
    return pa.Array.from_buffers(
        pa.binary(), count, [None, regular_offsets(count, width), pa.py_buffer(data)]
    )


def topic_texts(topics: Sequence[str]) -> tuple[list[bytes], NDArray[np.bool_]]:
    """TOPICLENGTH and TOPIC of each topic, and whether they need a V2 record."""
    texts = [topic.encode() for topic in topics]
    wide = [len(text) > layout.MAX_TOPIC_V1 for text in texts]
    stored = [
        len(text).to_bytes(2 if is_wide else 1, "big") + text
        for text, is_wide in zip(texts, wide, strict=True)
    ]
    return stored, np.array(wide, dtype=np.bool_)


def topic_column(texts: list[bytes], codes: NDArray[np.int32]) -> pa.Array | pa.Scalar:
    """Each record's TOPICLENGTH and TOPIC."""
    if len(texts) == 1:
        return pa.scalar(texts[0], type=pa.binary())
    return pa.array(texts, type=pa.binary()).take(pa.array(codes))


def writable(joined: pa.Array) -> NDArray[np.uint8]:
    """The joined bytes; nobody else holds them, so they may be patched in place."""
    _, offsets, data = joined.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[joined.offset : joined.offset + len(joined) + 1]
    if data is None or not len(joined):
        return np.empty(0, dtype=np.uint8)
    found = np.frombuffer(data, dtype=np.uint8)[int(bounds[0]) : int(bounds[-1])]
    return found if found.flags.writeable else found.copy()
