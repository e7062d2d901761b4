"""Numbers of callers in this process: queues, offsets, levels. Remote faces parse typed ones."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from broker_core.errors import RequestError

_LIMIT = 1 << 63


def require_number(value: object, what: str) -> int:
    """Return a whole number as an int; RequestError, naming `what` it is, for anything else.

    True and 4.0 compare like numbers and would be written to a table or a property as something
    that no reader takes for one.
    """
    if type(value) is int and -_LIMIT <= value < _LIMIT:
        return value  # what nearly every caller gives; asking for a protocol takes microseconds
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = index(value)
        if -_LIMIT <= number < _LIMIT:
            return number
    message = f"{what} can't be {value!r}: it is a whole number of 64 bits. Nothing was changed."
    raise RequestError(message)
