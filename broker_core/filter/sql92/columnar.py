"""Columnar evaluator: the verdicts of a filter on a whole batch; the fast twin of scalar.py.

Runs for every filtered read (SqlFilter.select). scalar.py states the rules and runs for single
messages; property tests hold the two equal, operator by operator: `conjunction` here and there.

Each step of the tree works on all rows at once. A boolean is three masks, of which at most one is
true on a row: true, null, error; FALSE is where none is. Numbers occur only as literals (a property
is text, and a negated text is null), so the values on the way are few: a column of texts, a
literal, or masks. A mask may be a single `np.bool_` that holds for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from broker_core.filter.sql92.convert import common_width, number_key, text_key, to_boolean
from broker_core.filter.sql92.numerals import Keys, column_keys
from broker_core.filter.sql92.scalar import ORDERS, PARTS
from broker_core.filter.sql92.tree import (
    And,
    Between,
    Cast,
    Compare,
    Equal,
    In,
    IsNull,
    Match,
    Negate,
    Node,
    Not,
    Number,
    Or,
    Order,
    Part,
    Property,
    Text,
    Truth,
    children,
    postorder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.filter.sql92.tree import Width

Mask: TypeAlias = NDArray[np.bool_] | np.bool_

_NOWHERE = np.False_
_EVERYWHERE = np.True_
_KERNELS: dict[Part, Callable[..., pa.Array]] = {
    "CONTAINS": pc.match_substring,
    "STARTSWITH": pc.starts_with,
    "ENDSWITH": pc.ends_with,
}


def both(left: Mask, right: Mask) -> Mask:
    """Return where both are true; quicker than `&` if one of them holds for all rows."""
    if isinstance(left, np.bool_):
        return right if left else left
    if isinstance(right, np.bool_):
        return left if right else right
    return left & right


def either(left: Mask, right: Mask) -> Mask:
    """Return where at least one is true; quicker than `|` if one of them holds for all rows."""
    if isinstance(left, np.bool_):
        return left if left else right
    if isinstance(right, np.bool_):
        return right if right else left
    return left | right


class Masks(NamedTuple):
    """Rows on which a filter, or part of it, is true, null or in error; FALSE on all others."""

    true: Mask
    null: Mask = _NOWHERE
    error: Mask = _NOWHERE

    @property
    def false(self) -> Mask:
        """The rows that are neither true nor null nor in error."""
        return ~either(self.true, either(self.null, self.error))

    def __invert__(self) -> Masks:
        return Masks(self.false, self.null, self.error)


class Column:
    """One property of all messages, as texts, with its conversions made once each."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self._keys: dict[Width, Keys] = {}

    @cached_property
    def absent(self) -> Mask:
        """The rows whose messages lack the property."""
        if self.texts.null_count == 0:
            return _NOWHERE
        return _mask(self.texts.is_null())

    @cached_property
    def truths(self) -> Mask:
        """The rows whose text reads as TRUE."""
        return _mask(pc.equal(pc.ascii_lower(self.texts), "true"))

    def keys(self, width: Width) -> Keys:
        """Return the texts as numbers of this width."""
        if width not in self._keys:
            self._keys[width] = column_keys(self.texts, width)
        return self._keys[width]


_Value: TypeAlias = Column | Number | str | Masks


def evaluate(root: Node, columns: Mapping[str, pa.Array], rows: int) -> Masks:
    """Evaluate a filter to masks of length `rows`; arguments as for `masks_of`."""
    return Masks(*(np.array(np.broadcast_to(mask, rows)) for mask in masks_of(root, columns, rows)))


def masks_of(root: Node, columns: Mapping[str, pa.Array], rows: int) -> Masks:
    """Evaluate a filter over property columns to masks, each of length `rows` or one for all.

    Args:
        root: The filter.
        columns: Property name → texts, null where a message lacks it. A property that is not here
            is on no message.
        rows: The number of messages, which is the length of every column.
    """
    batch = _Batch(columns, rows)
    results: list[_Value] = []
    for node in postorder(root):
        first = len(results) - len(children(node))
        operands = results[first:]
        del results[first:]
        results.append(batch.value(node, operands))
    return _logic(results.pop())


