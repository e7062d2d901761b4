"""Scalar evaluator: the verdict of a filter on one message; the reference twin of columnar.py.

Runs for single messages (SqlFilter.verdicts, `rocketmq-broker filter`); columnar.py runs for every
read. Plain and slow on purpose: it states the rules, and columnar.py is held equal to it. An
error is a value here: an operator that does not look at an operand (an AND whose left side is
FALSE, an ordering whose left side is null) does not see its error either.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from broker_core.filter.sql92.convert import common_width, number_key, text_key, to_boolean
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

Verdict: TypeAlias = Literal["true", "false", "null", "error"]


class _Error(enum.Enum):
    ERROR = "error"


ERROR = _Error.ERROR
Logic: TypeAlias = bool | _Error | None
Value: TypeAlias = Logic | str | Number

ORDERS: dict[Order, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
PARTS: dict[Part, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_VERDICTS: dict[Logic, Verdict] = {True: "true", False: "false", None: "null", ERROR: "error"}


def verdicts(root: Node, messages: Iterable[Mapping[str, str]]) -> list[Verdict]:
    """Return the verdict of a filter on each message, given as its properties."""
    steps = [(node, len(children(node))) for node in postorder(root)]
    return [_verdict(steps, properties) for properties in messages]


def _verdict(steps: list[tuple[Node, int]], properties: Mapping[str, str]) -> Verdict:
    results: list[Value] = []
    for node, arity in steps:
        first = len(results) - arity
        operands = results[first:]
        del results[first:]
        results.append(_value(node, operands, properties))
    return _VERDICTS[_logic(results.pop())]


def _value(node: Node, operands: list[Value], properties: Mapping[str, str]) -> Value:
    match node:
        case Property():
            return properties.get(node.name)
        case Number():
            return node
        case Text() | Truth():
            return node.value
        case Negate():
            return _negate(operands[0])
        case _:
            return _logical(node, operands)


def _logical(node: Node, operands: list[Value]) -> Logic:  # noqa: C901, PLR0911 a table, one row a kind
    match node:
        case And():
            return conjunction(*map(_logic, operands))
        case Or():
            return disjunction(*map(_logic, operands))
        case Not():
            return _inverse(_logic(operands[0]))
        case Equal():
            equal = _equal(*operands)
            return _inverse(equal) if node.negated else equal
        case Compare():
            return _compare(node.order, *operands)
        case Between():
            return _between(node, *operands)
        case In():
            return _in(node, operands[0])
        case Match():
            return _match(node, operands[0])
        case IsNull():
            return ERROR if operands[0] is ERROR else (operands[0] is None) != node.negated
        case Cast():
            return None if operands[0] is None else False
        case _:
            raise AssertionError(node)


def _logic(value: Value) -> Logic:
    assert value is None or value is ERROR or isinstance(value, bool), value
    return value


def conjunction(left: Logic, right: Logic) -> Logic:
    """Return left AND right: only a FALSE on the left hides an error on the right.

    For single messages; columnar.conjunction is its twin for batches.
    """
    if left is ERROR or left is False:
        return left
    if right is ERROR or right is False:
        return right
    return None if None in (left, right) else True


def disjunction(left: Logic, right: Logic) -> Logic:
    """Return left OR right: only a TRUE on the left hides an error on the right.

    For single messages; columnar.disjunction is its twin for batches.
    """
    if left is ERROR or left is True:
        return left
    if right is ERROR or right is True:
        return right
    return None if None in (left, right) else False


def _inverse(value: Logic) -> Logic:
    return not value if isinstance(value, bool) else value


def _negate(value: Value) -> Value:
    if value is ERROR or isinstance(value, Number):
        return value if value is ERROR else -value
    return None


def _equal(left: Value, right: Value) -> Logic:
    """Compare: null on the left is null, null on the right FALSE, and two nulls are equal."""
    if left is ERROR or right is ERROR:
        return ERROR
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, bool):
        return ERROR if isinstance(right, str) else right is left
    if isinstance(right, bool):
        return isinstance(left, str) and to_boolean(left) is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    keys = _keys(left, right)
    return ERROR if keys is ERROR else keys[0] == keys[1]


def _compare(order: Order, left: Value, right: Value) -> Logic:
    if left is ERROR or left is None:
        return left
    if right is ERROR or right is None:
        return right
    keys = _keys(left, right)
    return ERROR if keys is ERROR else bool(ORDERS[order](*keys))


def _keys(left: Value, right: Value) -> tuple[int, int] | Literal[_Error.ERROR]:
    """Convert two numbers, a number and a text, or two texts to integers of their common order."""
    if isinstance(left, Number):
        width = common_width(left, right) if isinstance(right, Number) else left.width
    else:
        width = right.width if isinstance(right, Number) else "double"
    keys = tuple(
        number_key(side, width) if isinstance(side, Number) else text_key(str(side), width)
        for side in (left, right)
    )
    first, second = keys
    return ERROR if first is None or second is None else (first, second)


def _between(node: Between, value: Value, low: Value, high: Value) -> Logic:
    if node.negated:
        return disjunction(_compare("<", value, low), _compare(">", value, high))
    return conjunction(_compare(">=", value, low), _compare("<=", value, high))


def _in(node: In, value: Value) -> Logic:
    return None if value is None else (value in node.values) != node.negated


def _match(node: Match, value: Value) -> Logic:
    """Search a text: FALSE, also in the NOT form, for an empty needle and for what is not text."""
    if not node.needle:
        return False
    if value is ERROR:
        return ERROR
    return isinstance(value, str) and PARTS[node.part](value, node.needle) != node.negated
