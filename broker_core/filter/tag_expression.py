"""Tag expressions, `A || B` or `*` for everything, and the fallback for comparing tags by hash.

A message has one tag (property TAGS) or none. Its Java hash stands in the consume-queue entry, so
most messages are told apart without being read; texts of equal hash (`Aa` and `BB`) are told apart
afterwards, by the tag itself. Untagged messages belong to `*` alone.

The comparison of hashes exists three times; Pipeline.select_entries picks:

    rows_tagged        in store/queue/consume_queue.py: for a tag filter alone, over entries that
                       all hold hashes. Most reads. NumPy below 2,048 entries, else its kernel
    select_tags        that kernel, in store/queue/consume_queue_kernels.py
    select_codes       here: where an entry holds an address in the consume-queue extension
                       instead of a hash, or where bitmaps are used as well

Tag texts (`select_texts`) are compared afterwards, whichever of these ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.hashing.java import java_hash
from broker_core.filter.syntax_error import syntax_error
from broker_core.store.queue.ext import is_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

EVERYTHING = "*"
SEPARATOR = "||"

MAX_TEXT = 65_536
"""Characters of a filter's text, of tags or of SQL92."""
MAX_TAGS = 10_000

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off


class TagFilter:
    """A parsed tag expression. Immutable; equal, hashed and pickled by its text.

    >>> TagFilter("TagA || TagB || ").tags
    ('TagA', 'TagB')

    Attributes:
        text: The expression as written, `*` for an empty one.
        tags: The tags it names, in order, each once. None for `*`; without any tag (blanks only)
            nothing matches.
        hashes: The tags' hashes.
    """

    __slots__ = ("hashes", "tags", "text")

    def __init__(self, text: str | None) -> None:
        """Parse a tag expression.

        Raises:
            FilterSyntaxError: The text has separators and nothing between them, or more than
                65,536 characters or 10,000 tags.
        """
        self.text = text or EVERYTHING
        require_short(self.text)
        self.tags = _parse(self.text)
        self.hashes = np.array([java_hash(tag) for tag in self.tags or ()], np.int32)

    @property
    def is_everything(self) -> bool:
        """True if every message matches, tagged or not."""
        return self.tags is None

    def select_codes(self, tag_codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which consume-queue entries may match, by their tag fields.

        The fallback of `rows_tagged` in store/queue/consume_queue.py; see the module. Only the low
        32 bits count, as in RocketMQ, also where the field holds something else (the delivery time
        of a delayed message). An address in the extension that has not been replaced by the tag's
        hash says nothing about the tag, so it may match.
        """
        if self.is_everything:
            return np.ones(len(tag_codes), np.bool_)
        low = tag_codes.astype(np.int32)  # keeps the low 32 bits
        return np.isin(low, self.hashes) | is_address(tag_codes)

    def select_texts(self, tags: pa.Array) -> NDArray[np.bool_]:
        """Return which messages match, by their tags; null for a message without one."""
        if self.tags is None:
            return np.ones(len(tags), np.bool_)
        found = pc.is_in(tags, pa.array(self.tags, tags.type))
        mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return mask

    def __repr__(self) -> str:
        return f"TagFilter({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagFilter) and other.text == self.text

    def __hash__(self) -> int:
        return hash((TagFilter, self.text))

    def __reduce__(self) -> tuple[type[TagFilter], tuple[str]]:
        return TagFilter, (self.text,)


def _parse(text: str) -> tuple[str, ...] | None:
    if text == EVERYTHING:
        return None
    parts = text.split(SEPARATOR)
    if not any(parts):
        complaint = "expected a tag beside ||; write A || B, or * for all messages"
        raise syntax_error(text, 0, complaint)
    if len(parts) > MAX_TAGS:
        complaint = f"{len(parts)} tags are more than {MAX_TAGS}; ask for fewer, or for all"
        raise syntax_error(text, 0, complaint)
    return _distinct(part.strip(_BLANKS) for part in parts)


def is_short(text: str, tags: int = 1) -> bool:
    """Tell whether a tag expression with a number of tags is within the limits."""
    return len(text) <= MAX_TEXT and tags <= MAX_TAGS


def require_short(text: str) -> None:
    """Raise FilterSyntaxError for a filter text of more than 65,536 characters."""
    if len(text) > MAX_TEXT:
        complaint = (
            f"the text has {len(text)} characters, {MAX_TEXT} is the limit; filter by less here, "
            f"and the rest after reading"
        )
        raise syntax_error(text, MAX_TEXT, complaint)


def _distinct(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for tag in tags if tag))
