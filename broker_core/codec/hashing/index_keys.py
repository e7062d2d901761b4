"""Index keys: the hashes that find a record: of its unique key, user keys and tag, in this order.

Indexed is the text `topic#key`, and `topic#T#tag` where tags are indexed (5.5.0 does, 4.9.7 does
not). User keys are the texts between single spaces in KEYS; empty ones do not count.

One rule, three twins: `hashes_of` for one record, `IndexKeys` for many by NumPy, and the kernels of
index_keys_kernels.py for ASCII batches that are worth it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.hashing.java import (
    TextHashes,
    hash_spans,
    index_hash,
    index_hashes,
    java_hash,
)
from broker_core.codec.properties.search import cut_texts
from broker_core.codec.property_names import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
from broker_core.codec.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

KEY_MARK = "#"
TAG_MARK = "#T#"
"""The marks between a topic and a key, and between a topic and a tag."""
_SPACE = 0x20


@lru_cache(maxsize=1024)
def _seed(topic: str, mark: str) -> int:
    return java_hash(topic + mark)


def hashes_of(topic: str, properties: Mapping[str, str]) -> list[int]:
    """Return the hashes of one record's keys as index files store them, in put order."""
    keys = [properties.get(UNIQ_KEY, ""), *properties.get(KEYS, "").split(KEY_SEPARATOR)]
    seed = _seed(topic, KEY_MARK)
    hashes = [index_hash(java_hash(key, seed)) for key in keys if key]
    if TAGS in properties:
        hashes.append(index_hash(java_hash(properties[TAGS], _seed(topic, TAG_MARK))))
    return hashes


class IndexKeys:
    """(record, hash) pairs, collected kind by kind; `indexed` masks the records that take part."""

    def __init__(
        self, topics: Sequence[str], topic_codes: NDArray[np.int32], indexed: NDArray[np.bool_]
    ) -> None:
        self._topics = topics
        self._codes = topic_codes
        self._indexed = indexed
        self._rows: list[NDArray[np.int64]] = []
        self._hashes: list[NDArray[np.int32]] = []

    def add_unique(self, values: Spans) -> None:
        """Add keys that are one whole value each."""
        rows = self._present(values)
        self._put(rows, hash_spans(values.take(rows)), KEY_MARK)

    def add_keys(self, values: Spans) -> None:
        """Add the keys between spaces of each value."""
        rows = self._present(values)
        pieces = cut_texts(values.take(rows), _SPACE)
        lengths = pieces.ends - pieces.begins
        chosen = np.flatnonzero(lengths)
        hashes = hash_spans(Spans(pieces.text, pieces.begins[chosen], lengths[chosen]))
        self._put(rows[pieces.rows[chosen]], hashes, KEY_MARK)

    def add_tags(self, values: Spans, hashes: TextHashes) -> None:
        """Add tags whose hashes are known."""
        rows = self._present(values)
        self._put(rows, TextHashes(hashes.values[rows], hashes.units[rows]), TAG_MARK)

    def in_put_order(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (rows, hashes as index files store them), record by record."""
        rows = np.concatenate(self._rows)
        # Stable, so that keys of one record keep their order: unique key, user keys, tag.
        order = np.argsort(rows, kind="stable")
        return rows[order], index_hashes(np.concatenate(self._hashes)[order])

    def _present(self, values: Spans) -> NDArray[np.intp]:
        return np.flatnonzero(self._indexed & (values.lengths > 0))

    def _put(self, rows: NDArray[np.int64], hashes: TextHashes, mark: str) -> None:
        seeds = topic_seeds(self._topics, mark)
        # Hashing goes on from the hash of `topic#`: the text `topic#key` is never made.
        self._rows.append(rows)
        self._hashes.append(hashes.behind(seeds[self._codes[rows]]))


def topic_seeds(topics: Sequence[str], mark: str) -> NDArray[np.int32]:
    """Return for each topic the hash that its keys' hashes go on from."""
    return np.array([java_hash(topic + mark) for topic in topics], dtype=np.int32)
