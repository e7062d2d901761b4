"""JSON as RocketMQ's servers write it in bodies.

Their library writes integer map keys bare, and objects as map keys too:

    {"brokerAddrs":{0:"10.0.0.1:10911"}}
    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":9}}}

Standard texts take Python's own parser. Others are read by `_Parser`, which allows any value as a
key: a number or a word becomes its text, an object the tuple of its sorted members. Patching the
text into standard JSON by regular expressions was rejected: strings may hold the same characters.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MAX_DEPTH = 64
_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[-+.\w]+")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_STRING = json.JSONDecoder().raw_decode


def parse_json(text: bytes | memoryview | str) -> Any:
    """Return the value of a text; ValueError if it is none.

    >>> parse_json(b'{"a":{0:"x",1:[1,true]}}')
    {'a': {'0': 'x', '1': [1, True]}}
    >>> parse_json(b'{{"topic":"t","queueId":0}:5}')
    {(('queueId', '0'), ('topic', 't')): 5}
    """
    source = text if isinstance(text, str) else bytes(text).decode()
    try:
        return json.loads(source)
    except ValueError:
        return _Parser(source).document()
    except RecursionError as error:
        raise ValueError("values are nested too deeply") from error


class _Parser:
    """Recursive descent over one text; the depth is limited, for any peer may have sent it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def document(self) -> Any:
        value = self._value()
        if self._peek():
            raise self._wrong("the end")
        return value

    def _value(self) -> Any:
        first = self._peek()
        if first == '"':
            value, self._at = _STRING(self._text, self._at)
            return value
        if first not in ("{", "["):
            return self._word()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"values are nested deeper than {_MAX_DEPTH}")
        value = self._object() if first == "{" else self._array()
        self._depth -= 1
        return value

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self._take("{")
        while self._peek() != "}":
            key = _as_key(self._value())
            self._take(":")
            members[key] = self._value()
            if self._peek() != "}":
                self._take(",")
        self._take("}")
        return members

    def _array(self) -> list[Any]:
        items = []
        self._take("[")
        while self._peek() != "]":
            items.append(self._value())
            if self._peek() != "]":
                self._take(",")
        self._take("]")
        return items

    def _word(self) -> Any:
        match = _WORD.match(self._text, self._at)
        if match is None:
            raise self._wrong("a value")
        self._at = match.end()
        word = match[0]
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        try:
            return int(word)
        except ValueError:
            return float(word)

    def _peek(self) -> str:
        """Return the next character that is no blank, "" at the end."""
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            raise self._wrong(repr(expected))
        self._at += 1

    def _wrong(self, expected: str) -> ValueError:
        found = self._text[self._at : self._at + 20]
        return ValueError(f"expected {expected} at character {self._at}, found {found!r}")


def _as_key(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(((name, _as_key(item)) for name, item in value.items()), key=str))
    if isinstance(value, list):
        return tuple(_as_key(item) for item in value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
