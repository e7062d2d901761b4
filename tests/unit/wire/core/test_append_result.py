from __future__ import annotations

import numpy as np
import pytest

from broker_core.errors import RequestError
from broker_core.types import AppendResult
from broker_core.wire.core.append_result import pack_append_result, unpack_append_result

GOLDEN = bytes.fromhex(
    "524d5150 01000000 0200000000000000 e803000000000000"
    "0500000000000000 0600000000000000"
    "6400000000000000 c800000000000000"
    "5b000000 5c000000"
    "00000000 01000000"
)
PLACED = AppendResult(
    queue_ids=np.array([0, 1], dtype=np.int32),
    queue_offsets=np.array([5, 6], dtype=np.int64),
    physical_offsets=np.array([100, 200], dtype=np.int64),
    sizes=np.array([91, 92], dtype=np.int32),
    store_timestamp_ms=1000,
)


def test_the_answer_to_an_append_has_the_documented_bytes() -> None:
    assert pack_append_result(PLACED) == GOLDEN


def test_the_answer_is_read_back() -> None:
    back = unpack_append_result(GOLDEN)

    assert back.queue_ids.tolist() == [0, 1]
    assert back.queue_offsets.tolist() == [5, 6]
    assert back.physical_offsets.tolist() == [100, 200]
    assert back.sizes.tolist() == [91, 92]
    assert back.store_timestamp_ms == 1000


@pytest.mark.parametrize(
    "damaged", [b"", GOLDEN[:20], GOLDEN[:-1], GOLDEN + b"\0", b"X" + GOLDEN[1:]]
)
def test_an_answer_that_does_not_add_up_is_refused(damaged: bytes) -> None:
    with pytest.raises(RequestError, match="can't be read"):
        unpack_append_result(damaged)
