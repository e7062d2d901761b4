"""Checks on operands, made while a filter is parsed, before any message is seen.

Each takes the filter's text and the token to point at, and raises FilterSyntaxError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.filter.sql92.convert import common_width, number_key
from broker_core.filter.sql92.tree import (
    Boolean,
    Cast,
    Constant,
    Negate,
    Node,
    Not,
    Number,
    Property,
    Text,
    Truth,
)
from broker_core.filter.syntax_error import syntax_error

if TYPE_CHECKING:
    from broker_core.filter.sql92.tokens import Token


def condition(text: str, node: Node, token: Token, role: str) -> Node:
    """Return `node` as a condition: a boolean as it is, a property cast; refuse all else."""
    if isinstance(node, Boolean):
        return node
    if isinstance(node, Property):
        return Cast(node)
    complaint = f"{role} must be a condition, but is {_kind(node)}"
    raise syntax_error(text, token.position, complaint)


def equality(text: str, left: Node, right: Node, token: Token) -> None:
    """Refuse NULL on either side, and a number or text on the right of TRUE or FALSE."""
    if Truth(None) in (left, right):
        complaint = f"nothing can be compared with NULL by {token.word}; write IS NULL"
        raise syntax_error(text, token.position, complaint)
    if isinstance(left, Truth) and isinstance(right, Number | Text):
        complaint = f"TRUE or FALSE can't be compared with {_kind(right)} on its right"
        raise syntax_error(text, token.position, complaint)


def ordered(text: str, node: Node, token: Token) -> None:
    """Require a number, a property or a negated value as operand of an ordering or BETWEEN."""
    if isinstance(node, Boolean) or (isinstance(node, Constant) and not isinstance(node, Number)):
        complaint = f"{token.word} takes numbers and properties, not {_kind(node)}{_advice(node)}"
        raise syntax_error(text, token.position, complaint)


def not_reversed(text: str, low: Node, high: Node, token: Token) -> None:
    """Require bounds that are both literal numbers to be in order."""
    if not isinstance(low, Number) or not isinstance(high, Number):
        return
    width = common_width(low, high)
    if number_key(high, width) < number_key(low, width):
        complaint = f"the bounds of BETWEEN are reversed: {low.value} is above {high.value}"
        raise syntax_error(text, token.position, complaint)


def listed(text: str, node: Node, token: Token) -> Property:
    """Return the operand left of IN, which must be a property."""
    if isinstance(node, Property):
        return node
    complaint = f"a property must stand before IN, not {_kind(node)}{_advice(node)}"
    raise syntax_error(text, token.position, complaint)


def _advice(node: Node) -> str:
    if not isinstance(node, Not):
        return ""
    return "; NOT takes only what stands right after it, so put the rest into parentheses"


def _kind(node: Node) -> str:
    match node:
        case Number():
            return "a number"
        case Text():
            return "a text"
        case Negate():
            return "a negated value"
        case Truth():
            return "NULL" if node.value is None else "TRUE or FALSE"
        case _:
            return "a condition"
