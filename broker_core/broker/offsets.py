"""Offset tables: the next offsets of consumer groups and of the delay service.

    config/consumerOffset.json   {"offsetTable": {"topic@group": {queue id: next offset}}, ...}
    config/delayOffset.json      {"offsetTable": {delay level: next offset of queue level - 1}, ...}

Offsets are next-to-read. Integer keys may be unquoted (config_files.py). Other tables of these
documents are kept as they are. Written whole by the holder of the store's lock, a server's beside
its appends; Apache's broker does so every few seconds, so after a crash a group may read some
messages twice.

Clients make groups, so the first table can be large, and every commit of a batch asks it how far
check-back came. ConsumerOffsetsFile therefore parses a document once, and ConsumerOffsets keeps it
as the text that is to be written: setting one offset makes one line anew, whatever the number of
groups. That number has limits (`require_room`).
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from broker_core.concurrency import GroupQueue
from broker_core.errors import CorruptRecordError, RequestError
from broker_core.store import config_files

if TYPE_CHECKING:
    from broker_core.store.io.files import Files
    from broker_core.store.settings import StoreSettings
    from broker_core.store.writer import StoreWriter

CONSUMER_OFFSETS_FILE = Path("config") / "consumerOffset.json"

_TABLE = "offsetTable"
_VERSION = "dataVersion"
_SEPARATOR = "@"
_BEHIND_SEPARATOR = chr(ord(_SEPARATOR) + 1)
_STORES_KEPT = 16
_MOST_COMMITS = 1000
_PART_ENTRIES = 4096
_BETWEEN = ",\n\t\t"
_quoted = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """All groups' offsets, as the lines of their document. Changing it gives a new one.

    `keys` has every `topic@group`, sorted, so the groups of a topic lie side by side, and `entries`
    the text of each key and its queues; both lists change in a new `copy` alone. `rest` has the
    text of the document's other tables by name, `version` its `dataVersion`.
    """

    keys: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    rest: Mapping[str, str] = field(default_factory=dict)
    version: object = None

    @classmethod
    def load(cls, path: Path) -> ConsumerOffsets:
        """Read the file or its backup; an empty table if there is neither."""
        document = config_files.load(path)
        table = _table(document, path)
        keys = sorted(table)
        entries = [_entry(key, _queues(key, table[key], path)) for key in keys]
        rest = {
            name: _member(name, value)
            for name, value in document.items()
            if name not in (_TABLE, _VERSION)
        }
        return cls(keys, entries, rest, document.get(_VERSION))

    def __len__(self) -> int:
        """Return the number of pairs of a topic and a group."""
        return len(self.keys)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's next offset of each queue of a topic that it has read."""
        for entry in self.entries[self._place(group, topic)]:
            queues: dict[str, int] = json.loads(f"{{{entry}}}")[_key(group, topic)]
            return {int(queue): offset for queue, offset in queues.items()}
        return {}

    def has(self, group: str, topic: str) -> bool:
        """Tell whether a group has offsets in a topic."""
        return bool(self.keys[self._place(group, topic)])

    def group_count(self, topic: str) -> int:
        """Return how many groups have offsets in a topic."""
        span = self._span(topic)
        return int(span.stop - span.start)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> ConsumerOffsets:
        """Return the table with one offset set."""
        changed = self.copy()
        changed.set(group, topic, queue_id, offset)
        return changed

    def copy(self) -> ConsumerOffsets:
        """Return a table to `set` offsets in: so several are set with one copy of the lists."""
        return replace(self, keys=self.keys.copy(), entries=self.entries.copy())

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set one offset in a copy that nobody else has yet."""
        key, place = _key(group, topic), self._place(group, topic)
        self.entries[place] = [_entry(key, {**self.of(group, topic), queue_id: offset})]
        self.keys[place] = [key]

    def without_topic(self, topic: str) -> ConsumerOffsets:
        """Return the table without a topic's offsets: groups know nothing of one made anew."""
        changed, span = self.copy(), self._span(topic)
        del changed.keys[span], changed.entries[span]
        return changed

    def _place(self, group: str, topic: str) -> slice:
        """Return where a pair lies; of one that is not there, an empty slice where it would."""
        key = _key(group, topic)
        start = bisect_left(self.keys, key)
        return slice(start, start + (self.keys[start : start + 1] == [key]))

    def _span(self, topic: str) -> slice:
        """Return where the groups of a topic lie."""
        return slice(
            bisect_left(self.keys, f"{topic}{_SEPARATOR}"),
            bisect_left(self.keys, f"{topic}{_BEHIND_SEPARATOR}"),
        )

    def next_version(self, now_ms: int) -> ConsumerOffsets:
        """Return the table one version on, as it is to be written."""
        return replace(self, version=config_files.next_version(self.version, now_ms))

    def encoded(self) -> bytes:
        """Return the document in UTF-8 as `config_files.render` would lay it out.

        It may be long, so it is made in parts: other threads of a server go on in between.
        """
        parts: list[bytes] = []
        for first in range(0, len(self.entries), _PART_ENTRIES):
            parts.append(_BETWEEN.encode())
            parts.append(_BETWEEN.join(self.entries[first : first + _PART_ENTRIES]).encode())
        # JSON has no zero byte: it stands for the entries.
        place = "\n\t\t\0\n\t" if parts else "\0"
        members = {**self.rest, _TABLE: f'\t"{_TABLE}":{{{place}}}'}
        if self.version is not None:
            members[_VERSION] = _member(_VERSION, self.version)
        document = "{\n" + ",\n".join(members[name] for name in sorted(members)) + "\n}"
        before, _, behind = document.partition("\0")
        return b"".join((before.encode(), *parts[1:], behind.encode()))


