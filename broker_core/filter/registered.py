"""Registered filters: SQL92 filters that consumer groups have told a broker, and their bitmaps.

Kept in config/consumerFilter.json, which a broker writes every ten seconds and when it stops. A
filter that was changed since then is not in the file yet, so a message that was stored later can't
be judged by its bitmap. Nor can one that was stored before the filter was registered. Whatever
can't be judged is evaluated, so that a bitmap never changes a verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from broker_core.errors import StorageError
from broker_core.filter.bloom import BloomShape
from broker_core.store.config_files import Version, load, versions

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)
_FILE = Path("config") / "consumerFilter.json"
# A message is dispatched, and its bitmap made, a little after it was stored.
_DISPATCH_LAG_MS = 1000


@dataclass(frozen=True, slots=True)
class RegisteredFilter:
    """A filter that a consumer group has registered with the broker. Times are in ms since 1970.

    `dead_ms` is 0 while the group has consumers. Bits are computed for dead filters as well, until
    the broker forgets them. `saved_ms` is when the broker wrote the file.
    """

    topic: str
    group: str
    expression: str
    expression_type: str
    born_ms: int
    dead_ms: int
    client_version: int
    positions: tuple[int, ...]
    m: int
    saved_ms: int

    def rejects(
        self,
        store_ms: NDArray[np.int64],
        bitmap_bytes: NDArray[np.integer],
        bitmaps: NDArray[np.uint8],
    ) -> NDArray[np.bool_]:
        """Return which messages this filter did not match when they were stored.

        A message can only be rejected if it was stored after the filter was registered and before
        the file was written, and if it has a bitmap of this filter's length.

        Args:
            store_ms: Store times.
            bitmap_bytes: Lengths of the bitmaps, 0 where a message has none.
            bitmaps: One row a message, padded to the longest.
        """
        can_tell = (store_ms > self.born_ms) & (store_ms < self.saved_ms - _DISPATCH_LAG_MS)
        can_tell &= bitmap_bytes == self.m // 8
        if self.expression_type != "SQL92" or not self.positions or not can_tell.any():
            return np.zeros(len(store_ms), np.bool_)
        positions = np.array(self.positions)
        bits = bitmaps[:, positions // 8] & (1 << positions % 8).astype(np.uint8)
        return np.asarray(can_tell & (bits == 0).any(axis=1))


def load_registered(root: Path) -> tuple[RegisteredFilter, ...]:
    """Load the filters that are registered with the broker of the store at `root`; often none."""
    # The older of file and backup, since the backup is read if the file turns out to be torn.
    times = [found.modified_ns for found in versions(root / _FILE) if found is not None]
    return registered_filters(load(root / _FILE), min(times) // 1_000_000) if times else ()


class Registrations:
    """The filters registered with a store's broker, read again when their file has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._versions: tuple[Version | None, Version | None] = (None, None)
        self._filters: tuple[RegisteredFilter, ...] = ()

    def find(self, topic: str, expression: str) -> RegisteredFilter | None:
        """Return the registration to use for an expression on a topic, if there is one.

        A file that can't be read costs work, no verdict: then there is none.
        """
        found = versions(self._root / _FILE)
        if found != self._versions:
            try:
                self._filters = load_registered(self._root)
            except StorageError as error:
                log.warning("event=registered_filters_ignored reason=%s", error)
                self._filters = ()
            self._versions = found
        return registration_of(self._filters, topic, expression)


def registered_filters(
    document: Mapping[str, Any], saved_ms: int, shape: BloomShape | None = None
) -> tuple[RegisteredFilter, ...]:
    """Return the filters of a consumerFilter.json written at `saved_ms`; none if one's bits differ.

    A broker that is started with another shape discards the whole file, and so do we. Without
    `shape`, all must have the shape of the first. Bits that do not follow from shape, group and
    topic were made by rules that we do not know.
    """
    try:
        found = tuple(
            _registered(entry, saved_ms)
            for topic in document.get("filterDataByTopic", {}).values()
            for entry in topic["groupFilterData"].values()
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Not worth failing a read for: without registered filters every message is evaluated.
        log.warning("event=registered_filters_ignored reason=%r", error)
        return ()
    if not found:
        return ()
    shape = shape or BloomShape(len(found[0].positions), found[0].m)
    return found if all(_has_bits_of(shape, each) for each in found) else ()


def _has_bits_of(shape: BloomShape, registered: RegisteredFilter) -> bool:
    if shape.m <= 0 or shape.m % 8 or registered.m != shape.m:
        return False
    return registered.positions == shape.positions(registered.group, registered.topic)


def _registered(entry: Mapping[str, Any], saved_ms: int) -> RegisteredFilter:
    bloom = entry["bloomFilterData"]
    return RegisteredFilter(
        topic=str(entry["topic"]),
        group=str(entry["consumerGroup"]),
        expression=str(entry["expression"]),
        expression_type=str(entry["expressionType"]),
        born_ms=int(entry["bornTime"]),
        dead_ms=int(entry.get("deadTime", 0)),
        client_version=int(entry.get("clientVersion", 0)),
        positions=tuple(map(int, bloom["bitPos"])),
        m=int(bloom["bitNum"]),
        saved_ms=saved_ms,
    )


def registration_of(
    filters: Iterable[RegisteredFilter], topic: str, expression: str
) -> RegisteredFilter | None:
    """Return the oldest registration of an expression on a topic: it covers most messages.

    Which group registered it does not matter: its bits say what the expression said.
    """
    same = [each for each in filters if (each.topic, each.expression) == (topic, expression)]
    return min(same, key=lambda each: each.born_ms, default=None)
