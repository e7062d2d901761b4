"""Conversion of one text to a number or a boolean, as Java's parsers do it.

numerals.py converts whole columns, and comes here for every text that is not a plain numeral.

    int32, int64   sign, then decimal digits of any script in the basic plane; nothing else
    double         blanks around it, exponent, suffix f or d, hexadecimal, NaN, Infinity
    boolean        "true" in any ASCII case, else false; never fails

Doubles have a total order: −0.0 lies below 0.0, NaN above infinity and equal to itself. `order_key`
maps a double to an integer of that order, so that all numbers are compared as integers.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata

from broker_core.filter.sql92.tree import Number, Width

_ASCII_BLANKS = "".join(map(chr, range(0x21)))
_INTEGER = re.compile(r"([+-]?)0*+([0-9]*+)")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]++\.?[0-9]*|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]([0-9a-fA-F]*+)\.?([0-9a-fA-F]*+)[pP]([+-]?)0*+([0-9]*+)[fFdD]?"
)
_SPECIAL = re.compile(r"[+-]?(?:NaN|Infinity)")
# Digits of a binary exponent that count: beyond them any mantissa has overflowed or vanished.
_EXPONENT_DIGITS = 12

_BITS: dict[Width, int] = {"int32": 31, "int64": 63}


def to_integer(text: str, width: Width) -> int | None:
    """Return the integer that `text` spells, or None if it spells none or does not fit."""
    if not text.isascii():
        text = _ascii_digits(text)
    match = _INTEGER.fullmatch(text)
    # The digits after the leading zeros may be none ("000"), but some digit there must be.
    if match is None or not text[-1:].isdigit() or len(match[2]) > 19:
        return None
    value = int(match[1] + (match[2] or "0"))
    limit = 1 << _BITS[width]
    return value if -limit <= value < limit else None


def _ascii_digits(text: str) -> str:
    """Return `text` with the decimal digits of other scripts as 0–9; those above U+FFFF stay."""
    return "".join(
        character if ord(character) > 0xFFFF else str(unicodedata.decimal(character, character))
        for character in text
    )


def to_double(text: str) -> float | None:
    """Return the double nearest to the number that `text` spells, or None if it spells none."""
    text = text.strip(_ASCII_BLANKS)
    if decimal := _DECIMAL.fullmatch(text):
        return float(decimal[1])
    if _SPECIAL.fullmatch(text):
        return float("nan") if text.endswith("N") else float(text)
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return _from_hexadecimal(hexadecimal)
    return None


def _from_hexadecimal(match: re.Match[str]) -> float | None:
    sign, whole, fraction, exponent_sign, exponent = match.groups()
    if not whole + fraction or not match[0].rstrip("fFdD")[-1].isdigit():
        return None
    exponent = exponent_sign + (exponent[:_EXPONENT_DIGITS] or "0")
    try:
        return float.fromhex(f"{sign}0x{whole}.{fraction}p{exponent}")
    except OverflowError:
        return float(f"{sign}inf")


def to_boolean(text: str) -> bool:
    """Return TRUE for "true" in any ASCII case, without stripping; else FALSE."""
    return text.isascii() and text.lower() == "true"


def order_key(value: float) -> int:
    """Return a signed 64-bit integer that orders as Java orders doubles."""
    if math.isnan(value):
        value = float("nan")  # one NaN: sign and payload do not count
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF


def number_key(number: Number, width: Width) -> int:
    """Return the integer by which `number` is compared at `width`, its own or a wider one."""
    return order_key(float(number.value)) if width == "double" else int(number.value)


def text_key(text: str, width: Width) -> int | None:
    """Return the integer by which `text` is compared at `width`; None if it is no such number."""
    if width != "double":
        return to_integer(text, width)
    value = to_double(text)
    return None if value is None else order_key(value)


def common_width(left: Number, right: Number) -> Width:
    """Return the width at which two numbers are compared: double if either is one."""
    return "double" if "double" in (left.width, right.width) else "int64"
