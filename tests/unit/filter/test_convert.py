"""Text to number: the scalar conversion, and whole columns held equal to it."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from broker_core.filter.sql92.convert import order_key, text_key, to_boolean, to_double, to_integer
from broker_core.filter.sql92.numerals import column_keys
from broker_core.filter.sql92.tree import Width
from tests.interop.filter.cases import NUMERALS, TEXTS

WIDTHS: tuple[Width, ...] = ("int32", "int64", "double")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("-5", -5),
        ("0000000000000000000000005", 5),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("\u0663", 3),
        ("-\uff11\u0660", -10),
    ],
)
def test_integer_takes_sign_zeros_and_digits_of_any_script(text: str, value: int) -> None:
    assert to_integer(text, "int32") == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", "-", "--5", "+-5", " 5", "5 ", "5.", "5.0", "5e0", "5L", "1_0", "0x10", "5\x00"),
        *(
            "\U0001d7d3",
            "\u2155",
            "\u00b2",
            "\u2460",
            "five",
            "2147483648",
            "-2147483649",
            "9" * 9999,
        ),
    ],
)
def test_text_that_is_no_32_bit_integer_has_no_value(text: str) -> None:
    assert to_integer(text, "int32") is None


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_64_bit_integers_reach_to_their_limits_and_no_further(value: int) -> None:
    beyond = value + (1 if value > 0 else -1)

    assert to_integer(str(value), "int64") == value
    assert to_integer(str(beyond), "int64") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" \t5\n\x00", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("+.5e1f", 5.0),
        ("5D", 5.0),
        ("1e309", math.inf),
        ("-1e309", -math.inf),
        ("1e-400", 0.0),
        ("1e99999999999999999999", math.inf),
        ("-Infinity", -math.inf),
        ("+Infinity", math.inf),
        ("0x1p4", 16.0),
        ("0X.8P1d", 1.0),
        ("-0x1.8p+1", -3.0),
        ("0x1.p0", 1.0),
        ("0x1p1024", math.inf),
        ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-99999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("0x1p00000000000000000000000004", 16.0),
        ("0x1.fffffffffffff8p0", 2.0),
        ("2.4703282292062328e-324", 5e-324),
    ],
)
def test_double_takes_what_java_takes(text: str, value: float) -> None:
    assert to_double(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "e5", "1e", "1e+", "inf", "nan", "infinity", "NaNd", "Infinityf", "1_0"),
        *(
            "1,5",
            "0x10",
            "0xp1",
            "0x.p1",
            "0x1p",
            "0x1pf",
            "7L",
            "5\u00a0",
            "\u0663",
            "1.2.3",
            "5 5",
        ),
        *("--5", "0b1", "f", "1ff", "0x1.8", "\v\u20005"),
    ],
)
def test_text_that_is_no_double_has_no_value(text: str) -> None:
    assert to_double(text) is None


@pytest.mark.parametrize("text", ["NaN", "-NaN", "+NaN", " NaN "])
def test_nan_is_a_double_whatever_its_sign(text: str) -> None:
    value = to_double(text)

    assert value is not None
    assert order_key(value) == order_key(math.nan)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TrUe", True), (" true", False), ("yes", False), ("1", False), ("", False)],
)
def test_boolean_is_true_for_the_one_word_only(text: str, value: bool) -> None:
    assert to_boolean(text) is value


def test_doubles_have_a_total_order() -> None:
    ascending = [-math.inf, -1e308, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]

    keys = [order_key(value) for value in ascending]

    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


POOLS = {
    "odd": NUMERALS + TEXTS,
    "digits": ("0", "7", "42", "007", "123456789", "999999999999999999"),
    "long digits": ("2147483648", "9223372036854775807", "9223372036854775808", "1" * 60),
    "signed": ("-1", "5", "-0", "-2147483649", "12"),
    "decimals": ("1.5", "-0.25", "10", "-0.0", "123456789.123456789123456789", "0.1"),
    "bad decimals": ("1.5", "1..5", "-", ".", "-.5", "5.", "1.-5", "", "-5-", "5-5"),
    "empty": ("", ""),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("with_nulls", [False, True], ids=["", "with nulls"])
@pytest.mark.parametrize("pool", POOLS)
def test_column_of_numerals_equals_each_by_itself(
    pool: str, width: Width, with_nulls: bool
) -> None:
    texts: list[str | None] = [*POOLS[pool], *([None, POOLS[pool][0], None] if with_nulls else [])]

    keys = column_keys(pa.array(texts, pa.string()), width)

    wanted = [None if text is None else text_key(text, width) for text in texts]
    assert keys.valid.tolist() == [key is not None for key in wanted]
    assert keys.values[keys.valid].tolist() == [key for key in wanted if key is not None]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_slice_of_a_column_has_its_own_numbers(kind: pa.DataType) -> None:
    texts = pa.array(["x", "1", "-2", None, "3.5", "y"], kind).slice(1, 4)

    keys = column_keys(texts, "int64")

    assert keys.valid.tolist() == [True, True, False, False]
    assert keys.values[:2].tolist() == [1, -2]


def test_column_of_no_rows_and_column_of_nulls_have_no_numbers() -> None:
    assert len(column_keys(pa.array([], pa.string()), "double").valid) == 0
    assert not column_keys(pa.nulls(3, pa.string()), "double").valid.any()


def test_numbers_of_a_column_are_signed_64_bit_integers() -> None:
    keys = column_keys(pa.array(["-1.5", "x"]), "double")

    assert keys.values.dtype == np.dtype(np.int64)
    assert keys.valid.dtype == np.dtype(np.bool_)
