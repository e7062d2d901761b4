"""Parser of filter texts: text → tree, with every check that needs no message.

Binding, tightest first, all infix levels to the left:

    prefix   + - NOT             NOT a = 1 is (NOT a) = 1
    4        > >= < <=, CONTAINS STARTSWITH ENDSWITH BETWEEN IN and their NOT forms
    3        = <>, IS [NOT] NULL
    2        AND
    1        OR

The end of the text is not required: parsing stops before the first token that can't go on, which
must be a legal token but is otherwise ignored, with all that follows (`Parsed.dropped`).

An operand waits on an explicit stack until what follows binds less tightly, so the depth of a
filter is bounded by the limits below and not by Python's stack, and the work is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from broker_core.filter.sql92 import checks
from broker_core.filter.sql92.tokens import Kind, Lexer, Token, string_value
from broker_core.filter.sql92.tree import (
    INT32_MAX,
    INT64_MAX,
    And,
    Between,
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
)
from broker_core.filter.syntax_error import syntax_error

if TYPE_CHECKING:
    from collections.abc import Collection

# About what the Java parser's default stack bears: there, deeper filters are refused as well.
MAX_PARENTHESES = 900
MAX_PREFIXES = 8000


class ParseLimits(NamedTuple):
    """Limits of a filter whose author is not trusted: tokens outside of lists, values in lists."""

    tokens: int
    listed: int


_PARTS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_ORDERS = (">", ">=", "<", "<=")
_LEVELS = {
    "OR": 1,
    "AND": 2,
    **dict.fromkeys(("=", "<>", "IS"), 3),
    **dict.fromkeys((*_ORDERS, *_PARTS, "BETWEEN", "IN", "NOT"), 4),
}
_SHORTEN = "filter by less here, and the rest after reading"
_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree, and the end of the text that took no part in it."""

    root: Node
    dropped: str


@dataclass(frozen=True, slots=True)
class _Group:
    """An open parenthesis."""

    token: Token


@dataclass(frozen=True, slots=True)
class _Prefix:
    """A sign or NOT whose operand is still to come."""

    token: Token


@dataclass(frozen=True, slots=True)
class _Infix:
    """An operator whose left operand is complete."""

    token: Token
    level: int
    left: Node


@dataclass(frozen=True, slots=True)
class _Bounds:
    """BETWEEN, waiting for its low bound or, once it has that, for the high one."""

    token: Token
    operand: Node
    negated: bool
    low: Node | None = None


_Pending: TypeAlias = _Group | _Prefix | _Infix | _Bounds


