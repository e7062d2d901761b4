"""Topics: the table in config/topics.json, with each topic's queues and permissions.

    {"topicConfigTable": {NAME: {"topicName": NAME, "readQueueNums": n, "writeQueueNums": n,
                                 "perm": bits, "topicFilterType": "SINGLE_TAG", "order": false,
                                 "topicSysFlag": 0, "attributes": {...}}},
     "dataVersion": {"counter": n, "stateVersion": 0, "timestamp": ms}}

`perm` bits: 4 read, 2 write, 1 inherit, 8 priority. Fields that we do not know are kept. Written
whole on every change, by the holder of the store's lock (config_files.py); a store without the file
has the topics of its consume queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker_core.broker.admission.numbers import require_number
from broker_core.errors import CorruptRecordError, RequestError
from broker_core.store import config_files

PERM_READ = 4
PERM_WRITE = 2
PERM_DEFAULT = PERM_READ | PERM_WRITE
MAX_QUEUES = 65536
"""A topic with more is taken for damage: every queue costs memory in every reader."""

_QUEUE_TYPE, _BATCH = "queue.type", "BatchCQ"
_TABLE = "topicConfigTable"
_VERSION = "dataVersion"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic's row. `unknown` holds the fields that other releases added."""

    name: str
    read_queues: int
    write_queues: int
    perm: int = PERM_DEFAULT
    filter_type: str = "SINGLE_TAG"
    order: bool = False
    sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """True if its queues have the batch format, which we do not read."""
        return self.attributes.get(_QUEUE_TYPE) == _BATCH

    def as_batch(self) -> TopicConfig:
        """Return the row with batch queues, whatever it said."""
        return replace(self, attributes={**self.attributes, _QUEUE_TYPE: _BATCH})

    def check_queue(self, queue_id: int) -> int:
        """Return a queue's number if messages can be sent to it; else RequestError."""
        queue_id = require_number(queue_id, f"A queue of topic {self.name}")
        if not 0 <= queue_id < self.write_queues:
            message = (
                f"Topic {self.name} has queues 0 to {self.write_queues - 1} to write to, not "
                f"{queue_id}."
            )
            raise RequestError(message)
        return queue_id

    def document(self) -> dict[str, Any]:
        """Return the row as the file has it."""
        return {
            **self.unknown,
            "topicName": self.name,
            "readQueueNums": self.read_queues,
            "writeQueueNums": self.write_queues,
            "perm": self.perm,
            "topicFilterType": self.filter_type,
            "order": self.order,
            "topicSysFlag": self.sys_flag,
            "attributes": dict(self.attributes),
        }


@dataclass(frozen=True, slots=True)
class TopicTable:
    """All topics, and the rest of the document they were read from. Changing it gives a new one."""

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, document: Mapping[str, Any], path: Path) -> TopicTable:
        """Read a document; CorruptRecordError naming the topic and field that make no sense."""
        table = document.get(_TABLE, {})
        if not isinstance(table, dict):
            raise _damaged(path, f"{_TABLE} is no object")
        topics = {name: _parse_topic(name, row, path) for name, row in table.items()}
        rest = {name: value for name, value in document.items() if name != _TABLE}
        return cls(topics, rest)

    @classmethod
    def load(cls, path: Path) -> TopicTable:
        """Read the file or its backup; an empty table if there is neither."""
        return cls.parse(config_files.load(path), path)

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return the document to write, one version on."""
        return {
            **self.rest,
            _TABLE: {name: config.document() for name, config in self.topics.items()},
            _VERSION: config_files.next_version(self.rest.get(_VERSION), now_ms),
        }

    def put(self, config: TopicConfig) -> TopicTable:
        """Return the table with a topic added or changed."""
        return replace(self, topics={**self.topics, config.name: config})

    def remove(self, name: str) -> TopicTable:
        """Return the table without a topic."""
        topics = {topic: config for topic, config in self.topics.items() if topic != name}
        return replace(self, topics=topics)


def _parse_topic(name: str, row: object, path: Path) -> TopicConfig:
    if not isinstance(row, dict):
        raise _damaged(path, f"topic {name} is no object")
    unknown = {key: value for key, value in row.items() if key not in _KNOWN}
    attributes = row.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise _damaged(path, f"attributes of topic {name} are {attributes!r}, expected an object")
    return TopicConfig(
        name=name,
        read_queues=_integer(row, "readQueueNums", 16, name, path),
        write_queues=_integer(row, "writeQueueNums", 16, name, path),
        perm=_integer(row, "perm", PERM_DEFAULT, name, path),
        filter_type=str(row.get("topicFilterType", "SINGLE_TAG")),
        order=bool(row.get("order", False)),
        sys_flag=_integer(row, "topicSysFlag", 0, name, path),
        attributes={str(key): str(value) for key, value in attributes.items()},
        unknown=unknown,
    )


_KNOWN = frozenset(TopicConfig("", 0, 0).document())


def _integer(row: Mapping[str, Any], key: str, default: int, name: str, path: Path) -> int:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_QUEUES:
        raise _damaged(path, f"{key} of topic {name} is {value!r}, expected 0 to {MAX_QUEUES}")
    return value


def _damaged(path: Path, what: str) -> CorruptRecordError:
    message = f"{path} is damaged: {what}; restore it from a backup or from {path.name}.bak."
    return CorruptRecordError(message, path)
