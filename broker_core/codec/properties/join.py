"""Properties texts of many messages, made of columns; text.py is the twin for one message.

Texts are kept as the parts that they are joined from: literals that every row has (names and
separators), and columns. Encoding puts the parts straight into the records, so that the joined
texts never exist on the bulk path. Where texts are needed, `PropertyParts.joined` makes them: by
Arrow, or by the kernel `join_columns` (join_kernels.py) for batches that are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.property_names import (
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
)
from broker_core.codec.spans import spans_of
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.properties.join_kernels import KernelParts
    from broker_core.jit.arguments import KernelSpans

    DispatchValues = tuple[KernelSpans, KernelSpans, KernelSpans]
    """Each row's values of DISPATCH_PROPERTIES, in that order."""

DISPATCH_PROPERTIES = (TAGS, KEYS, UNIQ_KEY)
"""The properties that dispatch hashes, for consume queues and index files."""

_INT32_MAX = 2**31 - 1
_NAME_END = NAME_VALUE_SEPARATOR.encode()
_VALUE_END = PROPERTY_SEPARATOR.encode()
_NOTHING = pa.scalar(b"", type=pa.binary())


@dataclass(frozen=True)
class Column:
    """A binary column, and the spans of its texts, computed once."""

    array: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> Column:
        """Return a column of strings or bytes as a binary one."""
        return cls(array.cast(pa.binary()))

    @cached_property
    def texts(self) -> KernelSpans:
        """Data, starts, lengths; nulls have length 0."""
        return arguments.spans(*spans_of(self.array))


Part: TypeAlias = bytes | Column
"""A literal that every row has, or a column."""


