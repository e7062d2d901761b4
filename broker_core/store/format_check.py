"""Format check: tells stores from other directories, and refuses formats that can't be read here.

A store is a directory with a commit log, or with the files that a broker makes when it first
starts. Formats that RocketMQ can use instead (DLedger, RocksDB, batch consume queues) are
recognised by files that only they leave, and refused by name: a reader that did not know them would
find an empty store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from broker_core.errors import (
    CorruptRecordError,
    FormatVersionError,
    StorageError,
    StoreNotFoundError,
)
from broker_core.store import config_files
from broker_core.store.io.files import is_zero
from broker_core.store.io.segments import list_directories, list_names, list_segments
from broker_core.store.queue.consume_queue import list_queues

_BATCH_QUEUES = "batchconsumequeue"
_SIGNS_OF_A_STORE = ("commitlog", "consumequeue", "checkpoint")
# Directories of the RocksDB variant of config/*.json. `rocksdbstore` and `compaction` in the root
# are made by every 5.5 broker and mean nothing.
_ROCKSDB_CONFIG = ("rdb", "topics", "subscriptionGroups", "consumerOffsets")


def require_store(root: Path, log_directories: Iterable[Path]) -> None:
    """Raise unless a store that we can read lies at `root`.

    StoreNotFoundError if there is none, FormatVersionError if it is of another format. Nothing is
    created, and nothing beyond a few names is looked at.
    """
    if not root.exists():
        message = (
            f"There is no store at {root}: no such directory. Check the path, or make a store with "
            f"mode='rw' and create=True (--create-store)."
        )
        raise StoreNotFoundError(message)
    if not root.is_dir():
        message = f"{root} is a file, not a store: give the directory that holds commitlog/."
        raise StoreNotFoundError(message)
    names = list_names(root)
    _refuse_dledger(root, names)
    if not names.intersection(_SIGNS_OF_A_STORE) and not any(map(list_names, log_directories)):
        message = (
            f"{root} is not a store: it has no commitlog directory and no checkpoint. Give the "
            f"storePathRootDir of a broker, or make a store with mode='rw' and create=True "
            f"(--create-store)."
        )
        raise StoreNotFoundError(message)
    _refuse_rocksdb(root)


def require_log(root: Path, log_directories: Collection[Path]) -> None:
    """Raise CorruptRecordError if queues hold messages and there is not one file of the log.

    It is lost, or lies elsewhere. A writer, as RocketMQ does, would drop the queues and begin anew.
    """
    if any(map(list_names, log_directories)):
        return
    for topic, queue_id in list_queues(root / "consumequeue"):
        segments = list_segments(root / "consumequeue" / topic / str(queue_id))
        if any(not is_zero(segment.path, 0) for segment in segments):
            message = (
                f"The store at {root} has messages in queue {topic}/{queue_id}, but no commit log "
                f"in {', '.join(map(str, log_directories))}. Give the storePathCommitLog of its "
                f"broker with config=, or restore the files."
            )
            raise CorruptRecordError(message, root)


def _refuse_dledger(root: Path, names: set[str]) -> None:
    found = sorted(name for name in names if name.startswith("dledger-"))
    if found:
        message = (
            f"The store at {root} is a DLedger store ({found[0]}), whose commit log has another "
            f"format. Read it through its brokers, with rocketmq://."
        )
        raise FormatVersionError(message)


def _refuse_rocksdb(root: Path) -> None:
    queues = list_names(root / "consumequeue")
    if "CURRENT" in queues or any(name.endswith(".sst") for name in queues):
        message = (
            f"The store at {root} keeps its consume queues in RocksDB (storeType=defaultRocksDB), "
            f"which is not supported. Read it through its broker, with rocketmq://."
        )
        raise FormatVersionError(message)
    for name in list_names(root / "config").intersection(_ROCKSDB_CONFIG):
        if list_names(root / "config" / name):
            message = (
                f"The store at {root} keeps its configuration in RocksDB (config/{name}), which "
                f"is not supported. Read it through its broker, with rocketmq://."
            )
            raise FormatVersionError(message)


def batch_queue_topics(root: Path) -> set[str]:
    """Return the topics that have batch consume queues."""
    return list_names(f"{root}/{_BATCH_QUEUES}")


def batch_topics(root: Path) -> set[str]:
    """Return the topics that have batch consume queues, or are configured to get them.

    Their records never belong in an ordinary consume queue. A configuration that can't be read
    tells nothing here; its own reader reports it.
    """
    try:
        table = config_files.load(root / "config" / "topics.json").get("topicConfigTable")
    except CorruptRecordError:
        table = None
    rows = table.items() if isinstance(table, dict) else ()
    configured = {
        topic for topic, row in rows if isinstance(row, dict) and _is_batch(row.get("attributes"))
    }
    return configured | batch_queue_topics(root)


def batch_queue_ids(root: Path, topic: str) -> list[int]:
    """Return the batch consume queues of a topic, sorted."""
    names = [path.name for path in list_directories(root / _BATCH_QUEUES / topic)]
    return sorted(int(name) for name in names if name.isdecimal())


def _is_batch(attributes: object) -> bool:
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"


def batch_recovery_error(root: Path, topics: Iterable[str]) -> FormatVersionError:
    """Return the error for a store that only a RocketMQ broker can recover."""
    message = (
        f"The store at {root} was not closed, and its topics {', '.join(sorted(topics))} have "
        f"batch consume queues (queue.type=BatchCQ), which we can't recover. Start and stop its "
        f"broker once, or open it with mode='r'."
    )
    return FormatVersionError(message)


def batch_queue_error(topic: str) -> StorageError:
    """Return the error for a topic whose queues have a format that we do not read."""
    message = (
        f"Topic {topic} has batch consume queues (queue.type=BatchCQ), which are not supported. "
        f"Read it through its broker, with rocketmq://."
    )
    return FormatVersionError(message)
