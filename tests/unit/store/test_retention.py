from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from broker_core.store.io.segments import Segment
from broker_core.store.retention import DatedSegment, before, expired, is_delete_hour
from broker_core.store.settings import StoreSettings

HOUR_MS = 3_600_000
SEGMENTS = [Segment(Path(str(base)), base, 100) for base in range(0, 1000, 100)]
NOON = int(datetime(2026, 5, 4, 12, 30).astimezone().timestamp() * 1000)
AT_FOUR = int(datetime(2026, 5, 4, 4, 59).astimezone().timestamp() * 1000)
SETTINGS = StoreSettings()


def aged(*hours: int, now_ms: int) -> list[DatedSegment]:
    """Segments last written so many hours ago."""
    return [
        DatedSegment(segment, now_ms - age * HOUR_MS)
        for segment, age in zip(SEGMENTS, hours, strict=False)
    ]


def bases(segments: list[Segment]) -> list[int]:
    return [segment.base for segment in segments]


@pytest.mark.parametrize(
    ("offset", "gone"),
    [(0, 0), (99, 0), (100, 1), (250, 2), (899, 8), (900, 9), (10**9, 9)],
)
def test_whole_segments_before_an_offset_but_never_the_last(offset: int, gone: int) -> None:
    assert bases(before(SEGMENTS, offset)) == list(range(0, gone * 100, 100))


def test_empty_log_has_nothing_to_delete() -> None:
    assert before([], 10) == []
    assert expired([], SETTINGS, now_ms=AT_FOUR, disk_percent=99) == []


def test_expired_segments_go_in_the_hour_of_deletion_only() -> None:
    old = aged(100, 80, 71, 90, 0, now_ms=AT_FOUR)
    assert bases(expired(old, SETTINGS, now_ms=AT_FOUR, disk_percent=10)) == [0, 100]

    old = aged(100, 80, 71, 90, 0, now_ms=NOON)
    assert expired(old, SETTINGS, now_ms=NOON, disk_percent=10) == []


def test_fuller_disk_deletes_expired_segments_at_any_hour() -> None:
    old = aged(100, 80, 71, 90, 0, now_ms=NOON)

    assert expired(old, SETTINGS, now_ms=NOON, disk_percent=75) == []
    assert bases(expired(old, SETTINGS, now_ms=NOON, disk_percent=76)) == [0, 100]


def test_full_disk_deletes_the_oldest_whatever_their_age() -> None:
    young = aged(*([1] * 10), now_ms=NOON)

    assert bases(expired(young, SETTINGS, now_ms=NOON, disk_percent=86)) == list(range(0, 900, 100))
    gentle = replace(SETTINGS, clean_file_forcibly=False)
    assert expired(young, gentle, now_ms=NOON, disk_percent=86) == []


def test_a_run_deletes_no_more_than_its_share_except_on_demand() -> None:
    settings = replace(SETTINGS, delete_file_batch_max=3)
    old = aged(*([100] * 10), now_ms=AT_FOUR)

    assert len(expired(old, settings, now_ms=AT_FOUR, disk_percent=10)) == 3
    assert len(expired(old, settings, now_ms=NOON, disk_percent=10, is_on_demand=True)) == 9


@pytest.mark.parametrize(
    ("when", "is_time"), [("04", False), ("12", True), ("03;12", True), ("", False), ("x", False)]
)
def test_hours_of_deletion_are_listed(when: str, is_time: bool) -> None:
    assert is_delete_hour(when, NOON) is is_time
