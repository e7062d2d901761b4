"""Properties text of many messages, joined from columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.gather import span_arrays
from broker_core.codec.names import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_NAME_END = NAME_VALUE_SEPARATOR.encode()
_VALUE_END = PROPERTY_SEPARATOR.encode()
_NOTHING = pa.scalar(b"", type=pa.binary())

Part: TypeAlias = "bytes | pa.Array"
"""What every row has, or a column of what each row has."""


def join_properties(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> pa.Array:
    """Properties text of many messages, 0x02 after every entry.

    `pairs` name columns (null or empty: the row has no such property) or one value for all;
    `properties` is a map column whose entries are added behind them.
    """
    parts: list[Part] = []
    for name, value in pairs:
        head = name.encode() + _NAME_END
        if isinstance(value, str):
            parts += [head, value.encode(), _VALUE_END] if value else []
        elif value is not None:
            parts += _entries(head, value)
    if properties is not None:
        parts.append(_map_texts(properties))
    joined = pc.binary_join_element_wise(*_merged(parts), _NOTHING) if parts else _NOTHING
    return pa.repeat(joined, count) if isinstance(joined, pa.Scalar) else joined


def _entries(head: bytes, values: pa.Array) -> list[Part]:
    """`head value 0x02` for every row that has a value, nothing for the others."""
    raw = values.cast(pa.binary())
    _, _, lengths = span_arrays(raw)
    if bool(lengths.all()):
        return [head, raw, _VALUE_END]
    entries = pc.binary_join_element_wise(head, raw, _VALUE_END, _NOTHING)
    return [pc.if_else(pa.array(lengths > 0), entries, _NOTHING)]


def _merged(parts: list[Part]) -> list[Part]:
    """The same parts with neighbours that every row has made one: joining costs by the part."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _map_texts(column: pa.Array) -> pa.Array:
    """The entries of a map column as properties text, row by row; null values are left out."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # Where each row's entries begin among all entries, the last row's end included.
    bounds = np.frombuffer(column.buffers()[1], dtype=np.int32, offset=4 * column.offset)
    bounds = bounds[: len(column) + 1].astype(np.int64)
    first, entry_count = int(bounds[0]), int(bounds[-1] - bounds[0])
    bounds -= first
    entries = pc.binary_join_element_wise(
        column.keys.slice(first, entry_count).cast(pa.binary()),
        _NAME_END,
        column.items.slice(first, entry_count).cast(pa.binary()),
        _VALUE_END,
        _NOTHING,
    )
    is_kept = entries.is_valid().to_numpy(zero_copy_only=False)
    is_kept &= np.repeat(column.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds))
    if not is_kept.all():
        entries = entries.filter(pa.array(is_kept))
        bounds = np.concatenate([[0], np.cumsum(is_kept)])[bounds]
    data, starts, lengths = span_arrays(entries)
    begins = np.append(starts, lengths.sum())
    return pa.Array.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(begins[bounds].astype(np.int32)), pa.py_buffer(data)],
    )
