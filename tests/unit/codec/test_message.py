from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.encode import encode
from broker_core.codec.hosts import pack_host
from broker_core.codec.message import encode_single, single_message
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import decode_record, encode_record
from broker_core.errors import IllegalMessageError

HOSTS = [pack_host("10.0.0.1", 7), pack_host("::1", 7)]
texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=9
)


@given(
    st.text("abc-_", min_size=1, max_size=200),
    st.binary(min_size=1, max_size=100),
    st.dictionaries(texts, texts, max_size=3),
    st.integers(0, 18),
    st.sampled_from(HOSTS),
)
def test_one_message_alone_has_the_bytes_of_a_batch_of_one(
    topic: str, body: bytes, properties: dict[str, str], level: int, host: bytes
) -> None:
    batch = single_message(topic, 3, body, properties, 12345, delay_level=level)

    message = encode_single(
        topic, 3, body, properties, 12345, delay_level=level, store_host=host, max_body_bytes=100
    )

    to = (SCHEDULE_TOPIC, level - 1) if level else (topic, 3)
    assert (message.topic, message.queue_id) == to
    assert message.encoded == encode(replace(batch, store_host=host)).buffer.tobytes()
    assert message.encoded == encode_record(decode_record(message.encoded))


@pytest.mark.parametrize(
    ("body", "properties", "words"),
    [
        (b"x" * 101, {}, r"a body of 101 bytes, the limit is 100 \(maxMessageSize\)"),
        (b"x", {"p": "v" * 32767}, "32770 bytes of properties, the limit is 32767"),
        (b"", {}, "has no body"),
        ("x", {}, "has a body of type str"),
        (b"x", {"p": "\x01"}, "has a zero byte or a separator"),
    ],
)
def test_a_message_that_no_store_takes_is_refused(
    body: bytes, properties: dict[str, str], words: str
) -> None:
    with pytest.raises(IllegalMessageError, match=words):
        encode_single("t", 0, body, properties, 0, max_body_bytes=100)


def test_a_body_may_be_any_view_of_bytes() -> None:
    body = b"0123456789"
    views = [bytearray(body), memoryview(b"90817263544536271809")[1::2][::-1], memoryview(body)]

    encoded = [encode_single("t", 0, view, {}, 0).encoded for view in views]  # type: ignore[arg-type]

    stored = [decode_record(raw).body for raw in encoded]
    assert stored == [bytes(view) for view in views]
