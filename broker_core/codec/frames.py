"""Frame batch: a buffer of commit-log records and the position of each.

The unit that every broker hands to the reader. The buffer is a mapped segment (embedded) or a
received reply (remote, cluster); nothing in it is copied until a column is asked for. Records may
lie anywhere in the buffer, in increasing order, with gaps.

    buffer            uint8, read-only
    starts[i]         position of record i in the buffer
    sizes[i]          its length in bytes, as the consume queue said
    offsets[i]        its LogicalOffset

`origin` is the PhysicalOffset of buffer[0] where the buffer is part of a log. It is None for
received bytes: the records' own physical offsets can't be checked there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.types import QueueRef


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Records [starts[i], starts[i] + sizes[i]) of one buffer, in queue order.

    `queue` is the queue that all of them belong to, or None for a mixture (a query's answer).
    `next_offset` is the LogicalOffset after the last *examined* message: with a filter it can lie
    beyond the last record held. `name` says where the buffer comes from, for error messages.
    `verify` asks readers to check body checksums too.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    queue: QueueRef | None = None
    next_offset: int = 0
    origin: int | None = None
    name: str = ""
    verify: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all records together."""
        return int(self.sizes.sum(dtype=np.int64))

    @classmethod
    def join(cls, batches: Sequence[FrameBatch]) -> FrameBatch:
        """Join batches of one buffer that follow each other."""
        last = batches[-1]
        if len(batches) == 1:
            return last
        return replace(
            last,
            starts=np.concatenate([batch.starts for batch in batches]),
            sizes=np.concatenate([batch.sizes for batch in batches]),
            offsets=np.concatenate([batch.offsets for batch in batches]),
        )

    def select(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> FrameBatch:
        """Return a batch of only these records; `next_offset` stays."""
        return replace(
            self, starts=self.starts[rows], sizes=self.sizes[rows], offsets=self.offsets[rows]
        )

    def slice(self, start: int, stop: int) -> FrameBatch:
        """Return records start..stop without copying; `next_offset` stays."""
        return replace(
            self,
            starts=self.starts[start:stop],
            sizes=self.sizes[start:stop],
            offsets=self.offsets[start:stop],
        )

    def section(self, start: int, stop: int) -> FrameBatch:
        """Return records start..stop; `next_offset` becomes that of the first record behind them.

        A reader that has taken one section goes on with the next.
        """
        if start == 0 and stop == len(self):
            return self
        examined = int(self.offsets[stop]) if stop < len(self) else self.next_offset
        return replace(self.slice(start, stop), next_offset=examined)

    def cut(self, most_bytes: int, most_rows: int) -> Iterator[FrameBatch]:
        """Yield sections of at most `most_bytes` and `most_rows`, each of one record at least."""
        at, count = 0, len(self)
        if not count:
            yield self
        while at < count:
            filled = np.cumsum(self.sizes[at : at + most_rows], dtype=np.int64)
            stop = at + max(1, int(np.searchsorted(filled, most_bytes, side="right")))
            yield self.section(at, stop)
            at = stop

    def records(self) -> Sequence[bytes]:
        """Return each record's bytes; for tests and single messages, not for the bulk path."""
        return [
            self.buffer[start : start + size].tobytes()
            for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]
