"""Send: one message through the door into an embedded store.

Most of a send's time would be Python's own: NumPy for arrays of one, dataclasses, imports within
functions. So what needs no array gets none, and the modules are imported once, with the first send.
The door looks at files. A sender that is alone with a store would learn the same from them for
each message, so topics are remembered as long as nobody else has written; appending tells
(store/writer.py, `append_unchanged`).

Next: codec/message.py encodes the message, store/log_first.py appends it.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.admission.numbers import require_number
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.ids import UniqueIds, offset_id
from broker_core.codec.message import encode_single, message_properties
from broker_core.codec.message_batch import Destinations
from broker_core.errors import IllegalMessageError, RequestError
from broker_core.store.few_records import FewRecords
from broker_core.types import LogicalOffset, PhysicalOffset, SendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker_core.broker.admission.door import Door
    from broker_core.broker.topics import TopicConfig
    from broker_core.store.writer import StoreWriter


class Sender:
    """Sends to one store, each message by itself. Not thread-safe."""

    def __init__(self, door: Door, writer: StoreWriter, clock_ms: Callable[[], int]) -> None:
        self._door = door
        self._writer = writer
        self._clock_ms = clock_ms
        settings = writer.settings
        self._store_host = settings.store_host
        self._max_body_bytes = settings.max_message_bytes
        self._delay_levels = len(settings.delay_levels_ms)
        self._broker_name = settings.broker_name
        self._unique_ids = UniqueIds()
        self._turn = random.randrange(1 << 16)
        # Topics as the door returned them when the store had had so many changes.
        self._known: dict[str, TopicConfig] = {}
        self._changes = 0

    def send(
        self,
        topic: str,
        body: bytes,
        tags: str | None,
        keys: Sequence[str] | str | None,
        properties: Mapping[str, str] | None,
        queue_id: int | None,
        sharding_key: str | None,
        delay_level: int,
    ) -> SendResult:
        """Append one message and return where it lies; see EmbeddedBroker.send."""
        if delay_level != 0 or type(delay_level) is not int:
            delay_level = self._require_level(topic, delay_level)
        config = self._known.get(topic)
        if config is None:
            config = self._look(topic)
        now = self._clock_ms()
        unique_key = self._unique_key(now)
        stored = message_properties(
            topic,
            unique_key,
            tags=tags,
            keys=keys,
            properties=properties,
            sharding_key=sharding_key,
        )
        if queue_id is None:
            queue = self._choose_queue(config, sharding_key)
        else:
            queue = self._require_queue(config, queue_id)
        host = self._store_host
        single = encode_single(
            topic,
            queue,
            body,
            stored,
            now,
            delay_level=delay_level,
            store_host=host,
            max_body_bytes=self._max_body_bytes,
        )
        if delay_level:
            self._require_deliverable(topic, queue, len(single.encoded))
        few = FewRecords.of_one(single)
        placed = self._writer.append_unchanged(few, self._changes)
        if placed is None:
            self._known.clear()
            if self._door.topic(topic) != config:
                return self.send(
                    topic, body, tags, keys, properties, queue_id, sharding_key, delay_level
                )
            placed = self._writer.append_few(few)
        queue_offsets, physical_offset, _ = placed
        return SendResult(
            single.topic,
            self._broker_name,
            single.queue_id,
            LogicalOffset(queue_offsets[0]),
            unique_key,
            offset_id(host, physical_offset),
            PhysicalOffset(physical_offset),
        )

    def _look(self, topic: str) -> TopicConfig:
        """Return a topic's row, and remember it as long as nothing changes in the store."""
        with self._writer.turn("look at a topic", dispatches=False):
            changes = self._writer.look()
            if changes != self._changes:
                self._known.clear()
                self._changes = changes
            config = self._known[topic] = self._door.topic(topic)
        return config

    def _require_level(self, topic: str, delay_level: int) -> int:
        level = require_number(delay_level, f"The delay level of a message for {topic}")
        if not 0 <= level <= self._delay_levels:
            message = (
                f"Delay level {level} for topic {topic} is not one of 1 to {self._delay_levels}."
            )
            raise IllegalMessageError(message)
        return level

    def _require_deliverable(self, topic: str, queue_id: int, size: int) -> None:
        """Raise IllegalMessageError unless the copy of a delayed message will fit."""
        to = Destinations.to_queue(topic, queue_id, 1)
        self._door.require_deliverable(to, np.array([size]))

    def _require_queue(self, config: TopicConfig, queue_id: int) -> int:
        try:
            return config.check_queue(queue_id)
        except RequestError:
            return self._look(config.name).check_queue(queue_id)  # queues may have been added

    def _choose_queue(self, config: TopicConfig, sharding_key: str | None) -> int:
        if sharding_key:
            return index_hash(java_hash(sharding_key)) % config.write_queues
        self._turn += 1
        return self._turn % config.write_queues

    def _unique_key(self, now_ms: int) -> str:
        if self._unique_ids.process_id != os.getpid():
            self._unique_ids = UniqueIds()
        return self._unique_ids.make_one(now_ms)
