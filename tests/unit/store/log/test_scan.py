from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from broker_core.store.log.scan import SECTOR, first_torn

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


def texts(*spans: tuple[int, int]) -> tuple[Bytes, Places, Places]:
    """A segment full of text, and where some properties in it begin and how long they are."""
    buffer = np.full(4 * SECTOR, ord("p"), dtype=np.uint8)
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    return buffer, starts, ends - starts


@pytest.mark.parametrize(
    ("lost", "torn"),
    [
        ((512, 1024), 0),  # all of the sector in which the first text ends
        ((1024, 1536), 1),  # the middle of the second
        ((1536, 2048), 1),  # its end
        ((600, 700), None),  # between the texts
    ],
)
def test_text_that_lost_a_sector_is_torn(lost: tuple[int, int], torn: int | None) -> None:
    buffer, starts, lengths = texts((400, 600), (900, 1600))
    buffer[slice(*lost)] = 0

    assert first_torn(buffer, starts, lengths) == torn


@pytest.mark.parametrize("zero", [(450, 460), (510, 511), (513, 600), (512, 599), (400, 600)])
def test_zeros_that_are_part_of_a_text_are_not_a_tear(zero: tuple[int, int]) -> None:
    buffer, starts, lengths = texts((400, 600), (900, 1600))
    buffer[slice(*zero)] = 0

    assert first_torn(buffer, starts, lengths) is None


def test_nothing_is_torn_where_nothing_is() -> None:
    buffer, starts, lengths = texts()

    assert first_torn(buffer, starts, lengths) is None


def test_empty_texts_have_nothing_to_lose() -> None:
    buffer, starts, lengths = texts((512, 512), (700, 700))
    buffer[:] = 0

    assert first_torn(buffer, starts, lengths) is None
