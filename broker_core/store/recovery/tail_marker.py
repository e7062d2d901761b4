"""Tail marker: where the last writer left the end of the store, so that the next can go on at once.

Problem. Embedded writers are separate processes that take the store's lock for each batch. Each has
to know, without reading the store, whether the writer before it finished, and has to finish or take
back what that one did not. RocketMQ's files do not say: its broker holds the lock for life, and
scans the log after a crash, which can leave a batch in part.

Layout. Two slots in the part of the `checkpoint` file that RocketMQ leaves alone, at bytes 2048 and
2560, written in turn, so that a torn write never loses both. Big-endian:

     0  8s   magic "RMQ.TAIL"         72  u64  index_name, 0 if there is no index file
     8  u32  version, 1 or 2          80  40s  index_header, its header as it then was
    12  u32  state                   120  16s  boot, the machine's boot id
    16  u64  generation              136  i64  lock_modified_ns, of the file `lock`
    24  i64  log_end                 144  i64  pid of the writer
    32  i64  last_start                        version 2 only:
    40  i64  last_store_ms           152  i64  dispatched_end
    48  i64  pending_end             160  u32  pending_crc, of the log's [log_end, pending_end)
    56  i64  durable_end             fsynced up to there: log, consume queues and index
    64  i64  log_durable_end         fsynced up to there: the log
         u32  CRC-32 of all bytes before, last

Invariants. The slot with the higher generation counts. Its `state` says what holds:

    APPENDING    a writer is writing records to [log_end, pending_end), or died doing so. Nothing
                 refers to them yet: the next writer takes them back.
    DISPATCHING  all records up to pending_end are in the log; consume queues and index may lag.
                 The next writer puts in what is missing.
    UNDOING      as DISPATCHING, but the batch failed and its writer was told so: the next writer
                 takes it back from index, consume queues and log.
    CLEAN        everything before log_end is in log, consume queues and index, as far as the page
                 cache goes: true until the machine stops.
    CLOSED       as CLEAN, and all of it was fsynced: true for good.
    PENDING      everything before log_end is in the log, everything before dispatched_end also in
                 consume queues and index. [log_end, pending_end) counts if it has pending_crc; else
                 it was not acknowledged, and the next writer takes it back (log_first.py).

In the first three, everything before log_end is in the log, and what lies before dispatched_end is
in queues and index; index_name and index_header are the index's as they were then. Only with
PENDING, and with APPENDING for a quick append that failed, is dispatched_end below log_end. So a
batch is there as a whole or not at all, whenever its writer died.

A marker is believed only if nothing foreign can have happened since: same boot (or CLOSED and no
`abort`), same modification time of `lock`, a whole record at last_start that ends at log_end, and
nothing after it. In every other case recovery looks at the files themselves, so a lost or damaged
marker costs time, never data.

Outline. session.py writes a marker before and after each step of an append, unsynced: three writes
a batch, one for a quick append. shutdown_state.py reads the current one and judges it, plan.py
turns it into a recovery. Apache's broker neither reads nor disturbs it; when it starts it changes
the modification time of `lock`, which makes us scan once.

Version 2 is written only where version 1 can't say it. So a release that knows only version 1 opens
a store that was closed, and takes any other for one with a damaged marker: it scans the log.

Rejected (decisions 0003 and 0019). A log of intentions in a file of its own; trusting file lengths
or the last consume-queue entry; holding the lock for a writer's life; a second marker after a quick
append's write, to say what the CRC says.

The layout is ours; a new one needs a new version number.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

SLOT_OFFSETS = (2048, 2560)
OLD_VERSION, VERSION = 1, 2
NO_RECORD = -1
INDEX_HEADER_BYTES = 40
BOOT_BYTES = 16

_MAGIC = b"RMQ.TAIL"
# The only statements of these layouts in code: version 2 has two more fields than version 1.
_OLD_LAYOUT = struct.Struct(">8sIIQqqqqqqQ40s16sqq")
_LAYOUT = struct.Struct(_OLD_LAYOUT.format + "qI")
_CRC = struct.Struct(">I")
_VERSION = struct.Struct(">8xI")
SLOT_BYTES = _LAYOUT.size + _CRC.size
OLD_SLOT_BYTES = _OLD_LAYOUT.size + _CRC.size
PAGE_START = SLOT_OFFSETS[0]
PAGE_BYTES = SLOT_OFFSETS[1] + SLOT_BYTES - PAGE_START
"""The bytes of a checkpoint file that hold both slots."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class TailState(IntEnum):
    """States of the store that a marker promises; see the module."""

    APPENDING = 1
    DISPATCHING = 2
    CLEAN = 3
    CLOSED = 4
    UNDOING = 5
    PENDING = 6


