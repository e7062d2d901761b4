"""A process that appends both ways and notes each promise, until it is killed or has done enough.

Another one takes over where it stopped: bodies follow from queue and offset, so nothing else has to
be handed on.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.errors import StorageError
from broker_core.store.few_records import FewRecords
from broker_core.store.io.files import Failpoint
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit.batches import QuickFiles
from tests.kit.faulty_files import Fault, FaultyFiles, kill_self
from tests.kit.promises import QUEUES, TOPIC, Promises, body_of, key_of

SETTINGS = StoreSettings.load(
    {
        "mappedFileSizeCommitLog": 1 << 15,
        "mappedFileSizeConsumeQueue": 1000,
        "maxHashSlotNum": 100,
        "maxIndexNum": 500,
    }
)
FAULTS = [Fault.FAIL_ONCE, Fault.HALF, Fault.SHORT]


@dataclass(frozen=True)
class Orders:
    """What a writer does: how many appends, by which chances, where it kills itself."""

    root: Path
    promises: Path
    appends: int
    seed: int = 0
    stop_at: tuple[Failpoint, int] | None = None
    has_faults: bool = False


def context() -> ForkServerContext:
    """Where children come from."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.kit.promising_writer", "tests.kit.demanding_reader"])
    return found


def start(orders: Orders) -> ForkServerProcess:
    """Start a writer."""
    child = context().Process(target=write, args=(orders,), daemon=True)
    child.start()
    return child


def create(root: Path) -> None:
    """A store with the promised topic, and a message in each queue."""
    writer = StoreWriter.open(root, SETTINGS, create=True, files=QuickFiles())
    with EmbeddedBroker(str(root), StoreReader(root, writer.settings), writer) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        writer.append(messages_at([(queue_id, 0) for queue_id in range(QUEUES)]))


def messages_at(places: list[tuple[int, int]]) -> MessageBatch:
    """The messages of some places, in this order."""
    return MessageBatch(
        topics=[TOPIC],
        topic_codes=np.zeros(len(places), dtype=np.int32),
        queue_ids=np.array([queue_id for queue_id, _ in places], dtype=np.int32),
        bodies=pa.array([body_of(*place) for place in places], type=pa.binary()),
        properties=join_properties(
            [("KEYS", pa.array([key_of(*place) for place in places]))], len(places)
        ),
        born_timestamps=1_700_000_000_000,
    )


def write(orders: Orders) -> None:
    """Do as ordered, from where the store ends."""
    promises = Promises(orders.promises)
    files = FaultyFiles(stop_at=orders.stop_at, on_stop=kill_self)
    options = SessionOptions(lock_wait_s=60)
    writer = StoreWriter.open(orders.root, SETTINGS, files=files, options=options)
    reader = StoreReader(orders.root, SETTINGS)
    ends = [reader.queue_range(TOPIC, queue_id)[1] for queue_id in range(QUEUES)]
    reader.close()
    chance = Random(orders.seed)
    for _ in range(orders.appends):
        if orders.has_faults and chance.random() < 0.2:
            files.strike(chance.choice(FAULTS), chance.randint(1, 8))
        try:
            _append(writer, ends, promises, chance)
        except StorageError:
            files.heal()
    files.heal()
    writer.close()


def _append(writer: StoreWriter, ends: list[int], promises: Promises, chance: Random) -> None:
    """Append a few messages one way or the other, or do what comes between; promise them."""
    what = chance.random()
    if what < 0.03:
        return writer.flush()
    if what < 0.06:
        with writer.turn("look"):
            return None
    after, places = list(ends), []
    for _ in range(chance.choice([1, 1, 1, 3, 9])):
        queue_id = chance.randrange(QUEUES)
        places.append((queue_id, after[queue_id]))
        after[queue_id] += 1
    batch = writer.as_batch(messages_at(places))
    few = FewRecords.of(batch) if what > 0.15 else None
    flush = "sync" if what > 0.9 else "async"
    if few is None:
        offsets = writer.append(batch, flush=flush, guard=lambda: None).queue_offsets.tolist()
    else:
        offsets, _, _ = writer.append_few(few, flush=flush)
    assert offsets == [offset for _, offset in places]
    ends[:] = after
    for queue_id, end in enumerate(after):
        promises.note(queue_id, end)
    return None
