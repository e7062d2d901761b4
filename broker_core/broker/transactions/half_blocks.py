"""Half blocks: half messages that hold many messages each.

What a sink prepares is decided as one, so its messages need not be told apart before. As many as
fit are the body of one half message (half.py):

    BODY         records one after another, as `append` takes them: offsets and store time are 0
    properties   TRAN_MSG 01 true 02 PGROUP 01 g 02 UNIQ_KEY 01 k 02 HALF_BLOCK 01 n 02
                 REAL_TOPIC 01 t 02 REAL_QID 01 q 02

n is how many there are; group, key, topic and queue are those of the first. Their commit is that
body with offsets and time filled in, transaction bits 0x8, and as PREPAREDTRANSACTIONOFFSET the
physical offset of the record inside the block, which is unique (unpack.py).

To a broker that does not know blocks, one is a transaction that no producer answers for: Apache's
asks about it and gives it up, as any other. So a body is never larger than such a broker would put
back; a message that is too large for a block is a half message by itself.

Rejected: one half message an append. Tens of megabytes in one record are more than other brokers
take, and leave a large part of a log file blank at its end. (docs/decisions/0011-half-blocks.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.broker.transactions.half import HALF_QUEUE, destination_text, require_room
from broker_core.codec import layout
from broker_core.codec.encode import EncodedRecords, encode, record_sizes
from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.layout import header_dtype
from broker_core.codec.message_batch import Destinations, MessageBatch
from broker_core.codec.properties.text import format_properties, terminated
from broker_core.codec.property_names import (
    HALF_BLOCK,
    HALF_TOPIC,
    PREPARED_BY,
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from broker_core.codec.record import Record, decode_record, encode_record
from broker_core.codec.record_copy import copy_records
from broker_core.codec.spans import Spans, sliding, spans_of
from broker_core.errors import IllegalMessageError
from broker_core.store.batch import PART_BYTES, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.settings import StoreSettings

BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 100_000
_BLOCKS_A_FILE = 4


def block_bytes(settings: StoreSettings) -> int:
    """Return the limit of a block's body: a message any broker takes, a small part of a file."""
    in_file = settings.commit_log_file_bytes // _BLOCKS_A_FILE
    return min(BLOCK_BYTES, settings.max_message_bytes, in_file)


def as_blocks(
    messages: Batch, most_bytes: int, most_rows: int = BLOCK_ROWS, *, attempt: str = ""
) -> Batch:
    """Return half messages that hold encoded messages, in their order; `blocks_of` is its twin.

    A body has at most `most_bytes` bytes and `most_rows` messages. The key of each half message
    begins with `attempt`, or IllegalMessageError is raised. The records of `messages` lie
    one behind the other, as those of `Batch.of_messages` do. It runs for messages that came
    encoded, from another machine, and for those that `blocks_of` leaves to it.
    """
    return Batch.join(
        [
            _blocks(part.records, bounds, attempt)
            if is_block
            else _single(part.records, bounds[0], attempt)
            for part in messages.parts
            for bounds, is_block in _runs(part.records.sizes, most_bytes, most_rows)
        ]
    )


def blocks_of(
    messages: MessageBatch,
    most_bytes: int,
    most_rows: int = BLOCK_ROWS,
    *,
    max_message_bytes: int = layout.MAX_BODY_BYTES,
    attempt: str = "",
) -> Batch:
    """Return half messages that hold messages not encoded yet; `as_blocks` is its twin.

    Each message is encoded where it lies in its block, so its bytes are copied once less. With
    messages too large for a block among them, or more than one part, all are encoded first and
    left to `as_blocks`. IllegalMessageError for a message over a limit.
    """
    runs = list(_runs(record_sizes(messages), most_bytes, most_rows))
    if len(runs) != 1 or not runs[0][1] or messages.size_bytes > PART_BYTES:
        encoded = Batch.of_messages(messages, max_message_bytes=max_message_bytes)
        return as_blocks(encoded, most_bytes, most_rows, attempt=attempt)
    bounds = np.array(runs[0][0])
    firsts, lasts = bounds[:-1], bounds[1:] - 1
    frames = [_frame(_message(messages, row), row, held, attempt) for row, held in _held(bounds)]
    gaps = np.zeros(len(messages) + 1, dtype=np.int64)
    gaps[firsts] = [len(frame.head) for frame in frames]
    # Behind a block comes its tail, then the head of the next: both in one gap.
    gaps[lasts + 1] += [len(frame.tail) for frame in frames]
    records = encode(messages, max_message_bytes=max_message_bytes, gaps=gaps)
    ends = records.starts[lasts] + records.sizes[lasts]
    return _framed(records.buffer, frames, records.starts[firsts], ends)


def _blocks(part: EncodedRecords, bounds: list[int], attempt: str) -> Batch:
    """Return blocks of encoded messages, one between each two bounds."""
    held = _held(np.array(bounds))
    frames = [_frame(_record(part, row), row, count, attempt) for row, count in held]
    heads = np.array([len(frame.head) for frame in frames])
    tails = np.array([len(frame.tail) for frame in frames])
    firsts, lasts = np.array(bounds[:-1]), np.array(bounds[1:]) - 1
    starts = part.starts[firsts]
    lengths = part.starts[lasts] + part.sizes[lasts] - starts
    ends = np.cumsum(heads + lengths + tails) - tails
    bodies = ends - lengths
    buffer = np.empty(int(ends[-1] + tails[-1]), dtype=np.uint8)
    for body, end, start in zip(bodies.tolist(), ends.tolist(), starts.tolist(), strict=True):
        buffer[body:end] = part.buffer[start : start + end - body]
    return _framed(buffer, frames, bodies, ends)


