"""Descriptions of topics, cached: a sender needs to know their queues and rights."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from broker_core.errors import TopicNotFoundError
from broker_core.types import QueueRef, TopicInfo
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import CREATE_TOPIC, DESCRIBE

if TYPE_CHECKING:
    from broker_core.clients.grpc.connection import Connection
    from broker_core.wire.core.methods import Method

FRESH_S = 30.0
"""Age at which a description is asked for again; RocketMQ's clients keep a route as long."""


class TopicCache:
    """Descriptions of topics, each asked for again when it is old. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[float, TopicInfo]] = {}

    def known(self, topic: str) -> TopicInfo:
        """Return a topic's description, at most 30 s old."""
        held = self._known.get(topic)
        if held is not None and time.monotonic() - held[0] < FRESH_S:
            return held[1]
        return self.ask(topic)

    def known_to_sender(self, topic: str) -> TopicInfo:
        """Return a topic's description; create the topic if it is missing and the broker may."""
        try:
            return self.known(topic)
        except TopicNotFoundError:
            if not self._connection.greeting().creates_topics:
                raise
            return self.change(CREATE_TOPIC, pb.CreateTopic(topic=topic, for_sending=True))

    def ask(self, topic: str) -> TopicInfo:
        """Return a topic's description as it is now; raise TopicNotFoundError without a topic."""
        self.forget(topic)
        return self.change(DESCRIBE, pb.Topic(topic=topic))

    def change(self, method: Method, request: Any) -> TopicInfo:
        """Make a call that answers with a topic's description, and return that."""
        info = _topic_info(self._connection.call(method, request))
        self._known[info.name] = (time.monotonic(), info)
        return info

    def forget(self, topic: str) -> None:
        """Drop a description, so that it is asked for next time."""
        self._known.pop(topic, None)


def _topic_info(reply: pb.TopicInfo) -> TopicInfo:
    return TopicInfo(
        name=reply.topic,
        read_queues=reply.read_queues,
        write_queues=reply.write_queues,
        perm=reply.perm,
        queues=tuple(
            QueueRef(reply.topic, reply.broker_name, number) for number in reply.queue_ids
        ),
        attributes=dict(reply.attributes),
    )
