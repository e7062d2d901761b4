"""Copies of stored records: the same message in another queue, with other properties.

A broker copies records when it commits half messages, checks them again, gives them up, or delivers
delayed ones. What a message was born with (body, body checksum, born time, hosts) is taken over as
bytes; where it lies and what the broker says of it is new. The bodies are neither inflated nor
checked: a copy is exactly as good as its original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.encode import (
    EncodedRecords,
    fixed_binary,
    topic_column,
    topic_texts,
    writable,
)
from broker_core.codec.header_dtype import header_dtype
from broker_core.codec.spans import fixed_width, gather_spans
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.fields import RecordFields
    from broker_core.codec.spans import Spans


@dataclass(frozen=True)
class Destinations:
    """Where each of many records goes: topics[topic_codes[i]], queue queue_ids[i]."""

    topics: Sequence[str]
    topic_codes: NDArray[np.int32]
    queue_ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.queue_ids)

    @classmethod
    def to_queue(cls, topic: str, queue_id: int, count: int) -> Destinations:
        """All of `count` records to one queue."""
        nowhere_else = np.zeros(count, dtype=np.int32)
        return cls((topic,), nowhere_else, nowhere_else + np.int32(queue_id))


def copy_records(
    fields: RecordFields,
    route: Destinations,
    properties: Spans,
    *,
    transaction: int | None,
    prepared_offsets: NDArray[np.int64] | int = 0,
    forgets_retries: bool = False,
) -> EncodedRecords:
    """Records with the bodies and births of `fields`, as `route` and `properties` say.

    `transaction` replaces the transaction bits of SYSFLAG, unless it is None. `forgets_retries`
    makes FLAG and RECONSUMETIMES 0, as RocketMQ does when it puts a half message back.
    """
    count = len(route)
    texts, wide = topic_texts(route.topics)
    topic_bytes = np.array([len(text) for text in texts], dtype=np.int64)
    fixed = fields.bodies.starts - fields.frames.starts
    sizes = fixed + fields.bodies.lengths + topic_bytes[route.topic_codes] + 2 + properties.lengths
    starts = np.zeros(count, dtype=np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    nothing = np.empty(0, dtype=np.uint8)
    records = EncodedRecords(nothing, starts, sizes.astype(np.int32), store_time_at(fields))
    keep, put = -1, 0
    if transaction is not None:
        keep, put = ~layout.TRANSACTION_MASK, transaction
    magics = np.where(wide, layout.MAGIC_V2, layout.MAGIC_V1).astype(np.uint32)
    if kernels.is_worth(count):
        from broker_core.codec.record_copy_kernels import copy_originals

        buffer = np.empty(int(sizes.sum()), dtype=np.uint8)
        copy_originals(
            buffer,
            starts,
            records.sizes,
            arguments.spans(fields.data, fields.frames.starts, fields.bodies.lengths),
            arguments.longs(fixed),
            arguments.spans(*properties),
            (*arguments.joined(texts), magics.view(np.int32)),
            arguments.ints(route.topic_codes),
            arguments.ints(route.queue_ids),
            arguments.longs(prepared_offsets),
            (keep, put),
            forgets_retries,
        )
        return replace(records, buffer=buffer)
    news = {
        "size": sizes,
        "magic": magics[route.topic_codes],
        "queueId": route.queue_ids,
        "sysFlag": (fields.sys_flags & np.int32(keep)) | np.int32(put),
        "preparedTransactionOffset": np.broadcast_to(prepared_offsets, count),
    }
    if forgets_retries:
        news |= dict.fromkeys(("flag", "reconsumeTimes"), np.zeros(count, dtype=np.int32))
    joined = pc.binary_join_element_wise(
        _heads(fields, fixed, news),
        gather_spans(fields.bodies),
        topic_column(texts, route.topic_codes),
        fixed_binary(properties.lengths.astype(">i2").view(np.uint8), count, 2),
        gather_spans(properties),
        pa.scalar(b"", type=pa.binary()),
    )
    return replace(records, buffer=writable(joined))


def _heads(
    fields: RecordFields, fixed: NDArray[np.int64], news: dict[str, NDArray[np.integer]]
) -> pa.Array:
    """The fixed parts of all records, hosts included, with some fields changed."""
    if fields.is_plain:
        return _heads_of(fields, slice(None), (layout.HOST_V4, layout.HOST_V4), news)
    born_v6 = (fields.sys_flags & layout.SysFlag.BORN_HOST_V6) != 0
    kinds = 2 * fixed + born_v6
    parts, rows_of_parts = [], []
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        widths = _host_widths(kind // 2, is_born_v6=bool(kind % 2))
        parts.append(_heads_of(fields, rows, widths, news))
        rows_of_parts.append(rows)
    order = np.argsort(np.concatenate(rows_of_parts), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order))


def _heads_of(
    fields: RecordFields,
    rows: NDArray[np.intp] | slice,
    widths: tuple[int, int],
    news: dict[str, NDArray[np.integer]],
) -> pa.Array:
    """The fixed parts of records whose hosts have these widths."""
    kind = header_dtype(*widths)
    heads = fixed_width(fields.frames.buffer, fields.frames.starts[rows], kind.itemsize)
    view = heads.view(kind)[:, 0]
    for name, values in news.items():
        view[name] = values[rows]
    return fixed_binary(heads, len(heads), kind.itemsize)


def _host_widths(fixed_bytes: int, *, is_born_v6: bool) -> tuple[int, int]:
    born = layout.HOST_V6 if is_born_v6 else layout.HOST_V4
    return born, fixed_bytes - (layout.BODY - 2 * layout.HOST_V4) - born


def store_time_at(fields: RecordFields) -> NDArray[np.int64] | int:
    """Where STORETIMESTAMP lies in each record."""
    born_v6 = (fields.sys_flags & layout.SysFlag.BORN_HOST_V6) != 0
    if not born_v6.any():
        return layout.STORE_TIMESTAMP
    at: NDArray[np.int64] = layout.STORE_TIMESTAMP + born_v6 * np.int64(layout.HOST_GROWTH)
    return at
