from __future__ import annotations

import pytest

from broker_core.filter.bloom import BloomShape, murmur3

SHAPE = BloomShape.of(20, 32)


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
