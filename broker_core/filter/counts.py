"""What a filter did: how much each stage examined, dropped and read."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class StageCount:
    """What one stage did. `size_bytes` is what it read: entries, units, or property values."""

    examined: int = 0
    dropped: int = 0
    size_bytes: int = 0

    def count(self, left: NDArray[np.bool_], among: int, size_bytes: int) -> None:
        """Add one batch: of `among` messages the stage was given, those of `left` are left."""
        self.add(among, int(np.count_nonzero(left)), size_bytes)

    def add(self, among: int, left: int, size_bytes: int) -> None:
        """Add one batch: of `among` messages that were looked at, so many are left."""
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
    """What all stages did, in the order in which they run; adds up over batches and tasks.

    >>> print(FilterCount(sql=StageCount(100, 90, 2000)))
    sql_examined=100 sql_dropped=90 sql_bytes=2000
    """

    tag_hash: StageCount = field(default_factory=StageCount)
    bitmap: StageCount = field(default_factory=StageCount)
    sql: StageCount = field(default_factory=StageCount)
    tag_text: StageCount = field(default_factory=StageCount)

    def stages(self) -> dict[str, StageCount]:
        """The stages that have examined anything, by name, in order."""
        named = {stage.name: getattr(self, stage.name) for stage in fields(self)}
        return {name: stage for name, stage in named.items() if stage.examined}

    def __add__(self, other: FilterCount) -> FilterCount:
        names = [stage.name for stage in fields(self)]
        return FilterCount(*(getattr(self, name) + getattr(other, name) for name in names))

    def __sub__(self, earlier: FilterCount) -> FilterCount:
        """What was done since."""
        names = [stage.name for stage in fields(self)]
        return FilterCount(*(getattr(self, name) - getattr(earlier, name) for name in names))

    def __str__(self) -> str:
        """One line for a log; empty if nothing was examined."""
        return " ".join(
            f"{name}_examined={stage.examined} {name}_dropped={stage.dropped}"
            f" {name}_bytes={stage.size_bytes}"
            for name, stage in self.stages().items()
        )
