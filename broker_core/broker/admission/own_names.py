"""Topics and consumer groups of the broker's own, refused to clients."""

from __future__ import annotations

from broker_core.codec.legal_names import is_own_group, is_own_topic
from broker_core.errors import RequestError


def require_client_topic(topic: str, doing: str = "append messages in") -> None:
    """Raise RequestError for a topic of the broker's own; `doing` completes "can't ... topic"."""
    if is_own_topic(topic):
        message = (
            f"A client can't {doing} topic {topic!r}: the broker keeps it for itself. Nothing was "
            "changed; choose another topic."
        )
        raise RequestError(message)


def require_client_group(group: str) -> None:
    """Raise RequestError for a consumer group of the broker's own."""
    if is_own_group(group):
        message = (
            f"A client can't move the offsets of group {group!r}: the broker keeps it for itself. "
            "Nothing was changed; choose another group."
        )
        raise RequestError(message)
