"""Quotas of groups and topics: what one user may make, so that the others find room for theirs.

The store limits groups in all (broker/offsets.py), and its file has no users, as Apache's has none.
So a server counts, since it started, how many groups each user was the first to commit offsets for:
a quarter of either limit. Groups that are there already count for nobody. The same holds for topics
that sends make.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker_core.errors import RequestError

if TYPE_CHECKING:
    from broker_core.store.settings import StoreSettings

_SHARE = 4


class GroupQuota:
    """Counts of the groups that users made in topics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_topic: Counter[tuple[str, str]] = Counter()
        self._in_all: Counter[str] = Counter()

    def take(self, user: str, topic: str, settings: StoreSettings) -> None:
        """Count a group that a user makes in a topic; RequestError if it is one too many.

        Callers without a name, on a server without credentials, have the store's limits alone.
        """
        if not user:
            return
        with self._lock:
            for count, limit, where, setting in (
                (
                    self._in_topic[user, topic],
                    settings.max_groups_per_topic,
                    f"in topic {topic}",
                    "maxConsumerGroupsPerTopic",
                ),
                (
                    self._in_all[user],
                    settings.max_consumer_offsets,
                    "in all topics",
                    "maxConsumerOffsets",
                ),
            ):
                if count >= max(1, limit // _SHARE):
                    message = (
                        f"User {user} has made {count} consumer groups {where}, a quarter of "
                        f"{setting}, which is the limit for one user. Nothing was written: commit "
                        "as a group that the topic has."
                    )
                    raise RequestError(message)
            self._in_topic[user, topic] += 1
            self._in_all[user] += 1

    def give_back(self, user: str, topic: str) -> None:
        """Take back a count: the group was not made."""
        if user:
            with self._lock:
                self._in_topic[user, topic] -= 1
                self._in_all[user] -= 1


class TopicQuota:
    """Names of the topics that users made by sending. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most // _SHARE)
        self._lock = threading.Lock()
        self._made: defaultdict[str, set[str]] = defaultdict(set)

    @contextmanager
    def making(self, user: str, topic: str) -> Iterator[None]:
        """Count a topic that a block makes, not if it fails; RequestError if it is one too many.

        Callers without a name have the limit of all alone.
        """
        if not user:
            yield
            return
        with self._lock:
            made = self._made[user]
            # Several sends may make one topic at once.
            if topic not in made and len(made) >= self._most:
                message = (
                    f"Topic {topic} does not exist, and user {user} has made {len(made)} topics by "
                    "sending, which is the limit for one user. Ask an administrator for it."
                )
                raise RequestError(message)
            made.add(topic)
        try:
            yield
        except BaseException:
            with self._lock:
                made.discard(topic)
            raise
