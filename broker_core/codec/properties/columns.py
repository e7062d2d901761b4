"""Properties text of many messages, made of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.properties.parts import DISPATCHED, Column, Part, PropertyParts
from broker_core.codec.property_names import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from broker_core.codec.spans import spans_of

if TYPE_CHECKING:
    from broker_core.jit.arguments import KernelSpans

_NAME_END = NAME_VALUE_SEPARATOR.encode()
_VALUE_END = PROPERTY_SEPARATOR.encode()
_NOTHING = pa.scalar(b"", type=pa.binary())


def join_properties(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> pa.Array:
    """Properties text of many messages, 0x02 after every entry.

    `pairs` name columns (null or empty: the row has no such property) or one value for all;
    `properties` is a map column whose entries are added behind them.
    """
    return property_parts(pairs, count, properties).joined()


def property_parts(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> PropertyParts:
    """What the same text is joined from."""
    values: dict[str, Part] = {}
    parts: list[Part] = []
    for name, value in pairs:
        if value is None:
            continue
        given: Part = value.encode() if isinstance(value, str) else Column.of(value)
        values[name] = given
        parts += _entries(name.encode() + _NAME_END, given)
    if properties is not None:
        parts.append(Column(_map_texts(properties)))
    is_known = properties is None and len(values) == sum(value is not None for _, value in pairs)
    tags, keys, unique = (_texts(values.get(name, b""), count) for name in DISPATCHED)
    return PropertyParts(
        tuple(_merged(parts)), count, named=(tags, keys, unique) if is_known else None
    )


def _entries(head: bytes, values: Part) -> list[Part]:
    """`head value 0x02` for every row that has a value, nothing for the others."""
    if isinstance(values, bytes):
        return [head, values, _VALUE_END] if values else []
    lengths = values.texts[2]
    if bool(lengths.all()):
        return [head, values, _VALUE_END]
    entries = pc.binary_join_element_wise(head, values.array, _VALUE_END, _NOTHING)
    return [Column(pc.if_else(pa.array(lengths > 0), entries, _NOTHING))]


def _texts(values: Part, count: int) -> KernelSpans:
    """A column's texts, or one for all rows."""
    if isinstance(values, Column):
        return values.texts
    lengths = np.full(count, len(values), dtype=np.int64)
    return np.frombuffer(values, dtype=np.uint8), np.zeros(count, dtype=np.int64), lengths


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
    data, starts, lengths = spans_of(entries)
    begins = np.append(starts, lengths.sum())
    return pa.Array.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(begins[bounds].astype(np.int32)), pa.py_buffer(data)],
    )
