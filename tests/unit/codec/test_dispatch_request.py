"""What dispatch reads out of records, where the rules have corners."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from broker_core.codec.dispatch_request import DispatchRequests, dispatch_requests, join_requests
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.properties.text import format_properties
from broker_core.codec.record import Record
from broker_core.errors import CorruptRecordError
from tests.kit.records import laid_out

pytestmark = pytest.mark.usefixtures("either_way")

RECORD = Record("T", 0, 0, 0, b"body")


def hashes(*keys: str) -> list[int]:
    return [index_hash(java_hash(f"T#{key}")) for key in keys]


def with_properties(**properties: str) -> Record:
    return replace(RECORD, properties=format_properties(properties))


def test_keys_are_the_pieces_between_spaces_in_every_row() -> None:
    keys = [" k1  k2 ", " k1  k2 ", "k3", "  ", "k4 k5", " k6"]
    frames = laid_out([with_properties(KEYS=text) for text in keys])

    found = dispatch_requests(frames)

    assert found.index_rows.tolist() == [0, 0, 1, 1, 2, 4, 4, 5]
    assert found.index_hashes.tolist() == hashes("k1", "k2", "k1", "k2", "k3", "k4", "k5", "k6")


def test_a_record_is_indexed_by_unique_key_then_keys_then_tag() -> None:
    frames = laid_out([with_properties(TAGS="t", KEYS="k1 k2", UNIQ_KEY="u"), RECORD])

    assert dispatch_requests(frames).index_hashes.tolist() == hashes("u", "k1", "k2", "T#t")
    assert dispatch_requests(frames, index_tags=False).index_hashes.tolist() == hashes(
        "u", "k1", "k2"
    )


def test_a_rolled_back_record_is_neither_queued_nor_indexed() -> None:
    tagged = with_properties(TAGS="t")
    frames = laid_out([replace(tagged, sys_flag=flag) for flag in (0x0, 0x4, 0x8, 0xC)])

    found = dispatch_requests(frames)

    assert found.in_queue.tolist() == [True, False, True, False]
    assert found.index_rows.tolist() == [0, 1, 2]


def test_tags_of_any_script_and_length_have_java_s_hash() -> None:
    tags = ["A", "订单", "🚀", "x" * 300, "é" * 300, "A"]
    frames = laid_out([with_properties(TAGS=tag) for tag in tags])

    found = dispatch_requests(frames)

    assert found.tags_codes.tolist() == [java_hash(tag) for tag in tags]
    assert found.index_hashes.tolist() == hashes(*(f"T#{tag}" for tag in tags))


@pytest.mark.parametrize("length", range(1, 36))
def test_ascii_of_every_length_has_java_s_hash(length: int) -> None:
    texts = ["\x7f" * length, "".join(map(chr, range(33, 33 + length))), "\x03" * length]
    frames = laid_out([with_properties(TAGS=text, UNIQ_KEY=text) for text in texts])

    found = dispatch_requests(frames)

    assert found.tags_codes.tolist() == [java_hash(text) for text in texts]
    assert found.index_hashes.tolist() == [
        value for text in texts for value in hashes(text, f"T#{text}")
    ]


def test_joined_fields_are_those_of_all_records() -> None:
    first = [with_properties(TAGS="a", KEYS="k1 k2"), replace(RECORD, topic="U", queue_offset=4)]
    second = [replace(with_properties(UNIQ_KEY="u"), topic="V", queue_id=3), RECORD]
    third = [replace(RECORD, topic="U", sys_flag=0xC, store_timestamp=9)]
    groups = [first, second, third]
    whole = laid_out([record for group in groups for record in group])
    sizes = whole.sizes.tolist()
    parts = [
        laid_out(group, origin=sum(sizes[:before]))
        for group, before in zip(groups, (0, 2, 4), strict=True)
    ]

    found = join_requests([dispatch_requests(part) for part in parts])

    assert plain(found) == plain(dispatch_requests(whole))


def plain(found: DispatchRequests) -> dict[str, list[object]]:
    """All that fields say, with topics as each record's: they may be listed in any way."""
    values: dict[str, list[object]] = {
        each.name: getattr(found, each.name).tolist()
        for each in fields(found)
        if each.name not in ("topics", "topic_codes")
    }
    return values | {"topics": [found.topics[code] for code in found.topic_codes]}


def test_topics_come_once_however_many_records_share_them() -> None:
    frames = laid_out([RECORD, replace(RECORD, topic="U"), RECORD])

    found = dispatch_requests(frames)

    assert found.topics == ["T", "U"]
    assert found.topic_codes.tolist() == [0, 1, 0]


def test_a_topic_that_is_no_text_is_refused() -> None:
    frames = laid_out([RECORD, RECORD])
    buffer = frames.buffer.copy()
    buffer[int(frames.starts[1]) + 88 + 4 + 1] = 0xFF

    with pytest.raises(CorruptRecordError, match="not UTF-8") as refusal:
        dispatch_requests(replace(frames, buffer=buffer))

    assert refusal.value.physical_offset == int(frames.starts[1])
