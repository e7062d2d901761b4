"""Deletions: what a store remembers of deleted topics, in config/topicDeletions.json.

    {"deletions": {topic: the log's end when it was deleted},
     "queueEnds": {topic: {queue id: the queue's end when it was deleted}}}

Records before the log's end belong to no queue any more: recovery must not give them to a topic of
that name made later. That row goes when the log no longer reaches back so far.

A queue of a topic made again goes on at its old end, so that no offset ever names two messages: a
checkpoint knows a message by topic, queue and offset alone. That row stays for as long as the
store. It counts for a queue without files only; the first message makes the file, with fillers
before it (writer.py), and from then on the file tells. So the store holds nothing that Apache's
broker would not write (docs/decisions/0013-offsets-go-on-after-a-deletion.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.errors import CorruptRecordError
from broker_core.store import config_files

DELETIONS = Path("config") / "topicDeletions.json"
_LOG_ENDS, _QUEUE_ENDS = "deletions", "queueEnds"


@dataclass(frozen=True, slots=True)
class Deletions:
    """The document, read. Changing it gives a new one."""

    log_ends: Mapping[str, int] = field(default_factory=dict)
    queue_ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path) -> Deletions:
        """Read the store's file or its backup; no deletions if there is neither."""
        path = root / DELETIONS
        document = config_files.load(path)
        log_ends = _rows(document, _LOG_ENDS, path)
        return cls(
            {topic: end for topic, end in log_ends.items() if isinstance(end, int)},
            {
                topic: {int(queue_id): _offset(ends[queue_id], path) for queue_id in ends}
                for topic, ends in _rows(document, _QUEUE_ENDS, path).items()
            },
        )

    def added(
        self, topic: str, *, log_start: int, log_end: int, queue_ends: Mapping[int, int]
    ) -> Deletions:
        """Return these and the deletion of a topic whose queues have these ends.

        Ends never go back, also if a foreign broker numbered the topic from 0 in between.
        """
        known = self.queue_ends.get(topic, {})
        ends = {
            queue_id: max(known.get(queue_id, 0), queue_ends.get(queue_id, 0))
            for queue_id in known.keys() | queue_ends.keys()
        }
        used = {queue_id: end for queue_id, end in sorted(ends.items()) if end > 0}
        in_log = {name: end for name, end in self.log_ends.items() if end > log_start}
        return Deletions(
            {**in_log, topic: log_end},
            {**self.queue_ends, topic: used} if used else self.queue_ends,
        )

    def document(self) -> dict[str, Any]:
        """Return the document to write."""
        ends = {
            topic: {str(queue_id): end for queue_id, end in of_topic.items()}
            for topic, of_topic in self.queue_ends.items()
        }
        return {_LOG_ENDS: dict(self.log_ends), _QUEUE_ENDS: ends}


class QueueOrigins:
    """Where queues without files begin. The file is read again when it has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._versions: object = None
        self._deletions = Deletions()

    def of(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message that a queue without files will get."""
        found = config_files.versions(self._root / DELETIONS)
        if found != self._versions:
            self._deletions = Deletions.load(self._root)
            self._versions = found
        return self._deletions.queue_ends.get(topic, {}).get(queue_id, 0)


def _rows(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    rows = document.get(name, {})
    if not isinstance(rows, dict):
        raise _damaged(path, f"{name} is no object")
    return rows


def _offset(value: object, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _damaged(path, f"{value!r} is no offset")
    return value


def _damaged(path: Path, what: str) -> CorruptRecordError:
    message = f"{path} is damaged: {what}; restore it from a backup or from {path.name}.bak."
    return CorruptRecordError(message, path)