@dataclass
class _Batch:
    """The property columns of one batch, each converted once however often it is mentioned."""

    _source: Mapping[str, pa.Array]
    _rows: int

    def __post_init__(self) -> None:
        self._columns: dict[str, Column] = {}

    def value(self, node: Node, operands: list[_Value]) -> _Value:
        match node:
            case Property():
                return self._column(node.name)
            case Number():
                return node
            case Text():
                return node.value
            case Truth():
                return Masks(np.bool_(node.value is True), np.bool_(node.value is None))
            case Negate():
                return _negate(operands[0])
            case _:
                return _logical(node, operands)

    def _column(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = Column(self._texts(name))
        return self._columns[name]

    def _texts(self, name: str) -> pa.Array:
        texts = self._source.get(name)
        if texts is None:
            return pa.nulls(self._rows, pa.string())
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            texts = texts.cast(pa.string())
        if len(texts) != self._rows:
            raise ValueError(f"property {name} has {len(texts)} rows, the batch {self._rows}")
        return texts


def _logical(node: Node, operands: list[_Value]) -> Masks:  # noqa: C901, PLR0911 a table, one row a kind
    match node:
        case And():
            return conjunction(*map(_logic, operands))
        case Or():
            return disjunction(*map(_logic, operands))
        case Not():
            return ~_logic(operands[0])
        case Equal():
            equal = _equal(*operands)
            return ~equal if node.negated else equal
        case Compare():
            return _compare(node.order, *operands)
        case Between():
            return _between(node, *operands)
        case In():
            return _in(node, operands[0])
        case Match():
            return _match(node, operands[0])
        case IsNull():
            masks = Masks(_null(operands[0]), _NOWHERE, _error(operands[0]))
            return ~masks if node.negated else masks
        case Cast():
            return Masks(_NOWHERE, _null(operands[0]))
        case _:
            raise AssertionError(node)


def _mask(booleans: pa.Array) -> NDArray[np.bool_]:
    """Return an Arrow boolean array as a mask, null as false."""
    if booleans.null_count:
        booleans = booleans.fill_null(False)
    mask: NDArray[np.bool_] = booleans.to_numpy(zero_copy_only=False)
    return mask


def _logic(value: _Value) -> Masks:
    assert isinstance(value, Masks), value
    return value


def _null(value: _Value) -> Mask:
    if isinstance(value, Masks):
        return value.null
    return value.absent if isinstance(value, Column) else _NOWHERE


def _error(value: _Value) -> Mask:
    return value.error if isinstance(value, Masks) else _NOWHERE


def _present(value: _Value) -> Mask:
    return ~either(_null(value), _error(value))


def conjunction(left: Masks, right: Masks) -> Masks:
    """Return left AND right by rows: only a FALSE on the left hides an error on the right.

    The twin of scalar.conjunction, for batches.
    """
    # RocketMQ evaluates the left side first, and the right side only if the left is not FALSE.
    error = either(left.error, both(~left.false, right.error))
    true = both(left.true, right.true)
    known = either(either(true, error), either(left.false, right.false))
    return Masks(true, ~known, error)


def disjunction(left: Masks, right: Masks) -> Masks:
    """Return left OR right by rows: only a TRUE on the left hides an error on the right.

    The twin of scalar.disjunction, for batches.
    """
    error = left.error | (~left.true & right.error)
    true = ~error & (left.true | right.true)
    return Masks(true, ~(true | error) & (left.null | right.null), error)


def _negate(value: _Value) -> _Value:
    return -value if isinstance(value, Number) else Masks(_NOWHERE, ~_error(value), _error(value))


def _equal(left: _Value, right: _Value) -> Masks:
    """Compare: null on the left is null, null on the right FALSE, and two nulls are equal."""
    present = both(_present(left), _present(right))
    same, failed = _same(left, right)
    error = either(either(_error(left), _error(right)), both(present, failed))
    true = either(both(both(present, same), ~failed), both(_null(left), _null(right)))
    return Masks(both(true, ~error), both(_null(left), _present(right)), error)


def _same(left: _Value, right: _Value) -> tuple[Mask, Mask]:
    """Return where two present values are equal, and where they can't be compared."""
    if isinstance(left, Masks):
        if isinstance(right, Masks):
            return left.true == right.true, _NOWHERE
        # Not symmetric, as in RocketMQ: a boolean on the left refuses a text, on the right it
        # makes the text be read as a boolean.
        return _NOWHERE, np.bool_(isinstance(right, Column | str))
    if isinstance(right, Masks):
        return _is_true(left) == right.true if isinstance(
            left, Column | str
        ) else _NOWHERE, _NOWHERE
    if isinstance(left, Number) or isinstance(right, Number):
        first, second = _keys(left, right)
        return first.values == second.values, ~(first.valid & second.valid)
    return _same_text(left, right), _NOWHERE


def _is_true(value: Column | str) -> Mask:
    return value.truths if isinstance(value, Column) else np.bool_(to_boolean(value))


def _same_text(left: Column | str, right: Column | str) -> Mask:
    if isinstance(left, str) and isinstance(right, str):
        return np.bool_(left == right)
    return _mask(
        pc.equal(*(side.texts if isinstance(side, Column) else side for side in (left, right)))
    )


def _compare(order: Order, left: _Value, right: _Value) -> Masks:
    if isinstance(left, Masks) or isinstance(right, Masks):
        # Only a negated value comes here as masks: it is null, or an error on the way to it.
        error = _error(left) | (~_null(left) & _error(right))
        return Masks(_NOWHERE, ~error, error)
    present = both(_present(left), _present(right))
    first, second = _keys(left, right)
    valid = both(first.valid, second.valid)
    true = both(both(present, valid), ORDERS[order](first.values, second.values))
    return Masks(true, ~present, both(present, ~valid))


def _keys(left: Column | Number | str, right: Column | Number | str) -> tuple[Keys, Keys]:
    """Convert two numbers, a number and a text, or two texts to integers of their common order."""
    if isinstance(left, Number):
        width = common_width(left, right) if isinstance(right, Number) else left.width
    else:
        width = right.width if isinstance(right, Number) else "double"
    return _key(left, width), _key(right, width)


def _key(value: Column | Number | str, width: Width) -> Keys:
    if isinstance(value, Column):
        return value.keys(width)
    key = number_key(value, width) if isinstance(value, Number) else text_key(value, width)
    return Keys(np.array(key or 0, np.int64), np.array(key is not None))


def _between(node: Between, value: _Value, low: _Value, high: _Value) -> Masks:
    if node.negated:
        return disjunction(_compare("<", value, low), _compare(">", value, high))
    return conjunction(_compare(">=", value, low), _compare("<=", value, high))


def _in(node: In, value: _Value) -> Masks:
    assert isinstance(value, Column)
    listed = pa.array(node.values, value.texts.type)
    found = Masks(_mask(pc.is_in(value.texts, listed)), value.absent)
    return ~found if node.negated else found


def _match(node: Match, value: _Value) -> Masks:
    """Search a text: FALSE, also in the NOT form, for an empty needle and for what is not text."""
    if not node.needle:
        return Masks(_NOWHERE)
    if isinstance(value, Column):
        found = _mask(_KERNELS[node.part](value.texts, node.needle))
        # A missing property is no text: FALSE in the NOT form as well.
        return Masks(found if not node.negated else ~(found | value.absent))
    if isinstance(value, str):
        return Masks(np.bool_(PARTS[node.part](value, node.needle) != node.negated))
    return Masks(_NOWHERE, _NOWHERE, _error(value))
