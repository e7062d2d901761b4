"""Finding properties in many texts gives what parsing each of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.decode import decode
from broker_core.codec.properties.join import join_properties
from broker_core.codec.properties.search import find_values
from broker_core.codec.properties.text import format_properties, parse_properties
from broker_core.codec.property_names import TAGS
from broker_core.codec.record import Record
from broker_core.codec.spans import Spans
from tests.kit.records import PROPERTIES, laid_out

pytestmark = pytest.mark.usefixtures("either_way")

NAMES = ["a", "T", "Ta", "aaaaaaa", "aaaaaaaa", "aaaaaaaaa", "a\x01a", "a\x02", ""]
# Pieces of one length, so that texts share their length far more often than their layout.
PIECES = st.text("\x00\x01\x02\x03aT", min_size=4, max_size=4).map(str.encode)
ALIGNED = st.lists(
    st.one_of(PIECES, st.sampled_from([b"a\x01T\x02", b"T\x01a\x02", b"Ta\x01b", b"aaaa"])),
    min_size=1,
    max_size=6,
).map(b"".join)


@st.composite
def texts(draw: st.DrawFn) -> list[bytes]:
    kinds = draw(st.lists(st.one_of(ALIGNED, PROPERTIES), min_size=1, max_size=12))
    random = Random(draw(st.integers(0, 2**32)))
    first = draw(st.sampled_from([1, 30]))  # how often the first kind comes for each of the others
    weights = [first, *[1] * (len(kinds) - 1)]
    return random.choices(kinds, weights, k=draw(st.integers(1, 400)))


def values(rows: Sequence[bytes], name: str, *, is_padded: bool = False) -> list[str]:
    gap = b"\x02T"
    width = max(map(len, rows)) if is_padded else 0
    padded = [row + (b"a\x01T\x02" * width)[: width - len(row)] for row in rows]
    buffer = np.frombuffer(gap + gap.join(padded) + gap, dtype=np.uint8)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    sizes = np.array([len(row) for row in padded], dtype=np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes
    (found,) = find_values(Spans(buffer, starts, lengths), [name])
    return [
        buffer[start : start + length].tobytes().decode("utf-8", "replace")
        for start, length in zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    ]


@given(texts(), st.sampled_from(NAMES), st.booleans())
def test_a_property_is_found_where_parsing_finds_it(
    rows: list[bytes], name: str, is_padded: bool
) -> None:
    assert values(rows, name, is_padded=is_padded) == [
        parse_properties(row).get(name, "") for row in rows
    ]


@given(st.integers(1, 300), st.integers(0, 40), st.sampled_from(["TAGS", "KEYS", "x"]))
def test_a_value_may_have_any_length(rows: int, longest: int, name: str) -> None:
    made = [
        format_properties({"x": "v" * (row % 7 + 1), "TAGS": "t" * (row % (longest + 1)), "y": "2"})
        for row in range(rows)
    ]

    assert values(made, name) == [parse_properties(row).get(name, "") for row in made]


@given(st.lists(PROPERTIES, min_size=1, max_size=30))
def test_the_map_column_is_the_parsed_properties(rows: list[bytes]) -> None:
    frames = laid_out([Record("T", 0, 0, 0, b"x", row) for row in rows])

    column = decode(frames, ["properties"]).column(0)

    assert [dict(entries) for entries in column.to_pylist()] == [
        parse_properties(row) for row in rows
    ]


# ------------------------------------------------------------------------------------------ joining

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=5
)
OPTIONAL_WORDS = st.one_of(st.none(), st.just(""), WORDS)
# Callers refuse RocketMQ's own names among a user's.
USER_NAMES = WORDS.filter(lambda name: name not in (TAGS, "KEYS", "CLUSTER"))
MAPS = st.one_of(st.none(), st.dictionaries(USER_NAMES, st.one_of(st.none(), WORDS), max_size=3))


@given(st.lists(st.tuples(OPTIONAL_WORDS, OPTIONAL_WORDS, MAPS), max_size=20), OPTIONAL_WORDS)
def test_joined_columns_are_the_formatted_properties(
    rows: list[tuple[str | None, str | None, dict[str, str | None] | None]], cluster: str | None
) -> None:
    tags, keys, maps = (
        pa.array(column, kind)
        for column, kind in zip(
            zip(*rows, strict=True) if rows else ((), (), ()),
            (pa.string(), pa.large_string(), pa.map_(pa.string(), pa.string())),
            strict=True,
        )
    )

    joined = join_properties([(TAGS, tags), ("KEYS", keys), ("CLUSTER", cluster)], len(rows), maps)

    assert joined.to_pylist() == [
        format_properties({name: value for name, value in wanted if value})
        for tag, key, entries in rows
        for wanted in [[(TAGS, tag), ("KEYS", key), ("CLUSTER", cluster), *(entries or {}).items()]]
    ]
