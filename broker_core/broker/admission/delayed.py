"""Delayed messages at the door: each says once, and without doubt, where it belongs and when.

A delayed message comes for SCHEDULE_TOPIC_XXXX, queue level - 1, with DELAY, REAL_TOPIC and
REAL_QID among its properties, as RocketMQ stores it. Delivery believes them, so they are checked
here: each of them is there once, the level is its queue's, and the destination is one that the
client could send to. The copy that delivery makes must fit too, for its topic may be the longer
one. What other brokers left in the schedule topic is delivery's to set aside
(broker/delay/delivery.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from broker_core.codec.encode import StoredTopics
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.search import count_named, find_values
from broker_core.codec.property_names import DELAY, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC
from broker_core.codec.spans import Spans, gather_spans
from broker_core.errors import RequestError
from broker_core.store.log.writer import require_fitting

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = (REAL_TOPIC, REAL_QUEUE_ID, DELAY)


def delayed_destinations(
    texts: Spans, rows: NDArray[np.intp], queue_ids: NDArray[np.int32], levels: int
) -> Destinations:
    """Return the real destinations of delayed messages, those in `rows`; RequestError for odd ones.

    `queue_ids` are their queues in the schedule topic, `levels` is the number of delay levels.
    """
    # A byte before the first text: a search looks there, and a column's text may begin at 0.
    data = np.concatenate([np.zeros(1, dtype=np.uint8), texts.data])
    chosen = Spans(data, texts.starts[rows] + 1, texts.lengths[rows])
    for name in _NAMES:
        counts = count_named(chosen, [name])
        if (counts != 1).any():
            at = int((counts != 1).argmax())
            raise _refusal(int(rows[at]), f"has {int(counts[at])} properties {name} and needs one")
    topics, numbers, delays = find_values(chosen, _NAMES)
    real_ids = _numbers(numbers, rows, REAL_QUEUE_ID)
    wrong = (_numbers(delays, rows, DELAY) != queue_ids + 1) | (queue_ids >= levels)
    wrong |= queue_ids < 0
    if wrong.any():
        at = int(wrong.argmax())
        what = f"lies in queue {int(queue_ids[at])}, which is not that of its {DELAY}"
        raise _refusal(int(rows[at]), f"{what}; levels are 1 to {levels}")
    coded = pc.dictionary_encode(gather_spans(topics))
    names = tuple(raw.decode("utf-8", "replace") for raw in coded.dictionary.to_pylist())
    return Destinations(names, coded.indices.to_numpy().astype(np.int32), real_ids)


def require_deliverable(to: Destinations, sizes: NDArray[np.integer], file_bytes: int) -> None:
    """Raise IllegalMessageError for a record whose copy for its real topic no log file can hold.

    `sizes` are those of the records in the schedule topic.
    """
    scheduled = StoredTopics([SCHEDULE_TOPIC]).lengths(np.zeros(1, dtype=np.int32))
    grown = sizes - scheduled + StoredTopics(to.topics).lengths(to.topic_codes)
    require_fitting(int(grown.max(initial=0)), file_bytes)


def _numbers(values: Spans, rows: NDArray[np.intp], name: str) -> NDArray[np.int32]:
    """Return values as numbers; RequestError for the first that is none."""
    coded = pc.dictionary_encode(gather_spans(values))
    texts: list[bytes] = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy()
    for code, text in enumerate(texts):
        if not text.isdigit() or len(text) > len(str(np.iinfo(np.int32).max)) - 1:
            row = int(rows[(codes == code).argmax()])
            raise _refusal(row, f"has the {name} {text[:64]!r}, which is no number")
    numbers: NDArray[np.int32] = np.array([int(text) for text in texts], dtype=np.int32)[codes]
    return numbers


def _refusal(row: int, what: str) -> RequestError:
    message = (
        f"Message {row} of the request is delayed and does not say where it belongs: it {what}. "
        "Nothing was written."
    )
    return RequestError(message)
