"""Properties text of many messages, joined from columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.gather import span_arrays
from broker_core.codec.names import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from numpy.typing import NDArray


def join_properties(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> pa.Array:
    """Properties text of many messages, 0x02 after every entry.

    `pairs` name columns (null or empty: the row has no such property) or one value for all;
    `properties` is a map column whose entries are added behind them.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for name, value in pairs:
        if value is None or (isinstance(value, str) and not value):
            continue
        head = f"{name}{NAME_VALUE_SEPARATOR}".encode()
        if isinstance(value, str):
            parts.append(pa.scalar(head + value.encode() + PROPERTY_SEPARATOR.encode()))
        else:
            parts.append(_entry_column(head, value))
    if properties is not None:
        parts.append(_map_texts(properties))
    if not parts:
        return pa.repeat(pa.scalar(b"", type=pa.binary()), count)
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))
    return pa.repeat(joined, count) if isinstance(joined, pa.Scalar) else joined


def _entry_column(head: bytes, values: pa.Array) -> pa.Array:
    """`head value 0x02` for every row that has a value, nothing for the others."""
    raw = values.cast(pa.binary())
    entries = pc.binary_join_element_wise(
        pa.scalar(head), raw, pa.scalar(PROPERTY_SEPARATOR.encode()), pa.scalar(b"")
    )
    _, _, lengths = span_arrays(raw)
    if bool((lengths > 0).all()):
        return entries
    return pc.if_else(pa.array(lengths > 0), entries, pa.scalar(b"", type=pa.binary()))


def _map_texts(column: pa.Array) -> pa.Array:
    """The entries of a map column as properties text, row by row."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    bounds = np.frombuffer(column.buffers()[1], dtype=np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    entries = pc.binary_join_element_wise(
        column.keys.slice(first, last - first).cast(pa.binary()),
        pa.scalar(NAME_VALUE_SEPARATOR.encode()),
        column.items.slice(first, last - first).cast(pa.binary()),
        pa.scalar(PROPERTY_SEPARATOR.encode()),
        pa.scalar(b""),
    )
    if column.null_count:
        counts = np.diff(bounds)
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        keep = np.repeat(~nulls, counts)
        entries = entries.filter(pa.array(keep))
        bounds = np.concatenate([[0], np.cumsum(np.where(nulls, 0, counts))])
        first = 0
    # An entry without a value (null) is not stored; joined with null it has become null.
    data, starts, lengths = span_arrays(entries)
    ends = np.concatenate([[starts[0] if len(starts) else 0], starts + lengths])
    if entries.null_count:
        return _map_texts_with_nulls(column, entries, bounds - first)
    offsets = ends[bounds - first].astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _map_texts_with_nulls(
    column: pa.Array, entries: pa.Array, bounds: NDArray[np.int64]
) -> pa.Array:
    present = np.concatenate([[0], np.cumsum(~entries.is_null().to_numpy(zero_copy_only=False))])
    kept = entries.drop_null()
    data, starts, lengths = span_arrays(kept)
    ends = np.concatenate([[starts[0] if len(starts) else 0], starts + lengths])
    offsets = ends[present[bounds]].astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
