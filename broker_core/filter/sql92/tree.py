"""Tree of a filter: its parsed form, one class per operator.

Parentheses and unary plus leave no trace. Trees can be thousands of levels deep (`a AND b AND …`
leans to the left), so nothing here or in the evaluators recurses; see `postorder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Width: TypeAlias = Literal["int32", "int64", "double"]
Order: TypeAlias = Literal[">", ">=", "<", "<="]
Part: TypeAlias = Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its width, which decides how a property beside it is read."""

    value: int | float
    width: Width

    def __neg__(self) -> Number:
        return Number(-self.value, self.width)


@dataclass(frozen=True, slots=True)
class Text:
    """A text in single quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE or NULL (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Property:
    """A message property: text, or null where the message lacks it."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus: a number negated, null for everything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Cast:
    """A bare property where a condition must stand: FALSE if present, else null; never TRUE."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """Prefix NOT; its operand is boolean."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL and IS NOT NULL."""

    operand: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Match:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms."""

    part: Part
    operand: Node
    needle: str
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """IN and NOT IN."""

    operand: Property
    values: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Equal:
    """`=` and `<>`."""

    left: Node
    right: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`>`, `>=`, `<` and `<=`."""

    order: Order
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """BETWEEN and NOT BETWEEN: two comparisons, each by its own pair of operands."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class And:
    """AND of two booleans."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Or:
    """OR of two booleans."""

    left: Node
    right: Node


Node: TypeAlias = (
    Number
    | Text
    | Truth
    | Property
    | Negate
    | Cast
    | Not
    | IsNull
    | Match
    | In
    | Equal
    | Compare
    | Between
    | And
    | Or
)

Constant = (Number, Text, Truth)
Boolean = (Truth, Cast, Not, IsNull, Match, In, Equal, Compare, Between, And, Or)


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node, left to right."""
    match node:
        case Number() | Text() | Truth() | Property():
            return ()
        case Equal() | Compare() | And() | Or():
            return (node.left, node.right)
        case Between():
            return (node.operand, node.low, node.high)
        case _:
            return (node.operand,)


def postorder(root: Node) -> list[Node]:
    """List all nodes, each after its operands, operands left to right.

    An evaluator runs down this list with a stack of results: each node takes as many as it has
    children off the stack and puts one back.
    """
    found: list[Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(children(node))
    found.reverse()
    return found


def property_names(root: Node) -> tuple[str, ...]:
    """Return the properties that a filter mentions, sorted, each once."""
    return tuple(sorted({node.name for node in postorder(root) if isinstance(node, Property)}))
