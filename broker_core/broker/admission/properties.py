"""Properties that no client may send, looked for in texts, and in the parts of texts.

The broker believes some properties because it alone sets them (OWN_PROPERTIES): that a half message
is a block, who prepared it, where it belongs. In a delayed message two of them are the client's
word, and delayed.py checks what they say. No text has a zero byte: after a loss of power, recovery
would take a record full of them for a torn one, and cut the log there (store/log/scan.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.properties.join import Column
from broker_core.codec.properties.search import count_named
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import (
    NAME_VALUE_SEPARATOR,
    OWN_PROPERTIES,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
)
from broker_core.codec.spans import Spans, gather_spans, spans_of
from broker_core.errors import IllegalMessageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.message_batch import Destinations, MessageBatch
    from broker_core.codec.properties.join import PropertyParts

_OWN = sorted(OWN_PROPERTIES)
_OWN_OF_DELAYED = sorted(OWN_PROPERTIES - {REAL_TOPIC, REAL_QUEUE_ID})
_NAME_END, _VALUE_END = NAME_VALUE_SEPARATOR.encode(), PROPERTY_SEPARATOR.encode()
_ANY_VALUE = b"?"


def refuse_own_properties(messages: MessageBatch) -> None:
    """Raise as `refuse_own_in` does, for messages given as columns."""
    if SCHEDULE_TOPIC in messages.topics or may_hold_own(messages.property_parts):
        refuse_own_in(spans_of(messages.property_texts), messages.destinations)


def refuse_own_in(texts: Spans, to: Destinations) -> None:
    """Raise IllegalMessageError for a text with a property that only the broker sets, or a zero."""
    row = _first_with_zero(texts)
    if row is not None:
        message = (
            f"Message {row} of the request, for topic {_topic(to, row)}, has a zero byte (0x00) in "
            "its properties. Nothing was written; send it without."
        )
        raise IllegalMessageError(message)
    is_delayed = np.zeros(len(to), dtype=np.bool_)
    if SCHEDULE_TOPIC in to.topics:
        is_delayed = np.array([topic == SCHEDULE_TOPIC for topic in to.topics])[to.topic_codes]
    for names, rows in (
        (_OWN, np.flatnonzero(~is_delayed)),
        (_OWN_OF_DELAYED, np.flatnonzero(is_delayed)),
    ):
        chosen = texts if len(rows) == len(to) else _select(texts, rows)
        counts = count_named(chosen, names)
        if counts.any():
            row = int(rows[counts.argmax()])
            raise _refusal(texts, to, row, names)


def may_hold_own(parts: PropertyParts) -> bool:
    """Tell whether texts that are joined from parts may have a property of the broker's own.

    Or a zero byte. Looks at the parts, so that texts need not be joined. False is certain.
    """
    skeleton = b""
    for part in parts.parts:
        if isinstance(part, bytes):
            skeleton += part
            continue
        if _holds_zero(_spans(part)):
            return True
        entry = skeleton.rpartition(_VALUE_END)[2]
        if not entry:
            # Whole entries, or nothing: the column says by itself which names it has.
            if not _holds_whole_entries(part) or count_named(_spans(part), _OWN).any():
                return True
        elif _NAME_END not in entry or _has_separator(part):
            return True
        else:
            skeleton += _ANY_VALUE
    return b"\0" in skeleton or not OWN_PROPERTIES.isdisjoint(parse_properties(skeleton))


def _holds_whole_entries(column: Column) -> bool:
    """Tell whether each text of a column is empty or ends where an entry does."""
    data, starts, lengths = column.texts
    last = (starts + lengths - 1)[lengths > 0]
    return bool((data[last] == ord(PROPERTY_SEPARATOR)).all())


def _has_separator(column: Column) -> bool:
    """Tell whether a column of values may hold the byte that ends a value."""
    return bool((_held(_spans(column)) == ord(PROPERTY_SEPARATOR)).any())


def _holds_zero(texts: Spans) -> bool:
    """Tell whether texts that lie one behind the other may hold a zero byte."""
    return int(_held(texts).min(initial=1)) == 0


def _held(texts: Spans) -> NDArray[np.uint8]:
    """Return all bytes from the first of some texts to the last, which lie one behind the other."""
    data, starts, lengths = texts
    return data[int(starts[0]) : int(starts[-1] + lengths[-1])] if len(starts) else data[:0]


def _first_with_zero(texts: Spans) -> int | None:
    """Return the first row with a zero byte in its text, or None."""
    # Copied together: what lies between the texts of records is full of zeros.
    joined = spans_of(gather_spans(texts))
    if not _holds_zero(joined):
        return None
    at = int(joined.starts[0]) + int((_held(joined) == 0).argmax())
    return int(np.searchsorted(joined.starts, at, side="right")) - 1


def _spans(column: Column) -> Spans:
    return Spans(*column.texts)


def _topic(to: Destinations, row: int) -> str:
    return to.topics[int(to.topic_codes[row])]


def _select(texts: Spans, rows: NDArray[np.intp]) -> Spans:
    return Spans(texts.data, texts.starts[rows], texts.lengths[rows])


def _refusal(texts: Spans, to: Destinations, row: int, names: list[str]) -> IllegalMessageError:
    start, length = int(texts.starts[row]), int(texts.lengths[row])
    found = parse_properties(texts.data[start : start + length].tobytes())
    name = next(name for name in names if name in found)
    message = (
        f"Message {row} of the request, for topic {_topic(to, row)}, has the property {name}, "
        "which only the broker sets. Nothing was written; send it without."
    )
    return IllegalMessageError(message)
