from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.hashing.java import java_hash
from broker_core.errors import FilterSyntaxError
from broker_core.filter.tag_expression import TagFilter

# Vectors of the tag hash, as signed 32-bit integers.
HASHES = {
    "TagA": 2598919,
    "Aa": 2112,
    "BB": 2112,
    "\u8ba2\u5355": 1129459,
    "\U0001f600": 1772899,
    "shipment": -516329062,
    "f5a5a608": 0,
}


def codes(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything_is_written_in_three_ways(text: str | None) -> None:
    tags = TagFilter(text)

    assert tags.is_everything
    assert (tags.text, tags.tags) == ("*", None)
    assert tags.select_codes(codes(0, 5, -1, -(2**63))).all()
    assert tags.select_texts(pa.array([None, "", "A"])).all()


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("A", ("A",)),
        ("A||", ("A",)),
        ("||A", ("A",)),
        ("A||  ||A", ("A",)),
        ("A || B", ("A", "B")),
        (" \tA\x00 ||\nB||C", ("A", "B", "C")),
        ("A|B", ("A|B",)),
        ("A|||B", ("A", "|B")),
        ("|||", ("|",)),
        ("A || *", ("A", "*")),
        (" * ", ("*",)),
        ("a||A", ("a", "A")),
        ("\u00a0A", ("\u00a0A",)),
    ],
)
def test_expression_names_its_tags(text: str, tags: tuple[str, ...]) -> None:
    assert TagFilter(text).tags == tags


@pytest.mark.parametrize("text", ["||", "||||", "||||||"])
def test_separators_alone_are_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="expected a tag"):
        TagFilter(text)


@pytest.mark.parametrize("text", [" ", "\t\n", " || ", "|| ||"])
def test_blanks_alone_match_nothing(text: str) -> None:
    tags = TagFilter(text)

    assert tags.tags == ()
    assert not tags.is_everything
    assert not tags.select_codes(codes(0, 1, -1)).any()
    assert not tags.select_texts(pa.array([None, "", " "])).any()


@pytest.mark.parametrize("tag", HASHES)
def test_entry_matches_by_the_hash_of_its_tag(tag: str) -> None:
    found = TagFilter(tag).select_codes(codes(HASHES[tag], HASHES[tag] + 1))

    assert found.tolist() == [True, False]


def test_tags_of_equal_hash_are_told_apart_by_their_text() -> None:
    tags = TagFilter("Aa")

    assert tags.select_codes(codes(HASHES["BB"])).all()
    assert tags.select_texts(pa.array(["Aa", "BB"])).tolist() == [True, False]


def test_message_without_tag_passes_a_hash_of_zero_and_not_the_text() -> None:
    tags = TagFilter("f5a5a608")

    assert tags.select_codes(codes(0)).all()
    assert tags.select_texts(pa.array([None, "f5a5a608"])).tolist() == [False, True]


def test_only_the_low_32_bits_of_the_tag_field_count() -> None:
    high = 7 << 32
    fields = codes(high | HASHES["TagA"], high | (HASHES["shipment"] & 0xFFFFFFFF), high)

    assert TagFilter("TagA || shipment").select_codes(fields).tolist() == [True, True, False]


def test_delivery_time_in_the_tag_field_is_no_tag() -> None:
    assert not TagFilter("TagA").select_codes(codes(1_700_000_000_000)).any()


def test_address_that_was_not_followed_may_be_any_tag() -> None:
    fields = codes(-(2**63), -(2**31) - 1, -(2**31), -1)

    assert TagFilter("TagA").select_codes(fields).tolist() == [True, True, False, False]


def test_large_strings_and_slices_are_taken_too() -> None:
    texts = pa.array(["x", "A", None, "B"], pa.large_string()).slice(1)

    assert TagFilter("A || B").select_texts(texts).tolist() == [True, False, True]


def test_filter_pickles_by_its_text_and_shows_it() -> None:
    original = TagFilter("A || B")

    copy = pickle.loads(pickle.dumps(original))

    assert copy == original
    assert hash(copy) == hash(original)
    assert copy.select_codes(codes(65, 66, 67)).tolist() == [True, True, False]
    assert repr(copy) == "TagFilter('A || B')"
    assert copy != TagFilter("A")


def test_many_tags_select_as_few_do() -> None:
    names = [f"tag{number}" for number in range(12)]
    codes = np.array([java_hash(name) for name in [*names, "other"]], dtype=np.int64)

    by_all = TagFilter(" || ".join(names)).select_codes(codes)

    assert by_all.tolist() == [True] * 12 + [False]
    for number, name in enumerate(names):
        assert TagFilter(name).select_codes(codes).tolist() == [n == number for n in range(13)]
