"""Properties text of one message: `name 0x01 value 0x02` repeated; many: join.py, search.py.

The last 0x02 may be missing (releases 4.9.1 to 5.1.4 left it out); we write it. There is no
escaping. What a reader does with odd text is RocketMQ's rule, kept exactly: a segment without a
name or without a value does not exist, the value is everything after the segment's first 0x01, and
of two entries with one name the last wins.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.codec.property_names import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    UNSTORABLE,
)
from broker_core.errors import IllegalMessageError


def parse_properties(text: bytes | bytearray | memoryview) -> dict[str, str]:
    r"""Return the properties as a reader sees them; bytes that are not UTF-8 become U+FFFD.

    >>> parse_properties(b"TAGS\x01TagA\x02empty\x01\x02k\x01a\x01b")
    {'TAGS': 'TagA', 'k': 'a\x01b'}
    """
    found: dict[str, str] = {}
    for segment in bytes(text).decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = segment.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def format_properties(properties: Mapping[str, str]) -> bytes:
    r"""Return the text that is stored, with 0x02 after every entry, in the mapping's order.

    IllegalMessageError for a name or value with a separator in it, which would end its entry and
    begin another one, or with a zero byte.

    >>> format_properties({"TAGS": "TagA"})
    b'TAGS\x01TagA\x02'
    """
    text = join_entries(properties)
    count = len(properties)
    # One of each separator an entry, and no more: quicker than to look at each name and value.
    if text.count(b"\1") == count == text.count(b"\2") and b"\0" not in text:
        return text
    name, found = next(
        (name, each)
        for name in properties
        for each in (name, properties[name])
        if UNSTORABLE.search(each)
    )
    message = (
        f"The property {name[:64]!r} can't be stored: {found[:64]!r} has a zero byte or "
        "a separator (0x00, 0x01, 0x02) in it. Nothing was written."
    )
    raise IllegalMessageError(message)


def join_entries(properties: Mapping[str, str]) -> bytes:
    r"""Return the text of properties that were parsed from one: values may have 0x01 in them.

    >>> join_entries(parse_properties(b"k\x01a\x01b\x02"))
    b'k\x01a\x01b\x02'
    """
    return "".join(
        [
            f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
            for name, value in properties.items()
        ]
    ).encode()


def terminated(text: bytes) -> bytes:
    r"""Return the text with a last 0x02, so that another entry can follow.

    >>> terminated(b"TAGS\x01TagA")
    b'TAGS\x01TagA\x02'
    """
    separator = PROPERTY_SEPARATOR.encode()
    return text if not text or text.endswith(separator) else text + separator
