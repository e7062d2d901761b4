"""SQL92 filter: a condition on message properties, with the verdicts of RocketMQ's broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from broker_core.filter.sql92.columnar import Masks, evaluate, masks_of
from broker_core.filter.sql92.parser import ParseLimits, parse
from broker_core.filter.sql92.render import render
from broker_core.filter.sql92.scalar import Verdict, verdicts
from broker_core.filter.sql92.tree import postorder, property_names
from broker_core.filter.tag_expression import require_short

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


LIMITS = ParseLimits(tokens=8_192, listed=10_000)
"""A broker does not trust its clients: a filter at these limits is compiled in less than a second.
`a = 1 OR` has four tokens, so that 2,000 comparisons fit."""


class SqlFilter:
    """A compiled filter. Immutable; equal, hashed and pickled by its text.

    A message is delivered if the verdict is "true". "null" means that the properties do not tell,
    "error" that a property is not of the form that the filter needs (`price > 5` with price=cheap).

    >>> SqlFilter("price > 5 AND region = 'eu'").verdicts([{"price": "7", "region": "eu"}, {}])
    ['true', 'null']

    Attributes:
        text: The filter as written.
        properties: The properties that it mentions, sorted.
        operations: How many operators, properties and values it has: its work for one message.
        dropped: The end of the text that is ignored, because RocketMQ's parser stops at the first
            token that can't go on: `LIKE 'e%'` in `zone LIKE 'e%'`. Empty for most filters.
    """

    __slots__ = ("_root", "dropped", "operations", "properties", "text")

    def __init__(self, text: str) -> None:
        """Compile a filter.

        Raises:
            FilterSyntaxError: The text is no filter, or has more than 65,536 characters, 8,192
                words and signs or 10,000 values in lists; the message shows where and why.
        """
        require_short(text)
        parsed = parse(text, LIMITS)
        self.text = text
        self.dropped = parsed.dropped
        self._root = parsed.root
        self.properties = property_names(parsed.root)
        self.operations = sum(1 for _ in postorder(parsed.root))

    def verdicts(self, messages: Sequence[Mapping[str, str]]) -> list[Verdict]:
        """Return the verdict on each message, given as its properties; every value is text.

        One message after another (sql92/scalar.py); `select` is for batches.
        """
        for properties in messages:
            for name in self.properties:
                _require_text(name, properties.get(name))
        return verdicts(self._root, messages)

    def masks(self, columns: Mapping[str, pa.Array], rows: int) -> Masks:
        """Return where a batch of messages is true, null or in error: verdicts as columns.

        Args:
            columns: Property name → string array, null where a message lacks the property. Names
                that are missing here are on no message; names that the filter does not mention
                are not looked at.
            rows: The number of messages.
        """
        return evaluate(self._root, columns, rows)

    def select(self, columns: Mapping[str, pa.Array], rows: int) -> NDArray[np.bool_]:
        """Return which messages of a batch are delivered; arguments as for `masks`.

        By columns (sql92/columnar.py); `verdicts` is for single messages.
        """
        return np.array(np.broadcast_to(masks_of(self._root, columns, rows).true, rows))

    def describe(self) -> str:
        """Return the filter as understood: every operator in parentheses, the dropped end gone."""
        return render(self._root)

    def __repr__(self) -> str:
        return f"SqlFilter({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlFilter) and other.text == self.text

    def __hash__(self) -> int:
        return hash((SqlFilter, self.text))

    def __reduce__(self) -> tuple[type[SqlFilter], tuple[str]]:
        return SqlFilter, (self.text,)


def _require_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError(f"property {name} is {value!r} of type {kind}; properties are text (str)")
