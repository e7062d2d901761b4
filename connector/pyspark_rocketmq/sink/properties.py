"""Keys, tags and user properties of outgoing messages, checked and joined column by column.

RocketMQ stores properties as one text with 0x01 and 0x02 between names and values, and keys as one
property with spaces between them; a text with a separator in it can't be stored. `rows.py` calls
these functions. Each looks at whole columns first and at single texts only to name the wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.property_names import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    RESERVED_PROPERTIES,
    SHARDING_KEY,
    TAGS,
)
from broker_core.codec.spans import spans_of
from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.sink.schema import DELAY_LEVEL
from pyspark_rocketmq.sink.schema import KEYS as KEYS_COLUMN
from pyspark_rocketmq.sink.schema import SHARDING_KEY as SHARDING_COLUMN
from pyspark_rocketmq.sink.schema import TAGS as TAGS_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RESERVED = pa.array(sorted(RESERVED_PROPERTIES), type=pa.string())
_TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
_COLUMN_OF = {
    TAGS: TAGS_COLUMN,
    KEYS: KEYS_COLUMN,
    DELAY: DELAY_LEVEL,
    SHARDING_KEY: SHARDING_COLUMN,
}
_LAST_UNSTORABLE = 2
_UNSTORABLE = "contains a character that properties can't hold (0x00, 0x01 or 0x02)"


@dataclass(frozen=True)
class TopicColumn:
    """The topic of every row: an index into `names` per row."""

    names: list[str]
    codes: NDArray[np.int32]

    def of(self, row: int) -> str:
        """Return one row's topic."""
        return self.names[int(self.codes[row])]


def refuse_separators(texts: pa.Array, what: str, topics: TopicColumn) -> pa.Array:
    """Return the texts unchanged; WriteError for one that properties can't hold."""
    row = _first_unstorable(texts)
    if row is not None:
        raise sink_errors.illegal_text(topics.of(row), what, texts[row].as_py(), _UNSTORABLE)
    return texts


def joined_keys(keys: pa.Array, topics: TopicColumn) -> pa.Array:
    """Return keys as stored, separated by single spaces, from a column of texts or of arrays."""
    if not pa.types.is_list(keys.type):
        return refuse_separators(keys, "the keys", topics)
    elements, rows = _elements(keys)
    bad = pc.or_(pc.match_substring(elements, KEY_SEPARATOR), pc.equal(elements, ""))
    bad = np.asarray(bad.fill_null(False))
    if bad.any():
        index = int(bad.argmax())
        why = "is empty or contains a space, which separates keys"
        raise sink_errors.illegal_text(
            topics.of(int(rows[index])), "the key", elements[index].as_py(), why
        )
    wrong = _first_unstorable(elements)
    if wrong is not None:
        raise sink_errors.illegal_text(
            topics.of(int(rows[wrong])), "the key", elements[wrong].as_py(), _UNSTORABLE
        )
    if elements.null_count:
        keys = _without_null_elements(keys, elements, rows)
    return pc.binary_join(keys.cast(pa.list_(pa.string())), KEY_SEPARATOR)


def user_properties(column: pa.Array, topics: TopicColumn) -> pa.Array:
    """Return the users' properties as a map column; WriteError for one that can't be stored."""
    properties = column if pa.types.is_map(column.type) else _as_map(column)
    bounds = _bounds(properties)
    first, last = int(bounds[0]), int(bounds[-1])
    names = properties.keys.slice(first, last - first)
    values = properties.items.slice(first, last - first)
    rows = _row_of_each(bounds)
    reserved = pc.or_(
        pc.is_in(names, value_set=_RESERVED), pc.starts_with(names, _TRANSIENT_PREFIX)
    )
    _refuse_reserved(np.asarray(reserved), names, rows, topics)
    for texts, what in ((names, "a property named"), (values, "a property whose value is")):
        index = _first_unstorable(texts)
        if index is not None:
            topic = topics.of(int(rows[index]))
            raise sink_errors.illegal_text(topic, what, texts[index].as_py(), _UNSTORABLE)
        empty = np.asarray(pc.equal(texts, "").fill_null(False))
        if empty.any():
            index = int(empty.argmax())
            name = names[index].as_py()
            why = "is empty, or has an empty value, which no reader would ever see; leave it out"
            topic = topics.of(int(rows[index]))
            raise sink_errors.illegal_text(topic, "the property", name, why)
    return properties


def _refuse_reserved(
    reserved: NDArray[np.bool_], names: pa.Array, rows: NDArray[np.int64], topics: TopicColumn
) -> None:
    if reserved.any():
        index = int(reserved.argmax())
        name = names[index].as_py()
        topic = topics.of(int(rows[index]))
        raise sink_errors.reserved_property(topic, name, _COLUMN_OF.get(name))


def _as_map(column: pa.Array) -> pa.Array:
    """Return an array of (key, value) pairs as a map."""
    pairs = column.values
    offsets = column.offsets
    keys, values = pairs.field("key"), pairs.field("value").cast(pa.string())
    return pa.MapArray.from_arrays(offsets, keys, values, mask=column.is_null())


def _bounds(lists: pa.Array) -> NDArray[np.int64]:
    """Return where each row's elements begin among the values, and where the last row's end."""
    bounds: NDArray[np.int64] = lists.offsets.to_numpy().astype(np.int64)
    return bounds


def _row_of_each(bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row that each element belongs to."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def _elements(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    bounds = _bounds(lists)
    first, last = int(bounds[0]), int(bounds[-1])
    return lists.values.slice(first, last - first), _row_of_each(bounds)


def _without_null_elements(
    lists: pa.Array, elements: pa.Array, rows: NDArray[np.int64]
) -> pa.Array:
    kept = elements.is_valid().to_numpy(zero_copy_only=False)
    counts = np.bincount(rows[kept], minlength=len(lists))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.drop_null())


def _first_unstorable(texts: pa.Array) -> int | None:
    """Return the index of the first text that contains 0x00, 0x01 or 0x02; None if none does."""
    data, starts, lengths = spans_of(texts)
    if not len(starts):
        return None
    # One pass over the bytes clears nearly every column. A hit may lie under a null, whose bytes
    # count here too, so the texts themselves decide.
    begin, end = int(starts[0]), int(starts[-1] + lengths[-1])
    data = data[begin:end]
    if int(data.min(initial=_LAST_UNSTORABLE + 1)) > _LAST_UNSTORABLE:
        return None
    found = pc.match_substring_regex(texts, "[\\x00-\\x02]").fill_null(False)
    hits = np.asarray(found)
    return int(hits.argmax()) if hits.any() else None
