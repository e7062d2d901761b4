"""Copies of stored records: the same message in another queue, with other properties.

A broker copies records when it commits half messages, puts them back for another check, gives them
up, or delivers delayed ones. Body, body checksum, born time and hosts are taken over as bytes;
destination, offsets, properties and transaction bits are new. Bodies are neither inflated nor
checked: a copy is exactly as good as its original.

`_copy_joined` here copies small batches by NumPy and Arrow; its twin, the kernel `copy_originals`
(record_copy_kernels.py), copies those that `availability.is_worth`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.encode import EncodedRecords, StoredTopics, fixed_binary, writable
from broker_core.codec.layout import header_dtype
from broker_core.codec.spans import fixed_width, gather_spans
from broker_core.errors import IllegalMessageError
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.fields import RecordFields
    from broker_core.codec.message_batch import Destinations
    from broker_core.codec.spans import Spans


@dataclass(frozen=True)
class _Changes:
    """The header fields in which copies differ from their originals.

    SYSFLAG becomes (flags & keep) | put. With `forgets_retries` FLAG and RECONSUMETIMES become 0.
    """

    keep: int
    put: int
    prepared_offsets: NDArray[np.int64] | int
    forgets_retries: bool


def copy_records(
    fields: RecordFields,
    destinations: Destinations,
    properties: Spans,
    *,
    transaction: int | None,
    prepared_offsets: NDArray[np.int64] | int = 0,
    forgets_retries: bool = False,
) -> EncodedRecords:
    """Return records with the bodies and births of `fields`, these destinations and properties.

    `transaction` replaces the transaction bits of SYSFLAG, unless it is None. `forgets_retries`
    makes FLAG and RECONSUMETIMES 0, as RocketMQ does when it puts a half message back.
    IllegalMessageError for properties that are too long.
    """
    _check_lengths(properties.lengths)
    topics = StoredTopics(destinations.topics)
    header_bytes = fields.bodies.starts - fields.frames.starts
    sizes = header_bytes + fields.bodies.lengths + 2 + properties.lengths
    sizes += topics.lengths(destinations.topic_codes)
    starts = np.cumsum(sizes) - sizes
    no_bytes = np.empty(0, dtype=np.uint8)
    records = EncodedRecords(no_bytes, starts, sizes.astype(np.int32), store_time_at(fields))
    keep, put = (-1, 0) if transaction is None else (~layout.TRANSACTION_MASK, transaction)
    changes = _Changes(keep, put, prepared_offsets, forgets_retries)
    copy = _copy_compiled if availability.is_worth(len(records)) else _copy_joined
    return replace(records, buffer=copy(fields, records, destinations, topics, properties, changes))


def _check_lengths(lengths: NDArray[np.int64]) -> None:
    limit = layout.MAX_PROPERTIES_BYTES
    if int(lengths.max(initial=0)) > limit:
        row = int((lengths > limit).argmax())
        message = (
            f"The copy of message {row} of this batch would have {int(lengths[row])} bytes of "
            f"properties, the limit is {limit}. Nothing was written."
        )
        raise IllegalMessageError(message)


def _copy_compiled(
    fields: RecordFields,
    records: EncodedRecords,
    destinations: Destinations,
    topics: StoredTopics,
    properties: Spans,
    changes: _Changes,
) -> NDArray[np.uint8]:
    """Return the copies' bytes, written by a kernel; the twin of `_copy_joined`."""
    from broker_core.codec.record_copy_kernels import copy_originals

    buffer = np.empty(int(records.sizes.sum(dtype=np.int64)), dtype=np.uint8)
    copy_originals(
        buffer,
        records.starts,
        records.sizes,
        arguments.spans(fields.data, fields.frames.starts, fields.bodies.lengths),
        arguments.longs(fields.bodies.starts - fields.frames.starts),
        arguments.spans(*properties),
        topics.for_kernel(),
        arguments.ints(destinations.topic_codes),
        arguments.ints(destinations.queue_ids),
        arguments.longs(changes.prepared_offsets),
        (changes.keep, changes.put),
        changes.forgets_retries,
    )
    return buffer


def _copy_joined(
    fields: RecordFields,
    records: EncodedRecords,
    destinations: Destinations,
    topics: StoredTopics,
    properties: Spans,
    changes: _Changes,
) -> NDArray[np.uint8]:
    """Return the copies' bytes, joined by Arrow; the twin of `_copy_compiled`."""
    count, codes = len(records), destinations.topic_codes
    values = {
        "size": records.sizes,
        "magic": topics.magics[codes],
        "queueId": destinations.queue_ids,
        "sysFlag": (fields.sys_flags & np.int32(changes.keep)) | np.int32(changes.put),
        "preparedTransactionOffset": np.broadcast_to(changes.prepared_offsets, count),
    }
    if changes.forgets_retries:
        values |= dict.fromkeys(("flag", "reconsumeTimes"), np.zeros(count, dtype=np.int32))
    joined = pc.binary_join_element_wise(
        _headers(fields, values),
        gather_spans(fields.bodies),
        topics.column(codes),
        fixed_binary(properties.lengths.astype(">i2").view(np.uint8), count, 2),
        gather_spans(properties),
        pa.scalar(b"", type=pa.binary()),
    )
    return writable(joined)


def _headers(fields: RecordFields, values: dict[str, NDArray[np.integer]]) -> pa.Array:
    """Return the headers of all records, hosts included, with some fields changed."""
    if fields.is_plain:
        return _headers_of(fields, slice(None), (layout.HOST_V4, layout.HOST_V4), values)
    # Records whose hosts have other widths have another layout: one gather for each layout.
    header_bytes = fields.bodies.starts - fields.frames.starts
    born_v6 = (fields.sys_flags & layout.SysFlag.BORN_HOST_V6) != 0
    kinds = 2 * header_bytes + born_v6
    headers, rows_of_headers = [], []
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        widths = _host_widths(kind // 2, is_born_v6=bool(kind % 2))
        headers.append(_headers_of(fields, rows, widths, values))
        rows_of_headers.append(rows)
    order = np.argsort(np.concatenate(rows_of_headers), kind="stable")
    return pa.concat_arrays(headers).take(pa.array(order))


def _headers_of(
    fields: RecordFields,
    rows: NDArray[np.intp] | slice,
    widths: tuple[int, int],
    values: dict[str, NDArray[np.integer]],
) -> pa.Array:
    """Return the headers of records whose hosts have these widths."""
    kind = header_dtype(*widths)
    headers = fixed_width(fields.frames.buffer, fields.frames.starts[rows], kind.itemsize)
    view = headers.view(kind)[:, 0]
    for name, column in values.items():
        view[name] = column[rows]
    return fixed_binary(headers, len(headers), kind.itemsize)


def _host_widths(header_bytes: int, *, is_born_v6: bool) -> tuple[int, int]:
    born = layout.HOST_V6 if is_born_v6 else layout.HOST_V4
    return born, header_bytes - (layout.BODY - 2 * layout.HOST_V4) - born


def store_time_at(fields: RecordFields) -> NDArray[np.int64] | int:
    """Return the position of STORETIMESTAMP in each record; one number if none has a wide host."""
    born_v6 = (fields.sys_flags & layout.SysFlag.BORN_HOST_V6) != 0
    if not born_v6.any():
        return layout.STORE_TIMESTAMP
    at: NDArray[np.int64] = layout.STORE_TIMESTAMP + born_v6 * np.int64(layout.HOST_GROWTH)
    return at
