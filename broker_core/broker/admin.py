"""Administration: changes to a store's configuration, each under the store's lock.

A change reads the files again once it holds the lock, so that two processes can't undo each
other's, and is durable when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.broker.admission.numbers import require_number
from broker_core.broker.admission.own_names import require_client_group, require_client_topic
from broker_core.broker.catalog import TOPICS_FILE
from broker_core.broker.offsets import (
    ConsumerOffsets,
    OffsetCommit,
    consumer_offsets_file,
    require_room,
)
from broker_core.broker.topics import MAX_QUEUES, TopicConfig, TopicTable
from broker_core.codec.legal_names import check_group, check_topic
from broker_core.errors import RequestError, TopicExistsError, TopicNotFoundError
from broker_core.store import config_files

if TYPE_CHECKING:
    from broker_core.broker.catalog import Catalog
    from broker_core.store.writer import StoreWriter


class Admin:
    """Topics and consumer offsets of one store, open for change."""

    def __init__(self, catalog: Catalog, writer: StoreWriter, clock_ms: Callable[[], int]) -> None:
        self._catalog = catalog
        self._writer = writer
        self._clock_ms = clock_ms

    def create_topic(self, topic: str, queues: int, *, exist_ok: bool) -> None:
        """Make a topic; TopicExistsError unless `exist_ok`, which leaves one as it is."""
        require_client_topic(topic, "create")
        queues = require_number(queues, f"The number of queues of topic {topic}")
        self._create(check_topic(topic), queues, exist_ok=exist_ok)

    def create_own_topics(self, topics: Sequence[str]) -> None:
        """Make topics of the broker's own that it does not have yet, each with one queue."""
        for topic in topics:
            self._create(topic, 1, exist_ok=True)

    def _create(self, topic: str, queues: int, *, exist_ok: bool) -> None:
        _check_queues(topic, queues)
        with self._writer.turn("create a topic"):
            if not self._exists(topic):
                created = TopicConfig(topic, queues, queues)
                self._save(TOPICS_FILE, self._catalog.table().put(created))
                return
        if not exist_ok:
            message = (
                f"Topic {topic} exists already in {self._writer.root}; pass exist_ok=True "
                f"(--exist-ok) to go on with it."
            )
            raise TopicExistsError(message)

    def add_queues(self, topic: str, total: int) -> None:
        """Let a topic have `total` queues; only growth is allowed."""
        require_client_topic(topic, "add queues to")
        total = require_number(total, f"The number of queues of topic {topic}")
        _check_queues(topic, total)
        with self._writer.turn("add queues"):
            config = self._catalog.config(topic)
            held = max(config.read_queues, config.write_queues)
            if total < held:
                message = (
                    f"Topic {topic} has {held} queues and can't have {total}: queues are only "
                    f"ever added, or their messages would be lost."
                )
                raise RequestError(message)
            grown = replace(config, read_queues=total, write_queues=total)
            self._save(TOPICS_FILE, self._catalog.table().put(grown))

    def delete_topic(self, topic: str) -> None:
        """Forget a topic, its queues and groups' offsets in it; its records stay in the log.

        The configuration goes first: a crash in between leaves a topic that still has its queues
        and can be deleted again.
        """
        require_client_topic(topic, "delete")
        with self._writer.turn("delete a topic"):
            self._catalog.config(topic)
            self._save(TOPICS_FILE, self._catalog.table().remove(topic))
            with self._writer.beside("save the consumer offsets") as files:
                file = consumer_offsets_file(self._writer.root)
                if file.table().group_count(topic):
                    file.save(files, file.table().without_topic(topic), self._clock_ms())
            self._writer.delete_queues(topic)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record where a group will read next; RequestError for one too many in the topic.

        Commits that wait at the same time are written together: each write is of the whole table.
        """
        require_client_group(check_group(group))
        require_client_topic(topic, "move offsets of a group in")
        queue_id = require_number(queue_id, f"A queue of topic {topic}")
        offset = require_number(offset, f"The offset of group {group}")
        if min(offset, queue_id) < 0:
            message = (
                f"Offset {offset} of group {group} in queue {queue_id} of {topic} is negative, or "
                "the queue is; both start at 0. Nothing was changed."
            )
            raise RequestError(message)
        # Before it waits, so that a refusal costs next to nothing; again when nobody else writes.
        file = consumer_offsets_file(self._writer.root)
        require_room(file.table(), group, topic, self._writer.settings, self._writer.root)
        file.commit(OffsetCommit(self._writer, group, topic, queue_id, offset, self._clock_ms()))

    def _exists(self, topic: str) -> bool:
        try:
            self._catalog.config(topic)
        except TopicNotFoundError:
            return False
        return True

    def _save(self, file: Path, table: TopicTable) -> None:
        with self._writer.turn("save the configuration") as parts:
            document = table.document(self._clock_ms())
            # Before it, for this process may be killed in between: senders remember topics.
            self._writer.note_change()
            config_files.persist(parts.files, self._writer.root / file, document)


def load_consumer_offsets(root: Path) -> ConsumerOffsets:
    """Return the consumer offsets of a store as they are on disk; parsed only if they changed."""
    return consumer_offsets_file(root).table()


def _check_queues(topic: str, queues: int) -> None:
    if not 1 <= queues <= MAX_QUEUES:
        message = f"Topic {topic} can't have {queues} queues; give 1 to {MAX_QUEUES}."
        raise RequestError(message)
