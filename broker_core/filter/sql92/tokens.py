"""Tokens of a filter text.

The longest token wins at each position, and a keyword wins over a name of equal length. Blanks are
space, TAB, LF, CR and FF; a comment is `/* … */`, or `--` up to and including a line end (without
one it is two minus signs). What follows is what no SQL habit prepares for: an integer has no
leading zero, so `08` is two tokens, and only an integer takes the suffix L, which means nothing.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from broker_core.filter.syntax_error import syntax_error

KEYWORDS = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()
)

_BLANKS = re.compile(r"[ \t\n\r\f]*+")
_LINE_END = re.compile(r"\r\n|\r|\n")
# Possessive quantifiers keep every alternative linear: nothing is tried twice.
_TOKEN = re.compile(
    r"""
    (?P<float>   [0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?
               | \.[0-9]++(?:[eE][+-]?[0-9]++)?
               | [0-9]++[eE][+-]?[0-9]++ )
  | (?P<integer> 0 | [1-9][0-9]*+[lL]? )
  | (?P<name>    [A-Za-z_$][A-Za-z0-9_$]*+ )
  | (?P<string>  '[^']*+(?:''[^']*+)*' )
  | (?P<symbol>  <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_HINTS = {
    "!": "'not equal' is written <>",
    '"': "text stands in single quotes",
    "'": "the text that starts here is not closed; a quote inside a text is doubled",
    "/": "a comment is /* … */, and this one is not closed",
    "\\": "there is no escape character; a quote inside a text is doubled",
}


class Kind(enum.Enum):
    """Kinds of tokens, worded for messages."""

    INTEGER = "integer"
    FLOAT = "float"
    NAME = "name"
    STRING = "string"
    KEYWORD = "keyword"
    SYMBOL = "symbol"
    END = "end of the filter"


_KINDS = {kind.name.lower(): kind for kind in Kind}


class Token(NamedTuple):
    """One token. `word` is the symbol or the upper-case keyword, empty for all other kinds."""

    kind: Kind
    word: str
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return str(self.kind.value)
        shown = self.text if len(self.text) <= 30 else self.text[:29] + "…"
        return f"{self.kind.value} {shown}"


class Lexer:
    """A lexer: hands out the tokens of a text one at a time, and looks no further than asked.

    A filter may be followed by anything at all after one more legal token, so the text must not
    be read ahead. Total work is linear in the part of the text that is read.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        # Looked up once: many `--` without a line end must not mean as many searches.
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def take(self) -> Token:
        """Take the next token; END for ever after the last one.

        Raises:
            FilterSyntaxError: What comes next is not a token.
        """
        start = self._skip_blanks(self._position)
        if start == len(self.text):
            self._position = start
            return Token(Kind.END, "", "", start)
        match = _TOKEN.match(self.text, start)
        if match is None or match.lastgroup is None:
            raise self._illegal(start)
        self._position = match.end()
        return _token(_KINDS[match.lastgroup], match.group(), start)

    def _skip_blanks(self, position: int) -> int:
        while True:
            start = _blanks_end(self.text, position)
            position = self._comment_end(start)
            if position == start:
                return start

    def _comment_end(self, start: int) -> int:
        """Return the end of a comment that begins at `start`, or `start` if none does."""
        opening = self.text[start : start + 2]
        if opening == "/*":
            closing = self.text.find("*/", start + 2)
            return start if closing < 0 else closing + 2
        if opening == "--" and start < self._last_line_end:
            line_end = _LINE_END.search(self.text, start)
            assert line_end is not None
            return line_end.end()
        return start

    def _illegal(self, position: int) -> Exception:
        character = self.text[position]
        shown = f"{character!r} (U+{ord(character):04X})"
        hint = _HINTS.get(character, "it may stand only inside a text in single quotes")
        return syntax_error(self.text, position, f"{shown} can't stand here: {hint}")


def _blanks_end(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    assert blanks is not None
    return blanks.end()


def _token(kind: Kind, text: str, position: int) -> Token:
    if kind is Kind.SYMBOL:
        return Token(kind, text, text, position)
    if kind is Kind.NAME and text.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, text.upper(), text, position)
    return Token(kind, "", text, position)


def string_value(token: Token) -> str:
    """Return the text that a string token stands for."""
    return token.text[1:-1].replace("''", "'")
