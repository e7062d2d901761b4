"""Offset tables: the next offsets of consumer groups and of the delay service.

    config/consumerOffset.json   {"offsetTable": {"topic@group": {queue id: next offset}}, ...}
    config/delayOffset.json      {"offsetTable": {delay level: next offset of queue level - 1}, ...}

Offsets are next-to-read. Integer keys may be unquoted (config_files.py). Other tables of these
documents are kept as they are. Written whole by the holder of the store's lock; Apache's broker
does so every few seconds, so after a crash a group may read some messages twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.errors import CorruptRecordError
from broker_core.store import config_files

_TABLE = "offsetTable"
_VERSION = "dataVersion"
_SEPARATOR = "@"


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """All groups' offsets: (topic, group) to queue id to offset. Changing it gives a new one."""

    offsets: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> ConsumerOffsets:
        """Read the file or its backup; an empty table if there is neither."""
        document = config_files.load(path)
        offsets = {}
        for key, queues in _table(document, path).items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not separator or not isinstance(queues, dict):
                raise _damaged(path, f"key {key!r} is no topic@group with queues")
            offsets[topic, group] = {
                _number(queue, path): _number(offset, path) for queue, offset in queues.items()
            }
        rest = {name: value for name, value in document.items() if name != _TABLE}
        return cls(offsets, rest)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Return a group's next offset of each queue of a topic that it has read."""
        return self.offsets.get((topic, group), {})

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> ConsumerOffsets:
        """Return the table with one offset set."""
        queues = {**self.of(group, topic), queue_id: offset}
        return ConsumerOffsets({**self.offsets, (topic, group): queues}, self.rest)

    def without_topic(self, topic: str) -> ConsumerOffsets:
        """Return the table without a topic's offsets: groups know nothing of one made anew."""
        kept = {key: queues for key, queues in self.offsets.items() if key[0] != topic}
        return ConsumerOffsets(kept, self.rest)

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return the document to write, one version on."""
        table = {
            f"{topic}{_SEPARATOR}{group}": {str(queue): offset for queue, offset in queues.items()}
            for (topic, group), queues in self.offsets.items()
        }
        version = config_files.next_version(self.rest.get(_VERSION), now_ms)
        return {**self.rest, _TABLE: table, _VERSION: version}


def load_delay_offsets(path: Path) -> dict[int, int]:
    """Return the next offset of each delay level's queue that was ever read."""
    table = _table(config_files.load(path), path)
    return {_number(level, path): _number(offset, path) for level, offset in table.items()}


def delay_document(
    document: Mapping[str, Any], offsets: Mapping[int, int], now_ms: int
) -> dict[str, Any]:
    """Return the document of the delay service with other offsets, one version on."""
    table = {str(level): offset for level, offset in sorted(offsets.items())}
    return {
        **document,
        _TABLE: table,
        _VERSION: config_files.next_version(document.get(_VERSION), now_ms),
    }


def _table(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    table = document.get(_TABLE, {})
    if not isinstance(table, dict):
        raise _damaged(path, f"{_TABLE} is no object")
    return table


def _number(value: object, path: Path) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise _damaged(path, f"{value!r} is no number") from error


def _damaged(path: Path, what: str) -> CorruptRecordError:
    message = f"{path} is damaged: {what}; restore it from a backup or from {path.name}.bak."
    return CorruptRecordError(message, path)
