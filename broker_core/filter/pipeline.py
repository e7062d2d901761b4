"""Filter pipeline: the cheapest test first, and bodies only of what is left.

    tag hash     on the 20-byte consume-queue entries; the commit log is not touched
    bitmap       on consume-queue extension units, where the filter was registered with the broker
    sql          on the properties that the filter mentions
    tag text     on the one property that holds the tag

What comes out is a frame batch of the survivors: no record has been copied yet. The first two
stages work on a stretch of a consume queue (`select_entries`, which StoreReader.frames takes), the
last two on frame batches (`select_frames`), wherever those come from. `FilterCount` tells what each
stage examined, dropped and read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Protocol

import numpy as np

from broker_core.codec.decode import property_columns
from broker_core.codec.frames import FrameBatch
from broker_core.codec.property_names import TAGS
from broker_core.errors import RequestError
from broker_core.filter.sqlfilter import SqlFilter
from broker_core.filter.tag_expression import TagFilter
from broker_core.store.queue.consume_queue import ENTRY_BYTES, is_damaged, rows_tagged, tags_codes
from broker_core.store.queue.ext import UNIT_HEAD_BYTES, has_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from broker_core.filter.registered import RegisteredFilter
    from broker_core.store.queue.ext import ExtUnits

_JOINED_ROWS = 1 << 18
_WORK = (3 << 20, 3 << 30)
"""Rows and bytes of records, times operations of the filter, that are examined without a pause:
about 0.3 s for 2,000 comparisons by CONTAINS."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """The wanted messages: those that pass the tag filter and the SQL92 filter, where given."""

    tags: TagFilter | None = None
    sql: SqlFilter | None = None

    @classmethod
    def of(cls, tags: str | None = None, sql: str | None = None) -> MessageFilter | None:
        """Return the filter for a tag expression or an SQL92 text; None if every message is wanted.

        Raises:
            FilterSyntaxError: The text is no filter.
            RequestError: Both are given, which RocketMQ has no way to ask for.
        """
        if tags is not None and sql is not None:
            message = (
                f"A filter is a tag expression or an SQL92 text, not both, but tags={tags!r} and "
                f"sql={sql!r} are given; put the tag into the text, as in TAGS = 'A' AND price > 5."
            )
            raise RequestError(message)
        if sql is not None:
            return cls(sql=SqlFilter(sql))
        tag_filter = TagFilter(tags)
        return None if tag_filter.is_everything else cls(tags=tag_filter)

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the filter reads."""
        names = self.sql.properties if self.sql else ()
        return tuple(dict.fromkeys((*names, TAGS))) if self.tags else names


@dataclass(slots=True)
class StageCount:
    """The work of one stage. `size_bytes` is what it read: entries, units, or property values."""

    examined: int = 0
    dropped: int = 0
    size_bytes: int = 0

    def count(self, left: NDArray[np.bool_], among: int, size_bytes: int) -> None:
        """Add one batch: of `among` messages that were examined, those of `left` are left."""
        self.add(among, int(np.count_nonzero(left)), size_bytes)

    def add(self, among: int, left: int, size_bytes: int) -> None:
        """Add one batch: of `among` messages that were examined, `left` are left."""
        self.examined += among
        self.dropped += among - left
        self.size_bytes += size_bytes

    def __add__(self, other: StageCount) -> StageCount:
        return StageCount(
            self.examined + other.examined,
            self.dropped + other.dropped,
            self.size_bytes + other.size_bytes,
        )

    def __sub__(self, other: StageCount) -> StageCount:
        return StageCount(
            self.examined - other.examined,
            self.dropped - other.dropped,
            self.size_bytes - other.size_bytes,
        )


@dataclass(slots=True)
class FilterCount:
    """The work of all stages, in the order in which they run; adds up over batches and tasks.

    >>> print(FilterCount(sql=StageCount(100, 90, 2000)))
    sql_examined=100 sql_dropped=90 sql_bytes=2000
    """

    tag_hash: StageCount = field(default_factory=StageCount)
    bitmap: StageCount = field(default_factory=StageCount)
    sql: StageCount = field(default_factory=StageCount)
    tag_text: StageCount = field(default_factory=StageCount)

    def stages(self) -> dict[str, StageCount]:
        """Return the stages that have examined anything, by name, in order."""
        named = {stage.name: getattr(self, stage.name) for stage in fields(self)}
        return {name: stage for name, stage in named.items() if stage.examined}

    def __add__(self, other: FilterCount) -> FilterCount:
        names = [stage.name for stage in fields(self)]
        return FilterCount(*(getattr(self, name) + getattr(other, name) for name in names))

    def __sub__(self, earlier: FilterCount) -> FilterCount:
        """Return the work done since `earlier`."""
        names = [stage.name for stage in fields(self)]
        return FilterCount(*(getattr(self, name) - getattr(earlier, name) for name in names))

    def __str__(self) -> str:
        """Return one line for a log; empty if nothing was examined."""
        return " ".join(
            f"{name}_examined={stage.examined} {name}_dropped={stage.dropped}"
            f" {name}_bytes={stage.size_bytes}"
            for name, stage in self.stages().items()
        )


