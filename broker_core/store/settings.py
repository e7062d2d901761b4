"""Store settings: file sizes and whatever else a broker's configuration decides about a store.

Names from outside are Apache's (`mappedFileSizeCommitLog`, ...), from a `broker.conf` (see
broker_conf.py) or a mapping. Names that mean nothing to a store are ignored, since a broker.conf
has hundreds. An existing store decides its file sizes itself: they are read off its files, and a
configuration that says otherwise is an error. Only a new store takes them from the configuration,
and remembers them until it has files (settings_file.py), as it does its broker's name, which no
file says.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from broker_core.codec.hosts import pack_host
from broker_core.errors import ConfigError, CorruptRecordError
from broker_core.store.broker_conf import parse_properties_file
from broker_core.store.index.file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    IndexFile,
    file_size,
    list_index_files,
)
from broker_core.store.io.segments import Segment, list_segments, unreadable
from broker_core.store.queue.consume_queue import ENTRY_BYTES
from broker_core.store.settings_file import FILE as REMEMBERED_FILE
from broker_core.store.settings_file import load_settings_file
from broker_core.types import DEFAULT_BROKER_NAME

FlushMode = Literal["async", "sync"]
MAX_FILE_BYTES = (1 << 31) - 1
"""Positions within a file are 32-bit integers in Apache's code."""
MIN_COMMIT_LOG_FILE_BYTES = 1024
_FLUSH_TYPES: Mapping[str, FlushMode] = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delay of level 1, 2, ... in milliseconds; ValueError if the text is no list.

    >>> parse_delay_levels("1s 5m 2h")
    (1000, 300000, 7200000)
    """
    return tuple(int(level[:-1]) * _unit_ms(level[-1]) for level in text.split())


def _unit_ms(unit: str) -> int:
    if unit not in _UNITS_MS:
        message = f"unknown unit {unit!r}"
        raise ValueError(message)
    return _UNITS_MS[unit]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of one store; the defaults are Apache's, where it has such a setting.

    `given` holds the Apache names that a configuration set, so that only those are compared with
    the files of a store that exists.
    """

    commit_log_file_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 6_000_000
    consume_queue_ext_file_bytes: int = 48 << 20
    index_slots: int = DEFAULT_SLOTS
    index_entries: int = DEFAULT_ENTRIES
    index_enabled: bool = True
    flush: FlushMode = "async"
    max_message_bytes: int = 4 << 20
    append_property_crc: bool = False
    broker_name: str = DEFAULT_BROKER_NAME
    cluster_name: str = "DefaultCluster"
    broker_ip: str = "127.0.0.1"
    listen_port: int = 10911
    default_topic_queues: int = 8
    max_groups_per_topic: int = 1000
    max_consumer_offsets: int = 100_000
    delay_levels_ms: tuple[int, ...] = parse_delay_levels(_DEFAULT_DELAY_LEVELS)
    transaction_timeout_ms: int = 6_000
    transaction_check_max: int = 15
    transaction_check_interval_ms: int = 30_000
    transaction_batch_timeout_ms: int = 259_200_000
    batch_decision_reserved_hours: int = 720
    batch_decision_carry_max: int = 100_000
    file_reserved_hours: int = 72
    delete_when: str = "04"
    disk_max_used_ratio: int = 75
    disk_clean_forcibly_ratio: int = 85
    disk_warning_ratio: int = 90
    delete_file_batch_max: int = 10
    clean_file_forcibly: bool = True
    store_path_root: str = ""
    store_path_commit_log: str = ""
    given: frozenset[str] = frozenset()

    @classmethod
    def load(cls, config: str | os.PathLike[str] | Mapping[str, object] | None) -> StoreSettings:
        """Return the settings of a broker.conf, of a mapping with its names, or the defaults.

        ConfigError names the setting that is malformed.
        """
        if config is None:
            return cls()
        if isinstance(config, Mapping):
            texts = {str(name): _as_text(value) for name, value in config.items()}
            return cls._parsed(texts, "config=")
        path = Path(config)
        try:
            texts = parse_properties_file(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            message = f"Can't read configuration {path}: {error}; give the path of a broker.conf."
            raise ConfigError(message) from error
        return cls._parsed(texts, str(path))

    @classmethod
    def _parsed(cls, texts: Mapping[str, str], origin: str) -> StoreSettings:
        values: dict[str, Any] = {}
        for name, option in _OPTIONS.items():
            if name not in texts:
                continue
            try:
                values[option.attribute] = option.parse(texts[name].strip())
            except ValueError as error:
                message = (
                    f"{name} in {origin} is {texts[name]!r}, expected {option.expected} "
                    f"(example: {name}={option.example})."
                )
                raise ConfigError(message) from error
        return cls(**values, given=frozenset(name for name in _OPTIONS if name in texts))

    @property
    def store_host(self) -> bytes:
        """The store host of new records, as they carry it."""
        return pack_host(self.broker_ip, self.listen_port)

    @property
    def delay_levels_s(self) -> tuple[int, ...]:
        """The delay of each level in seconds."""
        return tuple(delay_ms // 1000 for delay_ms in self.delay_levels_ms)

    @property
    def index_file_bytes(self) -> int:
        """The length of an index file."""
        return file_size(self.index_slots, self.index_entries)

    def commit_log_directories(self, root: Path) -> tuple[Path, ...]:
        """Return where a store's commit log lies: one directory, or several that share its files.

        A path below the configuration's own root is moved below `root`, so that a copied store
        opens with the configuration it was written with.
        """
        paths = [path.strip() for path in self.store_path_commit_log.split(",") if path.strip()]
        if not paths:
            return (root / "commitlog",)
        return tuple(self._rebased(Path(path), root) for path in paths)

    def _rebased(self, path: Path, root: Path) -> Path:
        if self.store_path_root and path.is_relative_to(self.store_path_root):
            return root / path.relative_to(self.store_path_root)
        return path if path.is_absolute() else root / path

    def with_remembered(self, root: Path) -> StoreSettings:
        """Return these settings with what the store at `root` remembers, where nothing was given.

        CorruptRecordError if a remembered value can't be parsed.
        """
        texts = load_settings_file(root)
        values: dict[str, Any] = {}
        for name in texts.keys() & REMEMBERED - self.given:
            option = _OPTIONS[name]
            try:
                values[option.attribute] = option.parse(texts[name])
            except ValueError as error:
                path = root / REMEMBERED_FILE
                message = (
                    f"{path} is damaged: {name} is {texts[name]!r}, expected {option.expected}; "
                    f"restore it from a backup, or delete it and give the settings with config=."
                )
                raise CorruptRecordError(message, path) from error
        return replace(self, **values)

    def to_remember(self) -> dict[str, str]:
        """Return the settings that a store should remember: those in REMEMBERED that were given."""
        names = sorted(self.given & REMEMBERED)
        return {name: str(getattr(self, _OPTIONS[name].attribute)) for name in names}

    def agreeing_with(self, root: Path) -> StoreSettings:
        """Return these settings with the file sizes of the store at `root`.

        Sizes come from its files and, where it has none, from what it remembers. ConfigError if the
        configuration gave another size than the files have.
        """
        found: dict[str, int] = {}
        log_files = list_segments(*self.commit_log_directories(root))
        if log_files:
            found["mappedFileSizeCommitLog"] = log_files[0].size
        queue_file = _any_segment(root / "consumequeue")
        if queue_file:
            found["mappedFileSizeConsumeQueue"] = queue_file.size
        ext_file = _any_segment(root / "consumequeue_ext")
        if ext_file:
            found["mappedFileSizeConsumeQueueExt"] = ext_file.size
        found |= self._index_sizes(root)
        for name in sorted(found.keys() & self.given):
            wanted = getattr(self, _OPTIONS[name].attribute)
            if wanted != found[name]:
                message = (
                    f"The configuration says {name}={wanted}, but the files in {root} have "
                    f"{found[name]}: leave it out, or give the value the store was written with."
                )
                raise ConfigError(message)
        changes: dict[str, Any] = {_OPTIONS[name].attribute: found[name] for name in found}
        return replace(self.with_remembered(root), **changes)

    def _index_sizes(self, root: Path) -> dict[str, int]:
        """Slots and entries of the store's index files.

        The newest file that has entries is asked, and one without if none has; CorruptRecordError
        if none can tell. Where the configuration gave sizes that fit the file's length they are
        taken as right.
        """
        damage: CorruptRecordError | None = None
        empty: dict[str, int] = {}
        for path in reversed(list_index_files(root / "index")):
            length = _length(path)
            if {"maxHashSlotNum", "maxIndexNum"} <= self.given and self.index_file_bytes == length:
                return {"maxHashSlotNum": self.index_slots, "maxIndexNum": self.index_entries}
            try:
                found = IndexFile(path)
                sizes = {"maxHashSlotNum": found.slots, "maxIndexNum": found.capacity}
            except FileNotFoundError:
                continue
            except CorruptRecordError as error:
                damage = damage or error
                continue
            if found.header.entry_count > 1:
                return sizes
            empty = sizes
        if damage is not None and not empty:
            raise damage
        return empty


class _Option(NamedTuple):
    """One setting: our attribute, how its text is read, and what to say when it can't be."""

    attribute: str
    parse: Callable[[str], Any]
    expected: str
    example: str


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _within(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            message = f"{value} is not within {low} to {high}"
            raise ValueError(message)
        return value

    return parse


def _entry_multiple(text: str) -> int:
    # Rounded up to whole entries, as Apache's broker does.
    value = _within(1, MAX_FILE_BYTES - ENTRY_BYTES)(text)
    return -(-value // ENTRY_BYTES) * ENTRY_BYTES


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        message = f"{text!r} is neither true nor false"
        raise ValueError(message)
    return text.lower() == "true"


def _flush_type(text: str) -> FlushMode:
    try:
        return _FLUSH_TYPES[text.upper()]
    except KeyError as error:
        raise ValueError(text) from error


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _text(text: str) -> str:
    return text


def _bytes(attribute: str, default: int, low: int = 1) -> _Option:
    return _Option(
        attribute,
        _within(low, MAX_FILE_BYTES),
        f"bytes from {low} to {MAX_FILE_BYTES}",
        f"{default}",
    )


def _number(attribute: str, low: int, high: int, default: int) -> _Option:
    return _Option(attribute, _within(low, high), f"a number from {low} to {high}", str(default))


def _boolean(attribute: str) -> _Option:
    return _Option(attribute, _switch, "true or false", "true")


_OPTIONS: Mapping[str, _Option] = {
    "mappedFileSizeCommitLog": _bytes(
        "commit_log_file_bytes", 1 << 30, low=MIN_COMMIT_LOG_FILE_BYTES
    ),
    "mappedFileSizeConsumeQueue": _Option(
        "consume_queue_file_bytes", _entry_multiple, "bytes, a multiple of 20", "6000000"
    ),
    "mappedFileSizeConsumeQueueExt": _bytes("consume_queue_ext_file_bytes", 48 << 20, low=64),
    "maxHashSlotNum": _number("index_slots", 1, 1 << 28, DEFAULT_SLOTS),
    "maxIndexNum": _number("index_entries", 2, 1 << 26, DEFAULT_ENTRIES),
    "messageIndexEnable": _boolean("index_enabled"),
    "flushDiskType": _Option("flush", _flush_type, "ASYNC_FLUSH or SYNC_FLUSH", "ASYNC_FLUSH"),
    "maxMessageSize": _bytes("max_message_bytes", 4 << 20),
    "enabledAppendPropCRC": _boolean("append_property_crc"),
    "brokerName": _Option("broker_name", _text, "a name", DEFAULT_BROKER_NAME),
    "brokerClusterName": _Option("cluster_name", _text, "a name", "DefaultCluster"),
    "brokerIP1": _Option("broker_ip", _address, "an IP address", "127.0.0.1"),
    "listenPort": _number("listen_port", 0, 65535, 10911),
    "defaultTopicQueueNums": _number("default_topic_queues", 1, 65536, 8),
    "maxConsumerGroupsPerTopic": _number("max_groups_per_topic", 0, 1 << 31, 1000),
    "maxConsumerOffsets": _number("max_consumer_offsets", 0, 1 << 31, 100_000),
    "messageDelayLevel": _Option(
        "delay_levels_ms", parse_delay_levels, "delays with units", "1s 5s 10s"
    ),
    "transactionTimeOut": _number("transaction_timeout_ms", 0, 1 << 40, 6_000),
    "transactionCheckMax": _number("transaction_check_max", 0, 1 << 31, 15),
    "transactionCheckInterval": _number("transaction_check_interval_ms", 1, 1 << 40, 30_000),
    "transactionBatchTimeOut": _number("transaction_batch_timeout_ms", 0, 1 << 40, 259_200_000),
    "batchDecisionReservedTime": _number("batch_decision_reserved_hours", 0, 1 << 31, 720),
    "batchDecisionCarryMax": _number("batch_decision_carry_max", 0, 1 << 31, 100_000),
    "fileReservedTime": _number("file_reserved_hours", 0, 1 << 31, 72),
    "deleteWhen": _Option("delete_when", _text, "hours of the day", "04"),
    "diskMaxUsedSpaceRatio": _number("disk_max_used_ratio", 1, 100, 75),
    "diskSpaceCleanForciblyRatio": _number("disk_clean_forcibly_ratio", 1, 100, 85),
    "diskSpaceWarningLevelRatio": _number("disk_warning_ratio", 1, 100, 90),
    "deleteFileBatchMax": _number("delete_file_batch_max", 1, 1 << 31, 10),
    "cleanFileForciblyEnable": _boolean("clean_file_forcibly"),
    "storePathRootDir": _Option("store_path_root", _text, "a path", "/data/store"),
    "storePathCommitLog": _Option(
        "store_path_commit_log", _text, "paths, comma-separated", "/data/store/commitlog"
    ),
}

KNOWN_NAMES = frozenset(_OPTIONS)
"""The Apache names that mean something to a store."""
REMEMBERED = frozenset(
    {
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "mappedFileSizeConsumeQueueExt",
        "maxHashSlotNum",
        "maxIndexNum",
        "brokerName",
    }
)
"""The settings that belong to a store, not to a process that opens it."""


def _any_segment(directory: Path) -> Segment | None:
    """Return any queue's first file below a directory of TOPIC/QUEUE directories."""
    try:
        for topic in directory.iterdir():
            if not topic.is_dir():
                continue
            for queue in topic.iterdir():
                found = list_segments(queue)
                if found:
                    return found[0]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(directory, error) from error
    return None


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
