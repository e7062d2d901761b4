from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.clients.grpc.connection import Greeting
from broker_core.clients.grpc.send import Parcel, single_bytes
from broker_core.codec.encode import encode
from broker_core.codec.hosts import pack_host
from broker_core.codec.message import single_message, single_record
from broker_core.errors import IllegalMessageError
from broker_core.wire.core.methods import Limits

GREETING = Greeting("broker-a", b"", pack_host("10.0.0.1", 7), Limits(message_bytes=100), 18)
texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=9
)


@given(
    st.text("abc-_", min_size=1, max_size=200),
    st.binary(min_size=1, max_size=100),
    st.dictionaries(texts, texts, max_size=3),
    st.integers(0, 18),
    st.sampled_from([pack_host("10.0.0.1", 7), pack_host("::1", 7)]),
)
def test_one_message_alone_has_the_bytes_of_a_batch_of_one(
    topic: str, body: bytes, properties: dict[str, str], level: int, host: bytes
) -> None:
    record = single_record(topic, 3, body, properties, 12345, delay_level=level, store_host=host)
    batch = single_message(topic, 3, body, properties, 12345, delay_level=level)

    raw = single_bytes(record, GREETING)

    assert raw == encode(replace(batch, store_host=host)).buffer.tobytes()


@pytest.mark.parametrize(
    ("body", "properties", "words"),
    [
        (b"x" * 101, {}, "a body of 101 bytes, the limit is 100"),
        (b"x", {"p": "v" * 32767}, "properties of 32770 bytes, the limit is 32767"),
    ],
)
def test_a_message_over_a_limit_is_refused(
    body: bytes, properties: dict[str, str], words: str
) -> None:
    record = single_record("t", 0, body, properties, 0)

    with pytest.raises(IllegalMessageError, match=words):
        single_bytes(record, GREETING)


def test_a_parcel_is_cut_at_records() -> None:
    one = single_bytes(single_record("t", 0, b"x" * 50, {}, 0), GREETING)
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
