from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker_core.filter.bloom import BloomShape
from broker_core.filter.registered import (
    RegisteredFilter,
    load_registered,
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
    assert registered_filters(document(), SAVED_MS) == (REGISTERED,)


@pytest.mark.parametrize(
    "bloom",
    [
        {"bitNum": 216, "bitPos": [29, 107, 11]},
        {"bitNum": 112, "bitPos": [29, 107]},
        {"bitNum": 112, "bitPos": [29, 107, 112]},
        {"bitNum": 112, "bitPos": [29, 107, -1]},
        {"bitNum": 112, "bitPos": [29, 107, 12]},
        {"bitNum": 0, "bitPos": []},
    ],
)
@pytest.mark.parametrize("shape", [None, SHAPE], ids=["shape of the first", "shape given"])
def test_one_filter_with_other_bits_discards_all(
    bloom: dict[str, Any], shape: BloomShape | None
) -> None:
    both = document()
    groups = both["filterDataByTopic"]["TopicA"]["groupFilterData"]
    groups["GroupB"] = {**groups["GroupA"], "bloomFilterData": bloom}

    assert registered_filters(both, SAVED_MS, shape) == ()


def test_filters_of_another_shape_than_the_brokers_are_discarded() -> None:
    assert registered_filters(document(), SAVED_MS, BloomShape.of(20, 64)) == ()
    assert registered_filters(document(bloomFilterData={"bitNum": 0, "bitPos": []}), 1) == ()


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
    assert "event=registered_filters_ignored" in caplog.text


def test_filters_of_a_store_were_known_when_file_and_backup_were_written(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerFilter.json"
    path.parent.mkdir()
    for name, saved_ms in (("consumerFilter.json", 9_000), ("consumerFilter.json.bak", 5_000)):
        path.with_name(name).write_text(json.dumps(document()), encoding="utf-8")
        os.utime(path.with_name(name), ns=(0, saved_ms * 1_000_000))

    assert load_registered(tmp_path) == (dataclasses.replace(REGISTERED, saved_ms=5_000),)


def test_store_without_the_file_has_no_filters(tmp_path: Path) -> None:
    assert load_registered(tmp_path) == ()


def test_empty_document_holds_no_filters() -> None:
    assert registered_filters({}, SAVED_MS, SHAPE) == ()


def test_registration_is_found_by_topic_and_expression_the_oldest_first() -> None:
    younger = dataclasses.replace(REGISTERED, group="GroupB", born_ms=BORN_MS + 5)
    elsewhere = dataclasses.replace(REGISTERED, topic="TopicB", born_ms=1)

    found = registration_of([younger, elsewhere, REGISTERED], "TopicA", "price > 5")

    assert found == REGISTERED
    assert registration_of([REGISTERED], "TopicA", "price  > 5") is None
