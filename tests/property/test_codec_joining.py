"""Properties text of many messages is what format_properties makes of each of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.properties.join import join_properties
from broker_core.codec.properties.text import format_properties

pytestmark = pytest.mark.usefixtures("either_way")

TEXTS = st.text(
    st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), max_size=9
)
NAMES = st.lists(st.sampled_from(["TAGS", "KEYS", "a", "bb", "ccc", "dddd", "é"]), unique=True)


@st.composite
def columns(draw: st.DrawFn) -> list[tuple[str, str | list[str | None]]]:
    """Named columns of one length, up to seven; a text stands for one value in all rows."""
    rows = draw(st.integers(1, 5))
    values = st.lists(st.none() | TEXTS, min_size=rows, max_size=rows)
    return [(name, draw(TEXTS | values)) for name in draw(NAMES)]


@given(columns())
def test_joined_text_is_that_of_each_row(
    given_columns: list[tuple[str, str | list[str | None]]],
) -> None:
    pairs = [
        (name, value if isinstance(value, str) else pa.array(value, type=pa.string()))
        for name, value in given_columns
    ]
    lengths = [len(value) for _, value in given_columns if isinstance(value, list)]
    count = lengths[0] if lengths else 3

    joined = join_properties(pairs, count)

    expected = [
        format_properties(
            {
                name: text
                for name, value in given_columns
                if (text := value if isinstance(value, str) else value[row])
            }
        )
        for row in range(count)
    ]
    assert joined.to_pylist() == expected
