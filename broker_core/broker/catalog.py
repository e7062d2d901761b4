"""Catalog: the topics that a store has, by its configuration and its consume queues; its size.

A topic is known if config/topics.json lists it or if it has consume queues: brokers forget to list
some of their own, and a store may have lost its configuration. Records of a topic that is in
neither belong to a deleted one (deleted_topics.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.broker.admission.numbers import require_number
from broker_core.broker.topics import TopicConfig, TopicTable
from broker_core.codec.legal_names import check_topic, is_legal_topic
from broker_core.errors import RequestError, TopicNotFoundError
from broker_core.store.config_files import Version, versions
from broker_core.store.format_check import batch_queue_error, batch_queue_ids, batch_queue_topics
from broker_core.store.index.file import list_index_files
from broker_core.store.io.segments import is_path_part
from broker_core.types import QueueRef, TopicInfo

if TYPE_CHECKING:
    from broker_core.store.reader import StoreReader

TOPICS_FILE = Path("config") / "topics.json"


class Catalog:
    """The topics of one store, as of each call. Not thread-safe.

    `is_served`: errors go to callers who may not know the other topics, nor where the store lies.
    """

    def __init__(self, reader: StoreReader, *, is_served: bool = False) -> None:
        self._reader = reader
        self._is_served = is_served
        self._path = reader.root / TOPICS_FILE
        self._table = TopicTable()
        self._versions: tuple[Version | None, Version | None] | None = None
        # Rows that `config` returned: the kind of a topic's queues stays as long as its row does.
        self._usual: dict[str, TopicConfig] = {}

    def table(self) -> TopicTable:
        """Return the configured topics; the file is read again when it has changed."""
        found = versions(self._path)
        if found != self._versions:
            self._table = TopicTable.load(self._path)
            self._versions = found
            self._usual.clear()
        return self._table

    def names(self) -> list[str]:
        """Return all topics, sorted."""
        found = {*self.table().topics, *(topic for topic, _ in self._reader.queues())}
        found |= batch_queue_topics(self._reader.root)
        return sorted(name for name in found if is_path_part(name))

    def config(self, topic: str) -> TopicConfig:
        """Return a topic's configuration; one that only has queues gets the usual one.

        InvalidNameError, TopicNotFoundError; FormatVersionError for one with batch queues.
        """
        table = self.table()
        known = self._usual.get(topic)
        if known is not None:
            return known
        config = self._row(topic)
        if config.is_batch:
            raise batch_queue_error(topic)
        if topic in table.topics:
            self._usual[topic] = config
        return config

    def _row(self, topic: str) -> TopicConfig:
        """Return a topic's configuration, also of one that we do not read."""
        self._admit(topic)
        config = self.table().topics.get(topic)
        is_batch = topic in batch_queue_topics(self._reader.root)
        if config is None:
            ids = batch_queue_ids(self._reader.root, topic) if is_batch else self.queue_ids(topic)
            if not ids and not is_batch:
                raise self._not_found(topic)
            count = max(ids, default=-1) + 1
            config = TopicConfig(topic, count, count)
        return config.as_batch() if is_batch else config

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that hold or held messages, sorted."""
        self._admit(topic)
        return self._reader.queue_ids(topic)

    def _admit(self, topic: str) -> None:
        """Raise InvalidNameError unless the name is legal, or is one that the store has anyway.

        Brokers make a topic of their own name, which may be that of a host, with dots.
        """
        if is_legal_topic(topic) or (is_path_part(topic) and topic in self.names()):
            return
        check_topic(topic)

    def describe(self, topic: str) -> TopicInfo:
        """Return what there is to know of a topic; its attributes say if it has batch queues.

        InvalidNameError, TopicNotFoundError.
        """
        config = self._row(topic)
        return TopicInfo(
            name=topic,
            read_queues=config.read_queues,
            write_queues=config.write_queues,
            perm=config.perm,
            queues=tuple(self.ref(topic, number) for number in self.readable_ids(topic, config)),
            attributes=dict(config.attributes),
        )

    def readable_ids(self, topic: str, config: TopicConfig) -> Sequence[int]:
        """Return the queues of a topic that can be read, sorted.

        Of a topic that has queues and no configuration, those that are there: its largest number
        says nothing about how many they are.
        """
        if config.is_batch or topic in self.table().topics:
            return range(config.read_queues)
        return self.queue_ids(topic)

    def ref(self, topic: str, queue_id: int) -> QueueRef:
        """Return the full name of a queue."""
        return QueueRef(topic, self._reader.settings.broker_name, queue_id)

    def require_queue(self, topic: str, queue_id: int) -> None:
        """Raise RequestError unless the topic has this queue; errors as for `config` too."""
        count = self.config(topic).read_queues
        queue_id = require_number(queue_id, f"A queue of topic {topic}")
        if not 0 <= queue_id < count and queue_id not in self.queue_ids(topic):
            message = f"Topic {topic} has queues 0 to {count - 1}, not {queue_id}."
            raise RequestError(message)

    def _not_found(self, topic: str) -> TopicNotFoundError:
        if self._is_served:
            # Comparing with all names would also take long, in a thread that others may wait for.
            message = f"Topic {topic} does not exist; create it, or list topics for the names."
            return TopicNotFoundError(message)
        near = difflib.get_close_matches(topic, self.names(), n=1)
        advice = f"did you mean {near[0]}?" if near else "create it, or list topics for the names."
        message = f"Topic {topic} does not exist in {self._reader.root}; {advice}"
        return TopicNotFoundError(message)


def store_numbers(reader: StoreReader, catalog: Catalog) -> dict[str, int]:
    """Return topics, queues, messages and bytes of a store, as it is now."""
    reader.refresh()
    log_start, log_end = reader.log_range()
    segments = reader.log.segments
    ranges = [reader.queue_range(*queue) for queue in reader.queues()]
    return {
        "topics": len(catalog.names()),
        "queues": len(ranges),
        "messages": sum(maximum - minimum for minimum, maximum in ranges),
        "messagesEver": sum(maximum for _, maximum in ranges),
        "commitLogMinOffset": log_start,
        "commitLogMaxOffset": log_end,
        "commitLogFiles": len(segments),
        "commitLogFileSize": segments[0].size if segments else 0,
        "indexFiles": len(list_index_files(reader.root / "index")),
    }
