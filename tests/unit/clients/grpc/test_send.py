from __future__ import annotations

import numpy as np

from broker_core.clients.grpc.send import Parcel
from broker_core.codec.message import encode_single


def test_a_parcel_is_cut_at_records() -> None:
    one = encode_single("t", 0, b"x" * 50, {}, 0).encoded
    size = len(one)
    parcel = Parcel(one * 5, np.full(5, size, dtype=np.int32))

    cut = list(parcel.chunks(2 * size + 1))
    alone = list(parcel.chunks(1))

    assert cut == [
        (0, 2, 0, 2 * size),
        (2, 4, 2 * size, 4 * size),
        (4, 5, 4 * size, 5 * size),
    ]
    assert [stop - start for start, stop, _, _ in alone] == [1] * 5
