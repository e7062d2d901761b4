"""Syntax errors of filter texts: the line in question with a caret under it.

For tag expressions (tag_expression.py) and SQL92 texts (sql92/) alike.
"""

from __future__ import annotations

import re

from broker_core.errors import FilterSyntaxError

_LINE_END = re.compile(r"\r\n|\r|\n")
_WINDOW = 60  # characters of a long line shown on either side of the caret


def syntax_error(text: str, position: int, complaint: str) -> FilterSyntaxError:
    """Return the error for a filter that is wrong at `position`, with its line and a caret.

    Lines end at LF, CR or CRLF; line and column count from 1, columns in characters. A long line
    is shown in part, and tabs before the caret stay tabs, so that the caret stands where it should.
    """
    ends = [match.end() for match in _LINE_END.finditer(text, 0, position)]
    line_start = ends[-1] if ends else 0
    line, column = len(ends) + 1, position - line_start + 1

    shown = _LINE_END.split(text[line_start : position + _WINDOW], maxsplit=1)[0]
    cut = max(0, position - line_start - _WINDOW)
    margin = re.sub(r"[^\t]", " ", shown[cut : position - line_start])
    message = (
        f"Filter does not parse at line {line}, column {column}: {complaint}.\n"
        f"  {shown[cut:]}\n"
        f"  {margin}^"
    )
    return FilterSyntaxError(message, line, column)