class _Frame(NamedTuple):
    """The bytes before and behind the records of a block; sizes and checksum are still 0."""

    head: bytes
    tail: bytes
    store_time_at: int


def _frame(first: Record, row: int, count: int, attempt: str) -> _Frame:
    """Return the frame of a block of `count` messages; `first` is row `row` of its batch."""
    own = _checked(first, row, attempt)
    # The key says which attempt a block is of (check_back.py), the group whose producers Apache's
    # broker would ask.
    kept = {name: own[name] for name in (PRODUCER_GROUP, UNIQ_KEY) if name in own}
    said = {TRANSACTION_PREPARED: "true", **kept, HALF_BLOCK: str(count)}
    text = format_properties(said) + destination_text(first.topic, first.queue_id)
    require_room(len(text), first.topic, row)
    empty = encode_record(
        Record(
            HALF_TOPIC,
            HALF_QUEUE,
            queue_offset=0,
            physical_offset=0,
            body=b"",
            properties=text,
            born_timestamp=first.born_timestamp,
            born_host=first.born_host,
            store_host=first.store_host,
        )
    )
    # A record with an empty body, cut in two where the body will lie.
    cut = header_dtype(len(first.born_host), len(first.store_host)).itemsize
    return _Frame(empty[:cut], empty[cut:], layout.BORN_HOST + len(first.born_host))


def _framed(
    buffer: NDArray[np.uint8],
    frames: Sequence[_Frame],
    bodies: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Batch:
    """Put frames around bodies; `buffer` has room for each frame right beside its body."""
    for frame, body, end in zip(frames, bodies.tolist(), ends.tolist(), strict=True):
        buffer[body - len(frame.head) : body] = np.frombuffer(frame.head, dtype=np.uint8)
        buffer[end : end + len(frame.tail)] = np.frombuffer(frame.tail, dtype=np.uint8)
    starts = bodies - np.array([len(frame.head) for frame in frames])
    sizes = ends + np.array([len(frame.tail) for frame in frames]) - starts
    # What counts the records was 0 in the frames: it is known only now that they lie in place.
    numbers = sliding(buffer, ">i4")
    numbers[starts + layout.TOTAL_SIZE] = sizes
    numbers[starts + layout.BODY_CRC] = body_crcs(Spans(buffer, bodies, ends - bodies))
    numbers[bodies - (layout.BODY - layout.BODY_LENGTH)] = ends - bodies
    at = np.array([frame.store_time_at for frame in frames])
    to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(frames))
    return Batch.of_copies(EncodedRecords(buffer, starts, sizes.astype(np.int32), at), to_half)


def _held(bounds: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the first row of each block, and how many it holds."""
    return list(zip(bounds[:-1].tolist(), np.diff(bounds).tolist(), strict=True))


def _runs(
    sizes: NDArray[np.int64] | NDArray[np.int32], most_bytes: int, most_rows: int
) -> Iterator[tuple[list[int], bool]]:
    """Yield bounds of rows: of blocks that follow each other (True), or one large message (False).

    Block i of a run holds rows bounds[i] to bounds[i + 1].
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = ends - sizes
    bounds = [0]
    row = 0
    while row < len(sizes):
        limit = int(starts[row]) + most_bytes
        stop = min(row + most_rows, int(np.searchsorted(ends, limit, side="right")))
        if stop == row:  # even one message is too large
            if len(bounds) > 1:
                yield bounds, True
            yield [row, row + 1], False
            bounds = [row + 1]
        else:
            bounds.append(stop)
        row = max(row + 1, stop)
    if len(bounds) > 1:
        yield bounds, True


def _message(messages: MessageBatch, row: int) -> Record:
    """Return what a frame needs to know of one message that is not encoded yet."""
    only = messages.slice(row, row + 1)
    born = only.born_timestamps
    return Record(
        only.topics[int(only.topic_codes[0])],
        int(only.queue_ids[0]),
        queue_offset=0,
        physical_offset=0,
        body=b"",
        properties=only.property_texts[0].as_py(),
        born_timestamp=born if isinstance(born, int) else int(born[0]),
        born_host=only.born_host,
        store_host=only.store_host,
    )


def _record(part: EncodedRecords, row: int) -> Record:
    """Return one encoded message."""
    start = int(part.starts[row])
    raw = part.buffer[start : start + int(part.sizes[row])]
    return decode_record(raw.tobytes(), verify=False)


def _checked(first: Record, row: int, attempt: str) -> Mapping[str, str]:
    """Return the properties of the message that names a half message, if the attempt may have it.

    A block is known by its property: no message of a client gets into the half queue with one.
    """
    own = first.property_map
    odd = [name for name in (HALF_BLOCK, PREPARED_BY) if name in own]
    if odd or not own.get(UNIQ_KEY, "").startswith(attempt):
        what = (
            f"has the property {odd[0]}, which only a broker sets"
            if odd
            else f"has the unique key {own.get(UNIQ_KEY, '')[:64]!r}, which does not begin with "
            f"the attempt {attempt}"
        )
        message = f"Message {row} of this batch for topic '{first.topic}' {what}."
        raise IllegalMessageError(f"{message} Nothing was written.")
    return own


def _single(part: EncodedRecords, row: int, attempt: str) -> Batch:
    """Return a message too large for a block as a half message."""
    only = slice(row, row + 1)
    no_offset = np.zeros(1, dtype=np.int64)
    fields = locate(FrameBatch(part.buffer, part.starts[only], part.sizes[only], no_offset))
    record = _record(part, row)
    _checked(record, row, attempt)
    text = terminated(record.properties) + destination_text(record.topic, record.queue_id)
    require_room(len(text), record.topic, row)
    texts = spans_of(pa.array([text], type=pa.binary()))
    to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, 1)
    return Batch.of_copies(copy_records(fields, to_half, texts, transaction=0), to_half)