@dataclass(eq=False, slots=True)
class OffsetCommit:
    """One offset to set, by a writer, and what became of it: nothing, or `error`."""

    writer: StoreWriter
    group: str
    topic: str
    queue_id: int
    offset: int
    now_ms: int
    error: BaseException | None = None


class _Known(NamedTuple):
    fingerprint: config_files.Fingerprint
    table: ConsumerOffsets


class ConsumerOffsetsFile:
    """The consumer offsets of one store. Thread-safe.

    Brokers of a process share one (`consumer_offsets_file`), so that the write of one does not
    make the others parse. Other processes' writes are told by the file's fingerprint.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / CONSUMER_OFFSETS_FILE
        self._lock = threading.Lock()
        self._known: _Known | None = None
        self._commits = GroupQueue(
            self._commit_all, lambda _: 1, most_bytes=_MOST_COMMITS, pause_s=0, pauses=0
        )

    def table(self) -> ConsumerOffsets:
        """Return the offsets as they are on disk; they are parsed only if the file has changed."""
        known = self._known
        if known is not None and known.fingerprint == config_files.fingerprint(self._path):
            return known.table
        # Whoever comes meanwhile waits for this parse, or for the end of a write of our own.
        with self._lock:
            found = config_files.fingerprint(self._path)
            if self._known is None or self._known.fingerprint != found:
                self._known = _Known(found, ConsumerOffsets.load(self._path))
            return self._known.table

    def commit(self, commit: OffsetCommit) -> None:
        """Set an offset durably, in one write with the commits of other threads that wait.

        RequestError if there is no room for another group.
        """
        self._commits.do(commit)
        if commit.error is not None:
            raise commit.error

    def _commit_all(self, commits: Sequence[OffsetCommit]) -> None:
        for writer in dict.fromkeys(each.writer for each in commits):
            own = [each for each in commits if each.writer is writer]
            try:
                self._write_all(writer, own)
            except Exception as error:  # noqa: BLE001 - raised by `commit`
                for each in own:
                    each.error = error

    def _write_all(self, writer: StoreWriter, commits: Sequence[OffsetCommit]) -> None:
        """Write the commits of one writer; those that find no room keep their error."""
        with writer.beside("commit an offset") as files:
            table = self.table().copy()
            for each in commits:
                try:
                    require_room(table, each.group, each.topic, writer.settings, writer.root)
                except RequestError as error:
                    each.error = error
                else:
                    table.set(each.group, each.topic, each.queue_id, each.offset)
            if not all(each.error for each in commits):
                self.save(files, table, commits[-1].now_ms)

    def save(self, files: Files, table: ConsumerOffsets, now_ms: int) -> None:
        """Write a table, one version on, durably. The caller holds it: `StoreWriter.beside`.

        The next look does not parse it: nobody else writes before the fingerprint is taken.
        """
        written = table.next_version(now_ms)
        with self._lock:
            config_files.persist_encoded(files, self._path, written.encoded())
            self._known = _Known(config_files.fingerprint(self._path), written)


def consumer_offsets_file(root: Path) -> ConsumerOffsetsFile:
    """Return the consumer offsets of a store; this process has them once.

    Those of the 16 stores that were asked for last are kept.
    """
    return _of_process(root, os.getpid())


@lru_cache(maxsize=_STORES_KEPT)
def _of_process(root: Path, process_id: int) -> ConsumerOffsetsFile:
    # By process: a forked child must not wait for a lock that a thread of its parent held.
    del process_id
    return ConsumerOffsetsFile(root)


def require_room(
    table: ConsumerOffsets, group: str, topic: str, settings: StoreSettings, root: Path
) -> None:
    """Raise RequestError if a group is new to a topic and there are too many already.

    The group of check-back, which clients can't have, does not count.
    """
    if table.has(group, topic):
        return
    count = table.group_count(topic) - table.has(TRANSACTION_GROUP, topic)
    limit = settings.max_groups_per_topic
    if count >= limit:
        message = (
            f"Group {group} is new to topic {topic} in {root}, which has the offsets of {count} "
            f"groups; the limit is {limit}. Nothing was written: commit as a group that the topic "
            f"has, or raise maxConsumerGroupsPerTopic in the broker's configuration."
        )
        raise RequestError(message)
    count = len(table) - sum(table.has(TRANSACTION_GROUP, own) for own in (HALF_TOPIC, OP_TOPIC))
    limit = settings.max_consumer_offsets
    if count >= limit:
        message = (
            f"Group {group} is new to topic {topic}, and {root} has offsets for {count} pairs of "
            f"topic and group; the limit is {limit}. Nothing was written: delete topics that are "
            f"not used any more, or raise maxConsumerOffsets in the broker's configuration."
        )
        raise RequestError(message)


def _key(group: str, topic: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


def _queues(key: str, queues: object, path: Path) -> dict[int, int]:
    """Return the offsets of one key, checked."""
    if _SEPARATOR not in key or not isinstance(queues, dict):
        raise _damaged(path, f"key {key!r} is no topic@group with queues")
    return {_number(queue, path): _number(offset, path) for queue, offset in queues.items()}


def _entry(key: str, queues: Mapping[int, int]) -> str:
    """Return the lines of one key: what json.dumps makes of it two levels deep, only sooner."""
    offsets = sorted((str(queue), offset) for queue, offset in queues.items())
    lines = ",\n\t\t\t".join([f'"{queue}":{offset}' for queue, offset in offsets])
    return f"{_quoted(key)}:{{\n\t\t\t{lines}\n\t\t}}" if lines else f"{_quoted(key)}:{{}}"


def _member(name: str, value: object) -> str:
    """Return the lines of one member of a document."""
    return config_files.render({name: value}).removeprefix("{\n").removesuffix("\n}")


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
    if type(value) is int:  # most are; and True is none
        return value
    try:
        return int(str(value))
    except ValueError as error:
        raise _damaged(path, f"{value!r} is no number") from error


def _damaged(path: Path, what: str) -> CorruptRecordError:
    message = f"{path} is damaged: {what}; restore it from a backup or from {path.name}.bak."
    return CorruptRecordError(message, path)
