"""Topic removal: deletes a topic's consume queues; its records stay in the log until they expire.

The queues are moved to deleted/ in one rename per kind, so a crash leaves all of them or none, and
are deleted from there; a crash before that leaves work for the next open. Before the rename the
log's end and those of the queues are noted (queue/deletions.py): recovery must not bring the
records back, and a topic of that name made later goes on with the queues' numbers.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store import config_files
from broker_core.store.io.files import Failpoint, make_directory
from broker_core.store.queue.consume_queue import ConsumeQueue, list_queue_ids
from broker_core.store.queue.deletions import DELETIONS, Deletions

if TYPE_CHECKING:
    from broker_core.store.components import StoreComponents
    from broker_core.store.io.files import Files

TRASH = "deleted"
_QUEUE_DIRECTORIES = ("consumequeue", "consumequeue_ext")


def remove_queues(components: StoreComponents, topic: str, *, log_start: int, log_end: int) -> None:
    """Remove all consume queues of a topic, if it has any."""
    topic_directory = components.root / "consumequeue" / topic
    # By the bytes alone: damage is no reason to keep a topic, nor to use a number twice.
    queue_ends = {
        queue_id: ConsumeQueue(topic_directory / str(queue_id)).written_end(may_have_holes=True)
        for queue_id in list_queue_ids(topic_directory)
    }
    # The note before the rename: without it, recovery after a crash would rebuild the queues.
    noted = Deletions.load(components.root).added(
        topic, log_start=log_start, log_end=log_end, queue_ends=queue_ends
    )
    config_files.persist(components.files, components.root / DELETIONS, noted.document())
    # Open descriptors would go on writing to the moved files.
    components.forget()
    for kind in _QUEUE_DIRECTORIES:
        directory = components.root / kind / topic
        if directory.is_dir():
            trash = components.root / TRASH
            make_directory(components.files, trash)
            # A digest, not the name: with more before it, a long one would be no file name.
            name = blake2b(topic.encode(), digest_size=16).hexdigest()
            components.files.rename(directory, trash / f"{kind}-{log_end}-{name}")
            components.files.fsync_dir(directory.parent)
            components.files.reach(Failpoint.TOPIC_MOVED_AWAY)
    empty_trash(components.files, components.root)


def empty_trash(files: Files, root: Path) -> None:
    """Delete what was moved away, also what a process that died left there."""
    if (root / TRASH).is_dir():
        _delete_tree(files, root / TRASH)


def _delete_tree(files: Files, directory: Path) -> None:
    for path in list(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():
            _delete_tree(files, path)
        else:
            files.unlink(path)
    files.rmdir(directory)
