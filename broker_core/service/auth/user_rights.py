"""Identity: a caller's name, and the rights that it has on topics.

Identities come from auth/credentials.py; auth/method_rules.py asks them for the right that a call
needs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from broker_core.codec.legal_names import is_own_topic
from broker_core.errors import PermissionDeniedError


class Right(Enum):
    """A right that a rule can grant; ADMIN includes the other two."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Rule:
    """Some rights on the topics that fit a pattern (`orders`, `orders-*`, `*`)."""

    pattern: str
    rights: frozenset[Right]

    def allows(self, topic: str, right: Right) -> bool:
        """Tell whether it grants a right on a topic.

        The broker's own topics hold what other users have not decided yet, so only ADMIN opens
        them; whatever the right, no client writes there (broker/admission/).
        """
        granted = Right.ADMIN in self.rights or (right in self.rights and not is_own_topic(topic))
        return granted and fnmatchcase(topic, self.pattern)


@dataclass(frozen=True, slots=True)
class UserIdentity:
    """A user with a name and rules; one rule that allows something is enough."""

    name: str
    rules: tuple[Rule, ...] = field(default=(), repr=False)

    def may(self, right: Right, topic: str) -> bool:
        """Tell whether the user has a right on a topic."""
        return any(rule.allows(topic, right) for rule in self.rules)

    def may_see(self, topic: str) -> bool:
        """Tell whether the user has any right on a topic."""
        return any(self.may(right, topic) for right in Right)

    def require_sight(self, topic: str) -> None:
        """Raise PermissionDeniedError unless the user has any right on a topic."""
        if not self.may_see(topic):
            self.require(Right.SUBSCRIBE, [topic])

    def require(self, right: Right, topics: Collection[str]) -> None:
        """Raise PermissionDeniedError unless the user has a right on all of these topics."""
        for topic in topics:
            if not self.may(right, topic):
                message = (
                    f"{self.name} may not {right.value} topic {topic}; ask for this right in the "
                    f"broker's credentials file."
                )
                raise PermissionDeniedError(message)

    def require_somewhere(self, right: Right) -> None:
        """Raise PermissionDeniedError unless the user has a right on at least one topic."""
        if not any(rule.allows(rule.pattern, right) for rule in self.rules):
            message = f"{self.name} may not {right.value} any topic; ask for this right."
            raise PermissionDeniedError(message)

    def may_everywhere(self, right: Right) -> bool:
        """Tell whether the user has a right on every topic."""
        return any(rule.pattern == "*" and rule.allows("", right) for rule in self.rules)

    def require_everywhere(self, right: Right) -> None:
        """Raise PermissionDeniedError unless the user has a right on every topic."""
        if not self.may_everywhere(right):
            message = f"{self.name} may not {right.value} the whole broker; a rule for * would do."
            raise PermissionDeniedError(message)


ANYONE = UserIdentity("anyone", (Rule("*", frozenset(Right)),))
"""Any caller of a broker that asks for no credentials."""