class Extension(Protocol):
    """A consume-queue extension as the pipeline uses it: the units behind some tag fields."""

    def read(self, tags_codes: NDArray[np.int64], /) -> ExtUnits:
        """Read the units that addresses among tag fields lead to; plain hashes stay as they are."""


class Pipeline:
    """A filter at work; `count` is the work done so far.

    With a `registration` of this SQL92 filter (registered.py), bitmaps are used as well; one of
    another filter is ignored.
    """

    EXAMINED = (1 << 15, 256 << 20)
    """Rows and bytes of a batch to examine: properties of 32,768 records stay in a core's cache."""

    def __init__(
        self, message_filter: MessageFilter, registration: RegisteredFilter | None = None
    ) -> None:
        self._filter = message_filter
        expression = message_filter.sql.text if message_filter.sql else None
        is_ours = registration is not None and registration.expression == expression
        self._registration = registration if is_ours else None
        self.count = FilterCount()

    @property
    def selects_entries(self) -> bool:
        """True if entries can tell anything: they can't without a tag filter or a registration."""
        return self._filter.tags is not None or self._registration is not None

    def select_entries(
        self, entries: NDArray[np.void], extension: Extension | None = None
    ) -> NDArray[np.intp]:
        """Return which rows of a stretch of entries may belong to wanted messages, unread so far.

        Damaged entries are kept, so that reading them reports what is wrong. The queue's extension
        is read only if it can tell something.
        """
        tags, registration = self._filter.tags, self._registration
        if tags and not tags.is_everything and not registration:
            # The common case, in one pass and mostly compiled; None if an entry holds an address.
            rows = rows_tagged(entries, tags.hashes)
            if rows is not None:
                self.count.tag_hash.add(len(entries), len(rows), len(entries) * ENTRY_BYTES)
                return rows

        tag_codes = tags_codes(entries)
        units = None
        if extension is not None and self.selects_entries and has_address(tag_codes):
            units = extension.read(tag_codes)
        left = np.ones(len(tag_codes), np.bool_)
        if tags:
            left = tags.select_codes(tag_codes if units is None else units.tags_codes)
            self.count.tag_hash.count(left, len(left), len(left) * ENTRY_BYTES)
        if registration and units is not None:
            among = int(np.count_nonzero(left))
            lengths = units.bitmap_lengths
            left &= ~registration.rejects(units.store_timestamps, lengths, units.bitmaps)
            size_bytes = len(lengths) * UNIT_HEAD_BYTES + int(lengths.sum(dtype=np.int64))
            self.count.bitmap.count(left, among, size_bytes)
        return np.flatnonzero(left | is_damaged(entries["size"]))

    def select_frames(self, frames: FrameBatch) -> FrameBatch:
        """Return the records that pass, by their properties; `next_offset` stays."""
        if not len(frames):
            return frames
        columns = property_columns(frames, self._filter.properties)
        left = np.ones(len(frames), np.bool_)
        if self._filter.sql:
            left = self._filter.sql.select(columns, len(frames))
            size_bytes = _size_bytes(columns, self._filter.sql.properties)
            self.count.sql.count(left, len(frames), size_bytes)
        if self._filter.tags:
            among = int(np.count_nonzero(left))
            left &= self._filter.tags.select_texts(columns[TAGS])
            self.count.tag_text.count(left, among, _size_bytes(columns, (TAGS,)))
        return frames if left.all() else frames.select(left)

    def survivors(
        self, batches: Iterable[FrameBatch], most_rows: int, most_bytes: int
    ) -> Iterator[FrameBatch]:
        """Yield the records of many batches that pass, in batches of bounded rows and bytes.

        Where few pass, those of several batches are joined if they share a buffer: the fixed cost
        of a batch later on has to be small beside what was examined for it. Where a filter has many
        operations, batches are examined in parts, and each part is followed by a batch, though it
        may be empty: whoever takes them can look whether the caller still waits.
        """
        held: list[FrameBatch] = []
        examined = left = 0
        for batch, is_last in self._in_parts(batches):
            if held and batch.buffer is not held[-1].buffer:
                yield from FrameBatch.join(held).cut(most_bytes, most_rows)
                held, examined, left = [], 0, 0
            held.append(self.select_frames(batch))
            examined += len(batch)
            left += len(held[-1])
            if examined >= _JOINED_ROWS or 2 * left > most_rows or not is_last:
                yield from FrameBatch.join(held).cut(most_bytes, most_rows)
                held, examined, left = [], 0, 0
        if held:
            yield from FrameBatch.join(held).cut(most_bytes, most_rows)

    def _in_parts(self, batches: Iterable[FrameBatch]) -> Iterator[tuple[FrameBatch, bool]]:
        """Yield batches in parts that take a bounded time, and whether each is its batch's last."""
        operations = max(1, self._filter.sql.operations) if self._filter.sql else 1
        most_rows, most_bytes = (max(1, work // operations) for work in _WORK)
        for batch in batches:
            for part in batch.cut(most_bytes, most_rows):
                yield part, part.next_offset == batch.next_offset


def _size_bytes(columns: Mapping[str, pa.Array], names: tuple[str, ...]) -> int:
    return sum(columns[name].nbytes for name in names)
