"""Progress of check-back: how far its rounds came in the half queue and in the op queue.

It lies in config/consumerOffset.json, as the offsets of the group CID_RMQ_SYS_TRANS, where Apache's
broker keeps it too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.broker.offsets import CONSUMER_OFFSETS_FILE, consumer_offsets_file
from broker_core.broker.transactions.check_back_plan import CheckBackProgress
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.op import OP_QUEUE
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP

if TYPE_CHECKING:
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter

log = logging.getLogger(__name__)


def read_progress(reader: StoreReader) -> CheckBackProgress:
    """Return how far check-back came, ours or Apache's; 0 where it never ran.

    A progress behind the end of its queue is damage: it is told and not believed, for everything
    before it would count as settled.
    """
    saved = _saved(reader)
    is_half = _is_believable(reader, HALF_TOPIC, HALF_QUEUE, saved.half_offset)
    is_op = _is_believable(reader, OP_TOPIC, OP_QUEUE, saved.op_offset)
    return saved if is_half and is_op else CheckBackProgress(0, 0)


def heal_progress(reader: StoreReader, writer: StoreWriter, now_ms: int) -> None:
    """Write a progress that is not believed as 0: queues that grow must not make it true."""
    if read_progress(reader) == _saved(reader):
        return
    with writer.turn("heal the progress of check-back"):
        reader.refresh()
        found = read_progress(reader)
        if found != _saved(reader):
            save_progress(reader, writer, found, now_ms)


def _saved(reader: StoreReader) -> CheckBackProgress:
    """Return the progress as the file has it."""
    offsets = consumer_offsets_file(reader.root).table()
    return CheckBackProgress(
        offsets.of(TRANSACTION_GROUP, HALF_TOPIC).get(HALF_QUEUE, 0),
        offsets.of(TRANSACTION_GROUP, OP_TOPIC).get(OP_QUEUE, 0),
    )


def save_progress(
    reader: StoreReader, writer: StoreWriter, reached: CheckBackProgress, now_ms: int
) -> None:
    """Write how far a round came, unless another process came further."""
    with writer.beside("save the progress of check-back") as files:
        known = read_progress(reader)
        half_offset = max(known.half_offset, reached.half_offset)
        op_offset = max(known.op_offset, reached.op_offset)
        file = consumer_offsets_file(reader.root)
        offsets = file.table().put(TRANSACTION_GROUP, HALF_TOPIC, HALF_QUEUE, half_offset)
        offsets = offsets.put(TRANSACTION_GROUP, OP_TOPIC, OP_QUEUE, op_offset)
        file.save(files, offsets, now_ms)


def _is_believable(reader: StoreReader, topic: str, queue_id: int, offset: int) -> bool:
    """Tell whether a queue has an offset of check-back."""
    end = reader.queue_range(topic, queue_id)[1]
    if 0 <= offset <= end:
        return True
    log.warning(
        "event=check_back_progress_ignored topic=%s offset=%d queue_end=%d file=%s",
        topic,
        offset,
        end,
        CONSUMER_OFFSETS_FILE,
    )
    return False
