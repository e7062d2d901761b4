from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import CorruptRecordError
from broker_core.store.recovery.checkpoint import Checkpoint, read_checkpoint
from tests.kit import fixtures


def test_fields_lie_where_the_specification_says() -> None:
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6)

    assert checkpoint.encode().hex() == "".join(f"{value:016x}" for value in range(1, 7))
    assert Checkpoint.decode(checkpoint.encode() + bytes(4048)) == checkpoint


def test_an_older_release_leaves_later_fields_zero() -> None:
    assert Checkpoint.decode(Checkpoint(1, 2, 3, 4, 5, 6).encode()[:24]) == Checkpoint(1, 2, 3)


@pytest.mark.parametrize(
    ("physic", "logics", "expected"), [(10_000, 9_000, 6_000), (10_000, 0, 0), (2_000, 2_500, 0)]
)
def test_recovery_goes_back_three_seconds_from_the_older_time(
    physic: int, logics: int, expected: int
) -> None:
    assert Checkpoint(physic, logics).min_timestamp_ms == expected


def test_a_missing_file_is_a_store_that_never_flushed(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "checkpoint") == Checkpoint()


def test_a_file_of_apache_is_read(tmp_path: Path) -> None:
    root = fixtures.extract("basic-5.5", tmp_path)

    checkpoint = read_checkpoint(root / "checkpoint")

    assert checkpoint.physic_msg_timestamp > 1_700_000_000_000
    assert checkpoint.logics_physical_offset == 0


@pytest.mark.parametrize("data", [b"\xff" * 8 + bytes(4088), bytes(4095)], ids=["sign", "length"])
def test_a_damaged_file_is_corrupt(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)

    with pytest.raises(CorruptRecordError, match=str(path)):
        read_checkpoint(path)
