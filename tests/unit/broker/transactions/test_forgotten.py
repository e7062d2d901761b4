from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.transactions.decision_records import parse_body, stream_tag
from broker_core.broker.transactions.forgotten import (
    FORGOTTEN_TAG,
    RECORD_KEYS,
    ForgottenStreams,
    keys_for,
)
from broker_core.errors import CorruptRecordError
from broker_core.types import BatchRef

USERS = ("", "alice", "bob")
STREAMS = st.tuples(
    st.sampled_from(["a#", "a#x", "b#"]), st.sampled_from(USERS), st.integers(0, (1 << 64) - 1)
)


def forgotten(*streams: tuple[str, str, int]) -> ForgottenStreams:
    return ForgottenStreams.of_streams(
        [tag for tag, _, _ in streams],
        [user for _, user, _ in streams],
        [number for _, _, number in streams],
    )


@given(st.lists(st.lists(STREAMS, max_size=6), max_size=4), st.integers(1, 300))
def test_a_caller_finds_the_newest_number_of_their_own_and_of_nobodys(
    parts: list[list[tuple[str, str, int]]], most_bytes: int
) -> None:
    joined = ForgottenStreams.join([forgotten(*part) for part in parts])
    records = [parse_body(part.body(), 0) for part in joined.split(most_bytes)]
    streams = [stream for part in parts for stream in part]

    for tag in ("a#", "a#x", "b#"):
        for caller in USERS:
            numbers = [
                number
                for its_tag, user, number in streams
                if its_tag == tag and (not caller or user in ("", caller))
            ]
            found = [
                record.number(keys_for(tag, caller))
                for record in records
                if isinstance(record, ForgottenStreams)
            ]
            known = [number for number in found if number is not None]
            assert max(known, default=None) == max(numbers, default=None)


def test_keys_are_the_same_in_every_process() -> None:
    # First 8 bytes of BLAKE2b-64 over "a# ", and over "a#".
    assert [f"{key:016x}" for key in keys_for("a#", "")] == ["f382434110de49a0", "d02b97de8b0b3b21"]


@pytest.mark.parametrize("most_bytes", [200, 4096, 1 << 20])
def test_bodies_stay_below_the_limit(most_bytes: int) -> None:
    whole = forgotten(*((f"s{number}#", "", 7) for number in range(10_000)))

    records = list(whole.split(most_bytes))

    assert max(len(record.body()) for record in records) <= most_bytes
    assert max(map(len, records)) <= RECORD_KEYS
    assert sum(map(len, records)) == 10_000


@given(st.text(min_size=1), st.text())
def test_no_stream_has_the_tag_of_forgotten_ones(owner: str, name: str) -> None:
    assert stream_tag(BatchRef(owner, name, 0)) != FORGOTTEN_TAG


@pytest.mark.parametrize(
    ("keys", "numbers"),
    [("", ""), ("AAAAAAAAAAE=", ""), ("AAAAAAAAAAE=", "x"), ("AAAA", "AAAA"), (7, 7)],
)
def test_a_record_that_makes_no_sense_is_told(keys: object, numbers: object) -> None:
    body = json.dumps({"kind": "forgotten", "keys": keys, "numbers": numbers}).encode()

    with pytest.raises(CorruptRecordError, match="physical offset 12"):
        parse_body(body, 12)
