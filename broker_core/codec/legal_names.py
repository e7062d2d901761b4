"""Legal names of topics and consumer groups.

Letters, digits and `% | - _`, as RocketMQ has it; no name can climb out of a directory. Every name
that comes from outside passes here before it becomes part of a path.
"""

from __future__ import annotations

import re

from broker_core.codec.property_names import (
    DEAD_LETTER_PREFIX,
    DISCARD_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from broker_core.errors import InvalidNameError

MAX_TOPIC = 127
MAX_DERIVED_TOPIC = 255
"""Retry and dead-letter topics carry a group's name behind their prefix."""
MAX_GROUP = 255
"""New groups are limited to 120 by 5.5, but longer ones that exist are kept."""

_OWN_PREFIX = "RMQ_SYS_"
_OWN_GROUP_PREFIX = "CID_RMQ_SYS_"
_OWN_TOPICS = frozenset((SCHEDULE_TOPIC, DISCARD_TOPIC))
_OPEN_TOPICS = frozenset(("RMQ_SYS_TRACE_TOPIC",))
"""Clients write their traces there themselves."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_SHOWN = 40


def is_legal_topic(name: str) -> bool:
    """Tell whether a topic may have this name.

    >>> is_legal_topic("%RETRY%billing"), is_legal_topic("../etc"), is_legal_topic("")
    (True, False, False)
    """
    return is_text(name) and _LEGAL.match(name) is not None and len(name) <= _limit(name)


def is_own_topic(topic: str) -> bool:
    """Tell whether only the broker itself may write to a topic: its own work depends on it.

    In any case of letters: a file system may not tell them apart.

    >>> [is_own_topic(name) for name in ("RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "t")]
    [True, True, False]
    """
    name = topic.upper()
    if name in _OWN_TOPICS:
        return True
    return name.startswith(_OWN_PREFIX) and name not in _OPEN_TOPICS


def is_own_group(group: str) -> bool:
    """Tell whether a consumer group is the broker's own: it keeps offsets of its work there.

    >>> is_own_group("CID_RMQ_SYS_TRANS"), is_own_group("billing")
    (True, False)
    """
    return group.upper().startswith(_OWN_GROUP_PREFIX)


def check_topic(name: str) -> str:
    """Return the name if a topic may have it, else raise InvalidNameError."""
    if not is_legal_topic(name):
        raise _refusal("Topic", name, _limit(name))
    return name


def check_group(name: str) -> str:
    """Return the name if a consumer group may have it, else raise InvalidNameError."""
    if not is_text(name) or not _LEGAL.match(name) or len(name) > MAX_GROUP:
        raise _refusal("Group", name, MAX_GROUP)
    return name


def is_text(value: object) -> bool:
    """Tell whether a caller's value is text that can be stored: no number, no half of a pair.

    >>> [is_text(value) for value in ("orders", "", None, 1, chr(0xD800))]
    [True, True, False, False, False]
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _limit(name: str) -> int:
    is_derived = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return MAX_DERIVED_TOPIC if is_derived else MAX_TOPIC


def _refusal(kind: str, name: str, limit: int) -> InvalidNameError:
    if not is_text(name):
        message = f"{kind} name {ascii(name)[:_SHOWN]} is no text."
        return InvalidNameError(message)
    shown = repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
    if not name:
        what = "is empty"
    elif len(name) > limit:
        what = f"has {len(name)} characters, {limit} are allowed"
    else:
        illegal = next(letter for letter in name if not _LEGAL.match(letter))
        what = f"contains {illegal!r}"
    message = f"{kind} name {shown} {what}; use letters, digits and % | - _ only."
    return InvalidNameError(message)
