"""Records in answers: found by their sizes, or refused."""

from __future__ import annotations

from functools import reduce
from operator import or_

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.clients.cluster.pull.records import record_heads, record_starts
from broker_core.codec.record import Record, encode_record


@given(st.lists(st.integers(1, 3), min_size=1, max_size=600), st.booleans())
@settings(max_examples=25)
def test_records_of_any_sizes_are_found(lengths: list[int], is_large: bool) -> None:
    records = [
        encode_record(Record("t", 0, 0, 0, bytes(length + 8000 * is_large))) for length in lengths
    ]

    starts = record_starts(b"".join(records))

    assert starts.tolist() == [sum(map(len, records[:n])) for n in range(len(records))]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 15)), max_size=600), st.booleans())
@settings(max_examples=25)
def test_heads_say_where_records_lie_and_what_they_are(
    records: list[tuple[int, int]], is_large: bool
) -> None:
    encoded = [
        encode_record(Record("t", 0, 7 + at, 0, bytes(length + 8000 * is_large), sys_flag=flag))
        for at, (length, flag) in enumerate(records)
    ]

    heads = record_heads(b"".join(encoded))

    assert heads.starts.tolist() == [sum(map(len, encoded[:n])) for n in range(len(encoded))]
    assert heads.sizes.tolist() == list(map(len, encoded))
    assert heads.offsets.tolist() == [7 + at for at in range(len(encoded))]
    assert heads.flags == reduce(or_, (flag for _, flag in records), 0)


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_heads_that_lead_beyond_the_end_are_an_error(count: int) -> None:
    record = encode_record(Record("t", 0, 1, 0, bytes(1000)))

    with pytest.raises(ValueError, match="were received"):
        record_heads(record * count + record[:-1])


def small_record(offset: int) -> bytes:
    return encode_record(Record("t", 0, offset, 0, b"x"))


@pytest.mark.parametrize("count", [100, 400])
def test_bodies_that_hold_records_are_not_entered(count: int) -> None:
    inner = encode_record(Record("t", 0, 0, 0, b"x")) + bytes(3)
    record = encode_record(Record("t", 0, 1, 0, inner * 50))

    starts = record_starts(record * count)

    assert starts.tolist() == [number * len(record) for number in range(count)]


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_a_size_that_leads_beyond_the_end_is_an_error(count: int) -> None:
    record = encode_record(Record("t", 0, 1, 0, bytes(1000)))

    with pytest.raises(ValueError, match="were received"):
        record_starts(record * count + record[:-1])


def test_starts_chain_by_sizes() -> None:
    one = encode_record(Record("t", 0, 0, 0, b"x"))
    two = encode_record(Record("t", 0, 1, 0, b"longer"))

    assert record_starts(one + two + one).tolist() == [0, len(one), len(one) + len(two)]
