from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from broker_core.filter.bloom import (
    BloomShape,
    RegisteredFilter,
    murmur3,
    registered_filters,
    registration_of,
)

SHAPE = BloomShape.of(20, 32)
BORN_MS, SAVED_MS = 1_000_000, 2_000_000

REGISTERED = RegisteredFilter(
    topic="TopicA",
    group="GroupA",
    expression="price > 5",
    expression_type="SQL92",
    born_ms=BORN_MS,
    dead_ms=0,
    client_version=7,
    positions=(29, 107, 11),
    m=112,
    saved_ms=SAVED_MS,
)


def document(**changes: Any) -> dict[str, Any]:
    """A consumerFilter.json with one filter, as a broker writes it."""
    entry = {
        "bloomFilterData": {"bitNum": 112, "bitPos": [29, 107, 11]},
        "bornTime": BORN_MS,
        "clientVersion": 7,
        "consumerGroup": "GroupA",
        "dead": False,
        "deadTime": 0,
        "expression": "price > 5",
        "expressionType": "SQL92",
        "topic": "TopicA",
    }
    groups = {"GroupA": {**entry, **changes}}
    return {"filterDataByTopic": {"TopicA": {"groupFilterData": groups, "topic": "TopicA"}}}


@pytest.mark.parametrize(
    ("error_percent", "filters", "k", "m"),
    [(20, 32, 3, 112), (20, 64, 3, 216), (10, 128, 4, 616), (1, 300, 7, 2880)],
)
def test_shape_follows_from_error_rate_and_number_of_filters(
    error_percent: int, filters: int, k: int, m: int
) -> None:
    assert BloomShape.of(error_percent, filters) == BloomShape(k, m)


def test_hash_is_the_first_half_of_murmur3_128() -> None:
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert murmur3(b"") == 0


@pytest.mark.parametrize(
    ("group", "topic", "hashed", "positions", "bitmap"),
    [
        ("GroupA", "TopicA", 0x85F42DA96247C609, (29, 107, 11), "0008002000000000000000000008"),
        ("CID_demo", "orders", 0x70D32AAFD4E50D78, (7, 57, 21), "8000200000000002000000000000"),
        (
            "\u7ec4",
            "\u4e3b\u9898",
            0xD34E17C36CA1EA73,
            (38, 9, 19),
            "0002080040000000000000000000",
        ),
    ],
)
def test_group_and_topic_own_their_bits(
    group: str, topic: str, hashed: int, positions: tuple[int, ...], bitmap: str
) -> None:
    assert murmur3(f"{group}#{topic}".encode()) == hashed
    assert SHAPE.positions(group, topic) == positions
    assert SHAPE.bitmap(positions).hex() == bitmap


def rejected(
    registered: RegisteredFilter, bitmaps: Sequence[bytes], store_ms: int = BORN_MS + 1
) -> list[bool]:
    width = max(map(len, bitmaps))
    padded = [np.frombuffer(bitmap.ljust(width, b"\0"), np.uint8) for bitmap in bitmaps]
    mask = registered.rejects(
        np.full(len(bitmaps), store_ms),
        np.array([len(bitmap) for bitmap in bitmaps], np.int16),
        np.array(padded),
    )
    return list(map(bool, mask))


def test_message_with_any_bit_clear_is_rejected() -> None:
    bitmaps = [SHAPE.bitmap(bits) for bits in ((29, 107, 11), (29, 107), (), range(112))]

    assert rejected(REGISTERED, bitmaps) == [False, True, True, False]


def test_each_single_bit_is_found_where_it_lies() -> None:
    for position in range(112):
        one = dataclasses.replace(REGISTERED, positions=(position,))
        others = [bit for bit in range(112) if bit != position]

        assert rejected(one, [SHAPE.bitmap([position]), SHAPE.bitmap(others)]) == [False, True]


@pytest.mark.parametrize(
    ("store_ms", "is_rejected"),
    [(BORN_MS, False), (BORN_MS + 1, True), (SAVED_MS - 1001, True), (SAVED_MS - 1000, False)],
)
def test_only_what_was_stored_while_the_filter_was_known_is_rejected(
    store_ms: int, is_rejected: bool
) -> None:
    assert rejected(REGISTERED, [bytes(14)], store_ms) == [is_rejected]


@pytest.mark.parametrize("length", [0, 13, 15])
def test_bitmap_of_another_length_rejects_nothing(length: int) -> None:
    assert rejected(REGISTERED, [bytes(length), bytes(14)]) == [False, True]


def test_filter_of_another_type_rejects_nothing() -> None:
    tag_filter = dataclasses.replace(REGISTERED, expression_type="TAG")

    assert rejected(tag_filter, [bytes(14)]) == [False]


def test_messages_without_any_bitmap_are_not_rejected() -> None:
    assert rejected(REGISTERED, [b"", b""]) == [False, False]


def test_registered_filters_are_read_from_the_brokers_file() -> None:
    assert registered_filters(document(), SAVED_MS, SHAPE) == (REGISTERED,)


@pytest.mark.parametrize(
    "bloom",
    [
        {"bitNum": 216, "bitPos": [29, 107, 11]},
        {"bitNum": 112, "bitPos": [29, 107]},
        {"bitNum": 112, "bitPos": [29, 107, 112]},
        {"bitNum": 112, "bitPos": [29, 107, -1]},
    ],
)
def test_one_filter_of_another_shape_discards_all(bloom: dict[str, Any]) -> None:
    both = document()
    groups = both["filterDataByTopic"]["TopicA"]["groupFilterData"]
    groups["GroupB"] = {**groups["GroupA"], "bloomFilterData": bloom}

    assert registered_filters(both, SAVED_MS, SHAPE) == ()


@pytest.mark.parametrize(
    "broken",
    [
        {"filterDataByTopic": []},
        {"filterDataByTopic": {"TopicA": {}}},
        document(bloomFilterData=None),
        document(bornTime="soon"),
    ],
)
def test_document_of_another_form_holds_no_filters(
    broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert registered_filters(broken, SAVED_MS, SHAPE) == ()
    assert "registered filters ignored" in caplog.text


def test_empty_document_holds_no_filters() -> None:
    assert registered_filters({}, SAVED_MS, SHAPE) == ()


def test_registration_is_found_by_topic_and_expression_the_oldest_first() -> None:
    younger = dataclasses.replace(REGISTERED, group="GroupB", born_ms=BORN_MS + 5)
    elsewhere = dataclasses.replace(REGISTERED, topic="TopicB", born_ms=1)

    found = registration_of([younger, elsewhere, REGISTERED], "TopicA", "price > 5")

    assert found == REGISTERED
    assert registration_of([REGISTERED], "TopicA", "price  > 5") is None
