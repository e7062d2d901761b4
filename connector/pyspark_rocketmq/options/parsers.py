"""Parsers of option texts, as strict and as lenient as Spark's own.

Numbers are what Java parses: an optional sign and ASCII digits, within the type. Booleans are true
and false in any case. Every parser takes the option's name and raw text and returns the value, or
raises the OptionError that names both, the expected form and an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark_rocketmq.errors import option_errors

Parser = Callable[[str, str], Any]

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)")
_UNIT_MICROS = {
    "": 1000,
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


@dataclass(frozen=True)
class Secret:
    """A password or token that is not shown, not even in a traceback that prints variables.

    >>> Secret("hush")
    Secret(***)
    """

    _text: str = field(repr=False)

    def reveal(self) -> str:
        """Return the text itself; call it only where it is handed to a client."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__


def text(name: str, raw: str) -> str:
    """Parse any text that is not blank; trim it."""
    if not raw.strip():
        raise option_errors.empty(name, raw, "a text that is not blank")
    return raw.strip()


def secret(name: str, raw: str) -> Secret:
    """Parse a text that is never shown."""
    del name
    return Secret(raw)


def boolean(name: str, raw: str) -> bool:
    """Parse true or false, in any case."""
    value = {"true": True, "false": False}.get(raw.strip().lower())
    if value is None:
        raise option_errors.invalid(name, raw, "true or false", "true")
    return value


def integer(minimum: int, maximum: int, expected: str, example: str) -> Parser:
    """Return a parser of whole numbers within bounds."""

    def parse(name: str, raw: str) -> int:
        digits = raw.strip()
        # Length first: int() of a very long text is slow, and Python refuses it altogether.
        if len(digits) > 20 or not _INTEGER.fullmatch(digits):
            raise option_errors.invalid(name, raw, expected, example)
        value = int(digits)
        if not minimum <= value <= maximum:
            raise option_errors.invalid(name, raw, expected, example)
        return value

    return parse


positive_int = integer(1, MAX_INT, f"a whole number from 1 to {MAX_INT}", "8")
positive_long = integer(1, MAX_LONG, "a whole number of at least 1", "100000")
natural_long = integer(0, MAX_LONG, "a whole number of at least 0", "1000")
timestamp_ms = integer(-MAX_LONG - 1, MAX_LONG, "milliseconds since 1970", "1700000000000")


def choice(*words: str) -> Parser:
    """Return a parser of one word out of several, in any case."""

    def parse(name: str, raw: str) -> str:
        word = raw.strip().lower()
        if word not in words:
            raise option_errors.invalid(name, raw, "one of " + ", ".join(words), words[0])
        return word

    return parse


def duration_ms(name: str, raw: str) -> int:
    """Parse a time span as Spark writes it: a number with a unit, milliseconds if it has none.

    >>> duration_ms("maxTriggerDelay", "15m")
    900000
    """
    found = _DURATION.fullmatch(raw.strip().lower())
    if found is None or len(found[1]) > 18 or found[2] not in _UNIT_MICROS:
        expected = "a time span in us, ms, s, m, h or d"
        raise option_errors.invalid(name, raw, expected, "15m")
    return int(found[1]) * _UNIT_MICROS[found[2]] // 1000
