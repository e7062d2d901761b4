"""Routes: where prepared messages go when they become visible, by the topics that there are then.

Between prepare and commit a topic may be deleted, made anew with fewer queues, or closed to
writers. A commit that does not look brings a deleted topic back, or writes to queues that no reader
knows. So copies are routed when they are made:

    topic gone or not writable     before the decision: the commit is refused, and names the topic
                                   once decided: rows of a topic that is gone are dropped, with a
                                   line in the log that counts them
    queue beyond the topic's       another queue of the topic, as for delayed messages: the queue's
                                   number modulo the number of queues

One look is for many messages: distinct topics and the largest queue. Whatever changes between the
look and the append is seen under the store's lock (HalfSettler.settle).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.topics import PERM_WRITE
from broker_core.codec.legal_names import is_own_topic
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.errors import PermissionDeniedError, TopicNotFoundError
from broker_core.store.io.segments import is_path_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.topics import TopicConfig
    from broker_core.broker.transactions.unpack import VisibleCopies
    from broker_core.codec.message_batch import Destinations

_ANY = 1 << 31
"""More queues than there can be: every number of a queue is right."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Routes:
    """The topics of a store as of one look; `root` is its directory."""

    topics: Mapping[str, TopicConfig]
    root: Path

    def require(self, topics: Collection[str]) -> None:
        """Raise TopicNotFoundError or PermissionDeniedError unless all topics can be written to."""
        for topic in sorted(topics):
            if not self._queue_count(topic):
                message = (
                    f"Topic {topic[:255]!r} is gone, and messages for it were prepared. Nothing "
                    "was committed; create the topic again, or roll back."
                )
                raise TopicNotFoundError(message)
            config = self.topics.get(topic)
            if config is not None and not config.perm & PERM_WRITE:
                message = (
                    f"Topic {topic} is not writable (perm {config.perm}). Nothing was committed; "
                    f"give it perm {config.perm | PERM_WRITE} to write to it, or roll back."
                )
                raise PermissionDeniedError(message)

    def routed(self, copies: VisibleCopies) -> VisibleCopies:
        """Return copies with queues that their topics have, without those whose topic is gone."""
        to = copies.destinations
        counts = [self._queue_count(topic) for topic in to.topics]
        largest, smallest = int(to.queue_ids.max(initial=0)), int(to.queue_ids.min(initial=0))
        if not counts or (smallest >= 0 and largest < min(counts)):
            return copies
        is_gone = (np.array(counts) == 0)[to.topic_codes]
        if is_gone.any():
            for code in np.unique(to.topic_codes[is_gone]).tolist():
                dropped = int((to.topic_codes == code).sum())
                topic = to.topics[code][:255]
                log.warning("event=rows_of_missing_topic_dropped topic=%r count=%d", topic, dropped)
            return self.routed(copies.select(np.flatnonzero(~is_gone)))
        return copies.in_queues(self.queue_ids(to))

    def queue_ids(self, to: Destinations) -> NDArray[np.int32]:
        """Return the queues that messages go to; of topics that are gone, those that they name."""
        counts = np.array([self._queue_count(topic) or _ANY for topic in to.topics], dtype=np.int64)
        found: NDArray[np.int32] = (to.queue_ids % counts[to.topic_codes]).astype(np.int32)
        return found

    def _queue_count(self, topic: str) -> int:
        """Return how many queues of a topic can be written to; 0 for one that is not there."""
        config = self.topics.get(topic)
        if topic == SCHEDULE_TOPIC:
            return _ANY  # where delayed messages go from there is delivery's to look at
        if is_own_topic(topic):
            return 0
        if config is not None:
            return config.write_queues
        # A store may have lost its configuration, or never had any of a topic that it holds.
        has_queues = is_path_part(topic) and (self.root / "consumequeue" / topic).is_dir()
        return _ANY if has_queues else 0
