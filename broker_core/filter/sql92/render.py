"""Renderer: a tree as filter text, every operator in parentheses: how a filter was understood."""

from __future__ import annotations

from typing import TypeAlias

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
    Property,
    Text,
    Truth,
)

_Fragment: TypeAlias = str | Node
_TRUTHS = {True: "TRUE", False: "FALSE", None: "NULL"}


def render(root: Node) -> str:
    """Return the filter text that parses to exactly this tree.

    >>> from broker_core.filter.sql92.parser import parse
    >>> render(parse("NOT a = 1 OR b > 2 LIKE 'x'").root)
    '((NOT a = 1) OR (b > 2))'
    """
    done: list[str] = []
    pending: list[_Fragment] = [root]
    while pending:
        fragment = pending.pop()
        if isinstance(fragment, str):
            done.append(fragment)
        else:
            pending.extend(reversed(_fragments(fragment)))
    return "".join(done)


def _fragments(node: Node) -> tuple[_Fragment, ...]:
    """Take a node one step apart."""
    match node:
        case Number():
            return (repr(node.value),)
        case Text():
            return (_quoted(node.value),)
        case Truth():
            return (_TRUTHS[node.value],)
        case Property():
            return (node.name,)
        case Cast():
            return (node.operand,)
        case Negate():
            return _negation(node)
        case Not():
            return ("NOT ", node.operand)
        case _:
            return ("(", *_operation(node), ")")


def _negation(node: Negate) -> tuple[_Fragment, ...]:
    if isinstance(node.operand, Negate):
        return ("-(", node.operand, ")")  # two signs side by side may begin a comment
    return ("-", node.operand)


def _operation(node: Node) -> tuple[_Fragment, ...]:
    match node:
        case And():
            return (node.left, " AND ", node.right)
        case Or():
            return (node.left, " OR ", node.right)
        case Equal():
            return (node.left, " <> " if node.negated else " = ", node.right)
        case Compare():
            return (node.left, f" {node.order} ", node.right)
        case IsNull():
            return (node.operand, " IS NOT NULL" if node.negated else " IS NULL")
        case Match():
            return (node.operand, f"{_not(node)} {node.part} {_quoted(node.needle)}")
        case In():
            listed = ", ".join(map(_quoted, node.values))
            return (node.operand, f"{_not(node)} IN ({listed})")
        case Between():
            return (node.operand, f"{_not(node)} BETWEEN ", node.low, " AND ", node.high)
        case _:
            raise AssertionError(node)


def _not(node: Match | In | Between) -> str:
    return " NOT" if node.negated else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
