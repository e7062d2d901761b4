"""Properties text of many messages, joined from columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import compiled
from broker_core.codec.compiled import arguments
from broker_core.codec.gather import span_arrays
from broker_core.codec.names import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from broker_core.codec.compiled.arguments import Texts

_NAME_END = NAME_VALUE_SEPARATOR.encode()
_VALUE_END = PROPERTY_SEPARATOR.encode()
_NOTHING = pa.scalar(b"", type=pa.binary())
_INT32_MAX = 2**31 - 1

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
    merged = _merged(parts)
    if compiled.is_worth(count) and any(isinstance(part, pa.Array) for part in merged):
        return _join_compiled(merged, count)
    joined = pc.binary_join_element_wise(*merged, _NOTHING) if merged else _NOTHING
    return pa.repeat(joined, count) if isinstance(joined, pa.Scalar) else joined


def _join_compiled(parts: list[Part], count: int) -> pa.Array:
    """The parts of every row joined by a kernel, a few columns at a time."""
    from broker_core.codec.compiled.joining import COLUMNS

    columns: list[Texts] = []
    literals = [b""]
    while parts and (len(columns) < COLUMNS or isinstance(parts[0], bytes)):
        part = parts.pop(0)
        if isinstance(part, bytes):
            literals[-1] += part
        else:
            columns.append(arguments.texts(*span_arrays(part.cast(pa.binary()))))
            literals.append(b"")
    joined = join_texts(columns, literals, count)
    return _join_compiled([joined, *parts], count) if parts else joined


def join_texts(columns: Sequence[Texts], literals: Sequence[bytes], count: int) -> pa.Array:
    """Literals and a few columns in turn, a literal first and last, joined by a kernel."""
    from broker_core.codec.compiled.joining import COLUMNS, join_columns

    size = count * sum(map(len, literals)) + sum(int(column[2].sum()) for column in columns)
    assert size <= _INT32_MAX, "whoever writes cuts batches long before this"
    data, bounds = np.empty(size, dtype=np.uint8), np.empty(count + 1, dtype=np.int32)
    unused = arguments.texts(*span_arrays(pa.array([], type=pa.binary())))
    padded = (*columns, *[unused] * (COLUMNS - len(columns)))
    join_columns(padded, arguments.joined(literals), data, bounds)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


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
