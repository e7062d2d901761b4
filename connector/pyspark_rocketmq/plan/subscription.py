"""subscribe, subscribePattern and assign: which queues a query reads.

A subscription is asked twice: which of the existing topics it needs offsets of, and which of their
queues it reads. Patterns are searched, not anchored, and never match system topics, which can still
be read by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from broker_core.codec.property_names import is_system_topic
from broker_core.types import QueueRef
from pyspark_rocketmq.errors import option_errors
from pyspark_rocketmq.options import names
from pyspark_rocketmq.plan.offsets import QueueKey

# System topics named after the default cluster; is_system_topic knows those with fixed names.
CLUSTER_TOPICS = frozenset(
    {"DefaultCluster", "DefaultCluster_REPLY_TOPIC", "DefaultHeartBeatSyncerTopic"}
)


@dataclass(frozen=True)
class Topics:
    """All queues of some topics, by name. A missing topic is an error."""

    option: str
    topics: tuple[str, ...]

    def needed(self, existing: Collection[str]) -> list[str]:
        """Return the topics to look up: all of them, whether they exist or not."""
        del existing
        return sorted(self.topics)

    def select(self, queues: Iterable[QueueRef]) -> list[QueueRef]:
        """Return the queues to read, sorted."""
        return sorted(queue for queue in queues if queue.topic in self.topics)


@dataclass(frozen=True)
class Pattern:
    """All queues of the topics whose name the regular expression is found in."""

    option: str
    text: str

    def needed(self, existing: Collection[str]) -> list[str]:
        """Return the existing topics that match, without system topics; perhaps none."""
        found = re.compile(self.text).search
        return sorted(
            topic
            for topic in existing
            if found(topic) and not is_system_topic(topic) and topic not in CLUSTER_TOPICS
        )

    def select(self, queues: Iterable[QueueRef]) -> list[QueueRef]:
        """Return the queues to read, sorted; not of the system topic named after its broker."""
        return sorted(queue for queue in queues if queue.topic != queue.broker_name)


@dataclass(frozen=True)
class Assigned:
    """Single queues. It never grows; queues that do not exist are left out."""

    option: str
    keys: frozenset[QueueKey]

    def needed(self, existing: Collection[str]) -> list[str]:
        """Return the topics named in the assignment."""
        del existing
        return sorted({key.topic for key in self.keys})

    def select(self, queues: Iterable[QueueRef]) -> list[QueueRef]:
        """Return the queues that are both assigned and there, sorted."""
        present = list(queues)
        self._refuse_ambiguity(present)
        anywhere = {(key.topic, key.queue_id) for key in self.keys if not key.broker_name}
        return sorted(
            queue
            for queue in present
            if QueueKey(queue.topic, queue.broker_name, queue.queue_id) in self.keys
            or (queue.topic, queue.queue_id) in anywhere
        )

    def _refuse_ambiguity(self, present: list[QueueRef]) -> None:
        for topic in sorted({key.topic for key in self.keys if not key.broker_name}):
            brokers = {queue.broker_name for queue in present if queue.topic == topic}
            if len(brokers) > 1:
                raise option_errors.offsets_ambiguous_broker(names.ASSIGN, topic, brokers)


Subscription = Topics | Pattern | Assigned


def chosen(subscription: Subscription, queues: Collection[QueueRef]) -> set[QueueRef]:
    """Return which of some existing queues a subscription reads."""
    topics = set(subscription.needed({queue.topic for queue in queues}))
    return {queue for queue in subscription.select(queues) if queue.topic in topics}
