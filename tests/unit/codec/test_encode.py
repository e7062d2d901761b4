"""Limits of what may be encoded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.decode import decode
from broker_core.codec.encode import encode, record_sizes
from broker_core.codec.frames import FrameBatch
from broker_core.codec.message_batch import MessageBatch
from broker_core.errors import IllegalMessageError

pytestmark = pytest.mark.usefixtures("either_way")


def messages(count: int = 3) -> MessageBatch:
    return MessageBatch(
        topics=["orders"],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=np.zeros(count, dtype=np.int32),
        bodies=pa.array([b"body"] * count, pa.binary()),
        properties=pa.array([b""] * count, pa.binary()),
    )


def test_no_messages_encode_to_no_bytes() -> None:
    encoded = encode(messages(0))

    assert len(encoded) == len(encoded.buffer) == 0


def test_a_body_over_the_limit_is_refused_with_its_place_and_size() -> None:
    large = replace(messages(), bodies=pa.array([b"ok", b"x" * 11, b"ok"]))

    with pytest.raises(
        IllegalMessageError,
        match=r"Message 1 .* 'orders' has a body of 11 bytes, the limit is 10 \(maxMessageSize\)",
    ):
        encode(large, max_message_bytes=10)


def test_properties_over_the_limit_are_refused() -> None:
    exact = replace(messages(1), properties=pa.array([b"x" * 32767]))
    over = replace(messages(1), properties=pa.array([b"x" * 32768]))

    assert encode(exact).sizes.tolist() == [91 + 6 + 4 + 32767]
    with pytest.raises(IllegalMessageError, match="32768 bytes of properties, the limit is 32767"):
        encode(over)


def test_a_topic_over_the_limit_is_refused() -> None:
    assert encode(replace(messages(1), topics=["t" * 255])).sizes.tolist() == [92 + 255 + 4]
    with pytest.raises(IllegalMessageError, match="longer than 255 bytes"):
        encode(replace(messages(1), topics=["t" * 256]))


def test_gaps_are_left_before_records_and_behind_the_last() -> None:
    gaps = np.array([5, 0, 300, 2])

    encoded = encode(messages(), gaps=gaps)

    plain = encode(messages())
    size = int(plain.sizes[0])
    assert encoded.starts.tolist() == [5, 5 + size, 305 + 2 * size]
    assert len(encoded.buffer) == 3 * size + 307
    assert encoded.sizes.tolist() == record_sizes(messages()).tolist() == [size] * 3
    for start in encoded.starts.tolist():
        found = encoded.buffer[start : start + size].tobytes()
        assert found == plain.buffer[:size].tobytes()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_columns_may_be_slices_of_any_binary_kind(kind: pa.DataType) -> None:
    bodies = pa.array(["left out", "b0", "b1", "b2"], kind).slice(1)
    encoded = encode(replace(messages(), bodies=bodies))

    frames = FrameBatch(encoded.buffer, encoded.starts, encoded.sizes, np.zeros(3, dtype=np.int64))

    assert decode(frames, ["body"]).column(0).to_pylist() == [b"b0", b"b1", b"b2"]