def parse(text: str, limits: ParseLimits | None = None) -> Parsed:
    """Parse a filter text to a tree; parsing ends as soon as a limit is passed.

    Raises:
        FilterSyntaxError: The text is no filter, or too long a one; the message shows where.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        complaint = "half a surrogate pair is no character, and no broker can be sent it"
        raise syntax_error(text, error.start, complaint) from None
    return _Parser(text, limits).parse()


class _Parser:
    def __init__(self, text: str, limits: ParseLimits | None = None) -> None:
        self._text = text
        self._limits = limits
        self._tokens = self._listed = 0
        self._lexer = Lexer(text)
        self._next = self._lexer.take()
        self._stack: list[_Pending] = []
        self._depth = {_Group: 0, _Prefix: 0}

    def parse(self) -> Parsed:
        while (node := self._complete(self._operand())) is None:
            pass
        first = Token(Kind.END, "", "", 0)
        root = checks.condition(self._text, node, first, "a filter")
        return Parsed(root, self._text[self._next.position :])

    # Tokens

    def _take(self) -> Token:
        token, self._next = self._next, self._lexer.take()
        self._tokens += 1
        if self._limits is not None and self._tokens > self._limits.tokens:
            complaint = f"more than {self._limits.tokens} words and signs; {_SHORTEN}"
            raise syntax_error(self._text, token.position, complaint)
        return token

    def _expect(self, what: Collection[str] | Kind, expected: str) -> Token:
        """Take the next token, which must be one of these words or of this kind."""
        token = self._next
        fits = token.kind is what if isinstance(what, Kind) else token.word in what
        if not fits:
            raise self._unexpected(token, expected)
        return self._take()

    def _unexpected(self, token: Token, expected: str) -> Exception:
        return syntax_error(self._text, token.position, f"expected {expected}, found {token}")

    # The stack

    def _push(self, pending: _Group | _Prefix) -> None:
        limit, what = (
            (MAX_PARENTHESES, "nested parentheses")
            if isinstance(pending, _Group)
            else (MAX_PREFIXES, "signs and NOTs that wait for an operand")
        )
        if self._depth[type(pending)] >= limit:
            complaint = f"more than {limit} {what}; write the filter with fewer"
            raise syntax_error(self._text, pending.token.position, complaint)
        self._depth[type(pending)] += 1
        self._stack.append(pending)

    def _pop(self) -> None:
        pending = self._stack.pop()
        if isinstance(pending, _Group | _Prefix):
            self._depth[type(pending)] -= 1

    # Operands

    def _operand(self) -> Node:
        """Take the next literal or property; prefixes and parentheses before it go on the stack."""
        while True:
            token = self._next
            if token.word == "(":
                self._push(_Group(token))
            elif token.word in ("+", "-", "NOT"):
                self._push(_Prefix(token))
            else:
                break
            self._take()
        node = self._atom(token)
        self._take()
        return node

    def _atom(self, token: Token) -> Node:
        if token.word in _TRUTHS:
            return Truth(_TRUTHS[token.word])
        match token.kind:
            case Kind.NAME:
                return Property(token.text)
            case Kind.STRING:
                return Text(string_value(token))
            case Kind.INTEGER:
                return self._integer(token)
            case Kind.FLOAT:
                return self._float(token)
            case _:
                raise self._unexpected(token, "a property, a number, a text in quotes or '('")

    def _integer(self, token: Token) -> Number:
        digits = token.text.rstrip("lL")
        if len(digits) > 19 or int(digits) > INT64_MAX:
            complaint = f"the integer is larger than {INT64_MAX}; write it as a float"
            raise syntax_error(self._text, token.position, complaint)
        value = int(digits)
        return Number(value, "int32" if value <= INT32_MAX else "int64")

    def _float(self, token: Token) -> Number:
        value = float(token.text)
        if value == 0.0 or math.isinf(value):
            complaint = "a float must lie between 4.9E-324 and 1.8E308"
            advice = "; write zero as 0" if value == 0.0 else ""
            raise syntax_error(self._text, token.position, complaint + advice)
        return Number(value, "double")

    # What follows an operand

    def _complete(self, node: Node) -> Node | None:
        """Return the whole filter if it ends after this operand; None if another must follow."""
        ceiling = 4  # the tightest operator that `node` can still be the left operand of
        while True:
            node = self._apply_prefixes(node)
            if self._stack and isinstance(top := self._stack[-1], _Bounds):
                joined = self._bound(top, node)
            else:
                level = _LEVELS.get(self._next.word, 0)
                level = level if level <= ceiling else 0
                node = self._apply_infix(node, level)
                if not level and not self._stack:
                    return node
                ceiling = 3 if self._next.word == "IS" else 4
                joined = self._continue(node) if level else self._close(node)
            if joined is None:
                return None
            node = joined

    def _close(self, node: Node) -> Node:
        self._expect((")",), "an operator or ')'")
        self._pop()
        return node

    def _apply_prefixes(self, node: Node) -> Node:
        while self._stack and isinstance(top := self._stack[-1], _Prefix):
            self._pop()
            if top.token.word == "-":
                node = Negate(node)
            elif top.token.word == "NOT":
                node = Not(checks.condition(self._text, node, top.token, "the operand of NOT"))
        return node

    def _apply_infix(self, node: Node, level: int) -> Node:
        """Join `node` as right operand to every waiting operator that binds at least as tightly."""
        while self._stack:
            top = self._stack[-1]
            if not isinstance(top, _Infix) or top.level < level:
                break
            self._pop()
            node = self._join(top, node)
        return node

    def _join(self, infix: _Infix, right: Node) -> Node:
        text, token, left = self._text, infix.token, infix.left
        if token.word in ("AND", "OR"):
            side = f"the {{}} operand of {token.word}"
            left = checks.condition(text, left, token, side.format("left"))
            right = checks.condition(text, right, token, side.format("right"))
            return And(left, right) if token.word == "AND" else Or(left, right)
        if token.word in ("=", "<>"):
            checks.equality(text, left, right, token)
            return Equal(left, right, negated=token.word == "<>")
        checks.ordered(text, left, token)
        checks.ordered(text, right, token)
        return Compare(cast("Order", token.word), left, right)

    def _bound(self, bounds: _Bounds, node: Node) -> Node | None:
        """Give BETWEEN one more bound: return all of it, or None while the high one is to come."""
        checks.ordered(self._text, node, bounds.token)
        self._pop()
        if bounds.low is None:
            self._expect(("AND",), "AND and the upper bound of BETWEEN")
            self._stack.append(replace(bounds, low=node))
            return None
        if not bounds.negated:
            checks.not_reversed(self._text, bounds.low, node, bounds.token)
        return Between(bounds.operand, bounds.low, node, bounds.negated)

    def _continue(self, node: Node) -> Node | None:
        """Join `node` to the operator that follows; None if that needs another operand."""
        token = self._take()
        if token.word == "IS":
            negated = self._next.word == "NOT"
            if negated:
                self._take()
            self._expect(("NULL",), "NULL" if negated else "NULL or NOT NULL")
            return IsNull(node, negated)

        negated = token.word == "NOT"
        if negated:
            family = (*_PARTS, "BETWEEN", "IN")
            token = self._expect(family, "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN after NOT")
        if token.word in _PARTS:
            needle = self._expect(Kind.STRING, f"a text in single quotes after {token.word}")
            return Match(cast("Part", token.word), node, string_value(needle), negated)
        if token.word == "IN":
            return In(checks.listed(self._text, node, token), self._list(), negated)
        if token.word == "BETWEEN":
            checks.ordered(self._text, node, token)
            self._stack.append(_Bounds(token, node, negated))
        else:
            self._stack.append(_Infix(token, _LEVELS[token.word], node))
        return None

    def _list(self) -> tuple[str, ...]:
        self._expect(("(",), "'(' and a list of texts after IN")
        values: list[str] = []
        separator = ","
        while separator == ",":
            value = self._expect(Kind.STRING, "a text in single quotes")
            values.append(string_value(value))
            self._listed += 1
            if self._limits is not None and self._listed > self._limits.listed:
                complaint = f"more than {self._limits.listed} values in lists; {_SHORTEN}"
                raise syntax_error(self._text, value.position, complaint)
            separator = self._expect((",", ")"), "',' or ')'").word
            self._tokens -= 2  # a value and what follows it have a limit of their own
        return tuple(values)
