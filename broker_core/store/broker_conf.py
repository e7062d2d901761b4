r"""Broker configuration: reads a `broker.conf`, in Java's properties format; never writes one.

One `name=value` a line (`name: value` and `name value` too); `#` and `!` begin a comment line; a
backslash at the end of a line joins the next one; `\t`, `\uXXXX` and the like are escapes.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)


def parse_properties_file(text: str) -> dict[str, str]:
    r"""Return the settings of a properties text; of a repeated name the last value.

    >>> parse_properties_file("# sizes\nbrokerName = broker-b\nlistenPort: 10911\npath=a\\\n  b")
    {'brokerName': 'broker-b', 'listenPort': '10911', 'path': 'ab'}
    """
    settings = {}
    for line in _logical_lines(text):
        match = _PAIR.match(line)
        if match and match[1]:
            settings[_unescape(match[1])] = _unescape(match[2]).strip()
    return settings


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    joined = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        lines.append(joined)
        joined = ""
    if joined:
        lines.append(joined)
    return lines


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _PLAIN.get(escape, escape)

    return _ESCAPE.sub(plain, text)