_STATES = frozenset(TailState)


class TailMarker(NamedTuple):
    """One marker; the module describes the fields, which are in the layout's order.

    A tuple, for one is made for every message that is sent alone.
    """

    state: TailState
    generation: int = 0
    log_end: int = 0
    last_start: int = NO_RECORD
    last_store_ms: int = 0
    pending_end: int = 0
    durable_end: int = 0
    log_durable_end: int = 0
    index_name: int = 0
    index_header: bytes = bytes(INDEX_HEADER_BYTES)
    boot: bytes = bytes(BOOT_BYTES)
    lock_modified_ns: int = 0
    pid: int = 0
    dispatched_end: int = 0
    pending_crc: int = 0

    def encode(self) -> bytes:
        """Return the slot's bytes, in version 1 if it can say what there is to say."""
        if self.state is not TailState.PENDING and self.dispatched_end == self.log_end:
            body = _OLD_LAYOUT.pack(_MAGIC, OLD_VERSION, *self[:-2])
            return (body + _CRC.pack(zlib.crc32(body))).ljust(SLOT_BYTES, b"\0")
        body = _LAYOUT.pack(_MAGIC, VERSION, *self)
        return body + _CRC.pack(zlib.crc32(body))

    @property
    def is_at_rest(self) -> bool:
        """True if no batch was under way."""
        return self.state in (TailState.CLEAN, TailState.CLOSED)

    @property
    def has_pending(self) -> bool:
        """True if acknowledged records may lack their queue entries and index keys."""
        return self.state is TailState.PENDING or self.dispatched_end < self.log_end

    @property
    def end(self) -> int:
        """Where the log ends if what was being written with PENDING counts."""
        return self.pending_end if self.state is TailState.PENDING else self.log_end

    @property
    def slot_offset(self) -> int:
        """The position in the checkpoint file at which this generation is written."""
        return SLOT_OFFSETS[self.generation % len(SLOT_OFFSETS)]


def decode_tail(checkpoint: bytes) -> TailMarker | None:
    """Return the current marker of a checkpoint file; None if no valid one is there."""
    return decode_page(checkpoint[PAGE_START : PAGE_START + PAGE_BYTES])


def decode_page(page: bytes) -> TailMarker | None:
    """Return the current marker by the bytes that hold both slots; None if there is no valid one.

    A slot that is written but not valid makes both worthless: it may have been the newer.
    """
    slots = [page[at - PAGE_START : at - PAGE_START + SLOT_BYTES] for at in SLOT_OFFSETS]
    written = [slot for slot in slots if slot.strip(b"\0")]
    tails = [_decode_slot(slot) for slot in written]
    # One of two slots damaged: the other may be a generation old, and promise too much.
    valid = [tail for tail in tails if tail is not None]
    if not valid or len(valid) < len(written):
        return None
    return max(valid, key=lambda tail: tail.generation)


def boot_id() -> bytes:
    """Return the id of this machine's boot; zeros if unknown, and then no marker is believed."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(BOOT_BYTES)


def _decode_slot(slot: bytes) -> TailMarker | None:
    if len(slot) < SLOT_BYTES or not slot.startswith(_MAGIC):
        return None
    (version,) = _VERSION.unpack_from(slot)
    layout = {OLD_VERSION: _OLD_LAYOUT, VERSION: _LAYOUT}.get(version)
    if layout is None:
        return None
    (crc,) = _CRC.unpack_from(slot, layout.size)
    if zlib.crc32(slot[: layout.size]) != crc:
        return None
    _, _, state, *fields = layout.unpack_from(slot)
    if state not in _STATES:
        return None
    tail = TailMarker(TailState(state), *fields)
    return tail if version == VERSION else tail._replace(dispatched_end=tail.log_end)
