"""Identity: who a caller is, and what they may do with which topic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from broker_core.errors import PermissionDeniedError


class Right(Enum):
    """What can be allowed."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Rule:
    """Some rights on the topics that fit a pattern (`orders`, `orders-*`, `*`)."""

    pattern: str
    rights: frozenset[Right]

    def allows(self, topic: str, right: Right) -> bool:
        """Whether it grants a right on a topic; admin includes the others."""
        granted = right in self.rights or Right.ADMIN in self.rights
        return granted and fnmatchcase(topic, self.pattern)


@dataclass(frozen=True, slots=True)
class UserIdentity:
    """Someone with a name and rules; the first rule that allows something decides."""

    name: str
    rules: tuple[Rule, ...] = field(default=(), repr=False)

    def may(self, right: Right, topic: str) -> bool:
        """Whether they have a right on a topic."""
        return any(rule.allows(topic, right) for rule in self.rules)

    def may_see(self, topic: str) -> bool:
        """Whether they have any right on a topic."""
        return any(self.may(right, topic) for right in Right)

    def require_sight(self, topic: str) -> None:
        """Raise PermissionDeniedError unless they have any right on a topic."""
        if not self.may_see(topic):
            self.require(Right.SUBSCRIBE, [topic])

    def require(self, right: Right, topics: Collection[str]) -> None:
        """Raise PermissionDeniedError unless they have a right on all of these topics."""
        for topic in topics:
            if not self.may(right, topic):
                message = (
                    f"{self.name} may not {right.value} topic {topic}; ask for this right in the "
                    f"broker's credentials file."
                )
                raise PermissionDeniedError(message)

    def require_publish(self, topics: Collection[str]) -> None:
        """Raise PermissionDeniedError unless they may publish to all of these topics."""
        self.require(Right.PUBLISH, topics)

    def require_somewhere(self, right: Right) -> None:
        """Raise PermissionDeniedError unless they have a right on any topic."""
        if not any(rule.allows(rule.pattern, right) for rule in self.rules):
            message = f"{self.name} may not {right.value} any topic; ask for this right."
            raise PermissionDeniedError(message)

    def require_everywhere(self, right: Right) -> None:
        """Raise PermissionDeniedError unless they have a right on every topic."""
        if not any(rule.pattern == "*" and rule.allows("", right) for rule in self.rules):
            message = f"{self.name} may not {right.value} the whole broker; a rule for * would do."
            raise PermissionDeniedError(message)


ANYONE = UserIdentity("anyone", (Rule("*", frozenset(Right)),))
"""Whoever calls a broker that asks for no credentials."""
