"""Properties texts as the parts that they are joined from.

Whoever writes records puts the parts where they belong, without texts in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY
from broker_core.codec.spans import spans_of
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.properties.columns_kernels import Joined
    from broker_core.jit.arguments import KernelSpans

    Named = tuple[KernelSpans, KernelSpans, KernelSpans]
    """Values of the properties DISPATCHED."""

DISPATCHED = (TAGS, KEYS, UNIQ_KEY)
"""The properties that make a message findable."""

_NOTHING = pa.scalar(b"", type=pa.binary())
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Column:
    """A binary column, and where its texts lie, looked up once."""

    array: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> Column:
        """A column of texts or bytes."""
        return cls(array.cast(pa.binary()))

    @cached_property
    def texts(self) -> KernelSpans:
        """Data, starts, lengths; nulls have length 0."""
        return arguments.spans(*spans_of(self.array))


Part: TypeAlias = bytes | Column
"""What every row has, or what each row has."""


@dataclass(frozen=True)
class PropertyParts:
    """Properties texts of many messages: the parts of each, in their order.

    `named` are each row's values of the properties that make it findable, empty where it has none;
    None if only the texts tell. Texts say the same if no value has a 0x02 in it, which ends one.
    """

    parts: tuple[Part, ...]
    count: int
    named: Named | None = None

    @classmethod
    def of(cls, properties: pa.Array | PropertyParts) -> PropertyParts:
        """Texts that are joined already are one part."""
        if isinstance(properties, PropertyParts):
            return properties
        return cls((Column.of(properties),), len(properties))

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """About how many bytes the texts take."""
        return sum(
            self.count * len(part) if isinstance(part, bytes) else int(part.array.nbytes)
            for part in self.parts
        )

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many bytes each text takes."""
        literal = sum(len(part) for part in self.parts if isinstance(part, bytes))
        lengths = np.full(self.count, literal, dtype=np.int64)
        for part in self.parts:
            if isinstance(part, Column):
                lengths += part.texts[2]
        return lengths

    def slice(self, start: int, length: int) -> PropertyParts:
        """The texts of some rows, as Arrow slices."""
        rows = slice(start, start + length)
        named = None
        if self.named is not None:
            tags, keys, unique = (
                (data, starts[rows], lengths[rows]) for data, starts, lengths in self.named
            )
            named = tags, keys, unique
        parts = (
            part if isinstance(part, bytes) else Column(part.array.slice(start, length))
            for part in self.parts
        )
        return PropertyParts(tuple(parts), len(range(self.count)[rows]), named)

    def joined(self) -> pa.Array:
        """The texts."""
        columns = [part for part in self.parts if isinstance(part, Column)]
        if not columns:
            literal = b"".join(part for part in self.parts if isinstance(part, bytes))
            return pa.repeat(pa.scalar(literal, type=pa.binary()), self.count)
        if len(self.parts) == 1:
            return columns[0].array
        if kernels.is_worth(self.count):
            return join_texts(*self.columns(), self.count)
        arrays = [part if isinstance(part, bytes) else part.array for part in self.parts]
        return pc.binary_join_element_wise(*arrays, _NOTHING)

    def columns(self) -> tuple[list[KernelSpans], list[bytes]]:
        """A few columns, and the literals before, between and behind them, as kernels take both.

        Parts beyond as many columns as a kernel takes are joined with those before them.
        """
        from broker_core.codec.properties.columns_kernels import COLUMNS

        columns: list[KernelSpans] = []
        literals = [b""]
        for part in self.parts:
            if isinstance(part, bytes):
                literals[-1] += part
                continue
            if len(columns) == COLUMNS:
                joined = Column(join_texts(columns, literals, self.count))
                columns, literals = [joined.texts], [b"", b""]
            columns.append(part.texts)
            literals.append(b"")
        return columns, literals


def join_texts(columns: Sequence[KernelSpans], literals: Sequence[bytes], count: int) -> pa.Array:
    """Literals and a few columns in turn, a literal first and last, joined by a kernel."""
    from broker_core.codec.properties.columns_kernels import join_columns

    size = count * sum(map(len, literals)) + sum(int(column[2].sum()) for column in columns)
    assert size <= _INT32_MAX, "whoever writes cuts batches long before this"
    data, bounds = np.empty(size, dtype=np.uint8), np.empty(count + 1, dtype=np.int32)
    join_columns(kernel_columns(columns, literals), data, bounds)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def kernel_columns(columns: Sequence[KernelSpans], literals: Sequence[bytes]) -> Joined:
    """As many columns as kernels take, of which some may have no rows, and the literals."""
    from broker_core.codec.properties.columns_kernels import COLUMNS

    unused = arguments.spans(*spans_of(pa.array([], type=pa.binary())))
    return (*columns, *[unused] * (COLUMNS - len(columns))), arguments.joined(literals)