@dataclass(frozen=True)
class PropertyParts:
    """Properties texts of `count` messages, as the parts that they are joined from, in order.

    `dispatch_values` are tags, keys and unique key of each row, empty where a row has none; None if
    only the texts tell. They agree with the texts unless a value contains 0x02, which ends a value.
    """

    parts: tuple[Part, ...]
    count: int
    dispatch_values: DispatchValues | None = None

    @classmethod
    def of(cls, properties: pa.Array | PropertyParts) -> PropertyParts:
        """Return parts as they are, and joined texts as one part."""
        if isinstance(properties, PropertyParts):
            return properties
        return cls((Column.of(properties),), len(properties))

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """The bytes of all parts, an estimate of those of the texts."""
        return sum(
            self.count * len(part) if isinstance(part, bytes) else int(part.array.nbytes)
            for part in self.parts
        )

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each text in bytes."""
        literal = sum(len(part) for part in self.parts if isinstance(part, bytes))
        lengths = np.full(self.count, literal, dtype=np.int64)
        for part in self.parts:
            if isinstance(part, Column):
                lengths += part.texts[2]
        return lengths

    def slice(self, start: int, length: int) -> PropertyParts:
        """Return `length` rows from `start` on, over the same buffers."""
        rows = slice(start, start + length)
        values = None
        if self.dispatch_values is not None:
            tags, keys, unique = (
                (data, starts[rows], lengths[rows])
                for data, starts, lengths in self.dispatch_values
            )
            values = tags, keys, unique
        parts = (
            part if isinstance(part, bytes) else Column(part.array.slice(start, length))
            for part in self.parts
        )
        return PropertyParts(tuple(parts), len(range(self.count)[rows]), values)

    def joined(self) -> pa.Array:
        """Return the texts."""
        columns = [part for part in self.parts if isinstance(part, Column)]
        if not columns:
            literal = b"".join(part for part in self.parts if isinstance(part, bytes))
            return pa.repeat(pa.scalar(literal, type=pa.binary()), self.count)
        if len(self.parts) == 1:  # texts that came joined
            return columns[0].array
        if availability.is_worth(self.count):
            return _join_texts(*self._columns(), self.count)
        arrays = [part if isinstance(part, bytes) else part.array for part in self.parts]
        return pc.binary_join_element_wise(*arrays, _NOTHING)

    def for_kernel(self) -> KernelParts:
        """Return the parts as kernels take them."""
        return _kernel_parts(*self._columns())

    def _columns(self) -> tuple[list[KernelSpans], list[bytes]]:
        """Return at most COLUMNS columns, and the literals before, between and behind them.

        A kernel has one signature, and so a fixed number of columns: where there are more, the
        first ones are joined into one.
        """
        from broker_core.codec.properties.join_kernels import COLUMNS

        columns: list[KernelSpans] = []
        literals = [b""]
        for part in self.parts:
            if isinstance(part, bytes):
                literals[-1] += part
                continue
            if len(columns) == COLUMNS:
                joined = Column(_join_texts(columns, literals, self.count))
                columns, literals = [joined.texts], [b"", b""]
            columns.append(part.texts)
            literals.append(b"")
        return columns, literals


def _join_texts(columns: Sequence[KernelSpans], literals: Sequence[bytes], count: int) -> pa.Array:
    """Join literals and columns in turn, a literal first and last, by a kernel."""
    from broker_core.codec.properties.join_kernels import join_columns

    size = count * sum(map(len, literals)) + sum(int(column[2].sum()) for column in columns)
    assert size <= _INT32_MAX, "batches are cut into parts long before 2 GiB"
    data, bounds = np.empty(size, dtype=np.uint8), np.empty(count + 1, dtype=np.int32)
    join_columns(_kernel_parts(columns, literals), data, bounds)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _kernel_parts(columns: Sequence[KernelSpans], literals: Sequence[bytes]) -> KernelParts:
    """Fill up with columns of no rows to the number that kernels take."""
    from broker_core.codec.properties.join_kernels import COLUMNS

    unused = arguments.spans(*spans_of(pa.array([], type=pa.binary())))
    return (*columns, *[unused] * (COLUMNS - len(columns))), arguments.joined(literals)


def join_properties(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> pa.Array:
    """Return the properties text of many messages, 0x02 after every entry.

    `pairs` are names with a column (null or empty: the row has no such property) or with one value
    for all rows; `properties` is a map column whose entries follow them.
    """
    return property_parts(pairs, count, properties).joined()


def property_parts(
    pairs: Sequence[tuple[str, pa.Array | str | None]],
    count: int,
    properties: pa.Array | None = None,
) -> PropertyParts:
    """Return the parts of the texts that `join_properties` returns."""
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
    # A map column, or a name given twice, may overrule a value: then only the texts tell.
    is_known = properties is None and len(values) == sum(value is not None for _, value in pairs)
    tags, keys, unique = (_texts(values.get(name, b""), count) for name in DISPATCH_PROPERTIES)
    return PropertyParts(tuple(_merged(parts)), count, (tags, keys, unique) if is_known else None)


def _entries(head: bytes, values: Part) -> list[Part]:
    """Return the parts of `head value 0x02` for rows that have a value, of nothing for others."""
    if isinstance(values, bytes):
        return [head, values, _VALUE_END] if values else []
    lengths = values.texts[2]
    if bool(lengths.all()):
        return [head, values, _VALUE_END]
    # A row without a value has no entry at all, so its name must not be a literal either.
    entries = pc.binary_join_element_wise(head, values.array, _VALUE_END, _NOTHING)
    return [Column(pc.if_else(pa.array(lengths > 0), entries, _NOTHING))]


def _texts(values: Part, count: int) -> KernelSpans:
    """Return the spans of a column, or of one value for all rows."""
    if isinstance(values, Column):
        return values.texts
    lengths = np.full(count, len(values), dtype=np.int64)
    return np.frombuffer(values, dtype=np.uint8), np.zeros(count, dtype=np.int64), lengths


def _merged(parts: list[Part]) -> list[Part]:
    """Concatenate literals that follow each other: joining costs per part."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _map_texts(column: pa.Array) -> pa.Array:
    """Return each row's entries of a map column as properties text; null values are left out."""
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
    # Entries that are dropped move the bounds of all rows behind them.
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
