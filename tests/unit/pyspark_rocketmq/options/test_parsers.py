from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import parsers
from pyspark_rocketmq.options.parsers import Secret


@pytest.mark.parametrize(
    ("given", "value"), [("true", True), ("TRUE", True), ("False", False), (" false ", False)]
)
def test_booleans_are_read_in_any_case(given: str, value: bool) -> None:
    assert parsers.boolean("failOnDataLoss", given) is value


@pytest.mark.parametrize("given", ["yes", "1", "", "0", "truee"])
def test_other_booleans_are_refused(given: str) -> None:
    with pytest.raises(OptionError, match=r"ROCKETMQ_OPTION.INVALID.*failOnDataLoss"):
        parsers.boolean("failOnDataLoss", given)


@pytest.mark.parametrize(
    "given", ["1.0", "a", "", "0", "-1", "1_000", "٣", "2147483648", "9" * 5000, "0x10"]
)
def test_numbers_that_java_would_not_parse_are_refused(given: str) -> None:
    with pytest.raises(OptionError, match=r"minPartitions is '.*Expected a whole number"):
        parsers.positive_int("minPartitions", given)


@pytest.mark.parametrize(
    ("given", "value"), [("1", 1), ("+7", 7), (" 12 ", 12), ("2147483647", 2**31 - 1)]
)
def test_numbers_that_java_parses_are_taken(given: str, value: int) -> None:
    assert parsers.positive_int("minPartitions", given) == value


def test_longs_reach_their_limit_and_no_further() -> None:
    assert parsers.positive_long("maxOffsetsPerTrigger", str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(OptionError):
        parsers.positive_long("maxOffsetsPerTrigger", str(2**63))


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("15m", 900_000),
        ("500", 500),
        ("0", 0),
        ("2min", 120_000),
        ("1H", 3_600_000),
        ("1d", 86_400_000),
        ("1500us", 1),
        ("90 s", 90_000),
        ("10ms", 10),
    ],
)
def test_time_spans_are_spark_s(given: str, milliseconds: int) -> None:
    assert parsers.duration_ms("maxTriggerDelay", given) == milliseconds


@pytest.mark.parametrize("given", ["", "m", "1.5s", "-1s", "5 weeks", "1mm"])
def test_other_time_spans_are_refused(given: str) -> None:
    with pytest.raises(OptionError, match="maxTriggerDelay"):
        parsers.duration_ms("maxTriggerDelay", given)


def test_a_secret_shows_nothing_and_pickles() -> None:
    secret = Secret("hush")

    assert "hush" not in f"{secret} {secret!r} {[secret]}"
    assert pickle.loads(pickle.dumps(secret)).reveal() == "hush"
