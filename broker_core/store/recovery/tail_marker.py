"""Tail marker: where the last writer left the end of the store, so that the next can go on at once.

Problem. Embedded writers are separate processes that take the store's lock for each batch. Each has
to know, without reading the store, whether the writer before it finished, and has to finish or take
back what that one did not. RocketMQ's files do not say: its broker holds the lock for life, and
scans the log after a crash, which can leave a batch in part.

Layout. Two slots in the part of the `checkpoint` file that RocketMQ leaves alone, at bytes 2048 and
2560, written in turn, so that a torn write never loses both. Big-endian:

     0  8s   magic "RMQ.TAIL"         72  u64  index_name, 0 if there is no index file
     8  u32  version, 1               80  40s  index_header, its header as it then was
    12  u32  state                   120  16s  boot, the machine's boot id
    16  u64  generation              136  i64  lock_modified_ns, of the file `lock`
    24  i64  log_end                 144  i64  pid of the writer
    32  i64  last_start              152  u32  CRC-32 of all bytes before
    40  i64  last_store_ms
    48  i64  pending_end
    56  i64  durable_end             fsynced up to there: log, consume queues and index
    64  i64  log_durable_end         fsynced up to there: the log

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

In the first three, everything before log_end is in place, and index_name and index_header are the
index's as they were then. So a batch is there as a whole or not at all, whenever its writer died.

A marker is believed only if nothing foreign can have happened since: same boot (or CLOSED and no
`abort`), same modification time of `lock`, a whole record at last_start that ends at log_end, and
nothing after it. In every other case recovery looks at the files themselves, so a lost or damaged
marker costs time, never data.

Outline. session.py writes a marker before and after each step of an append, unsynced: three writes
of 156 bytes a batch. shutdown_state.py reads the current one and judges it, plan.py turns it into a
recovery. Apache's broker neither reads nor disturbs it; when it starts it changes the modification
time of `lock`, which makes us scan once.

Rejected (decision 0003). A log of intentions in a file of its own; trusting file lengths or the
last consume-queue entry; holding the lock for a writer's life.

The layout is ours; a new one needs a new version number.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SLOT_OFFSETS = (2048, 2560)
VERSION = 1
NO_RECORD = -1
INDEX_HEADER_BYTES = 40
BOOT_BYTES = 16

_MAGIC = b"RMQ.TAIL"
_LAYOUT = struct.Struct(">8sIIQqqqqqqQ40s16sqq")  # the only statement of this layout in code
_CRC = struct.Struct(">I")
SLOT_BYTES = _LAYOUT.size + _CRC.size
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class TailState(IntEnum):
    """States of the store that a marker promises; see the module."""

    APPENDING = 1
    DISPATCHING = 2
    CLEAN = 3
    CLOSED = 4
    UNDOING = 5


@dataclass(frozen=True, slots=True)
class TailMarker:
    """One marker; the module describes the fields."""

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

    def encode(self) -> bytes:
        """Return the slot's 156 bytes."""
        body = _LAYOUT.pack(
            _MAGIC,
            VERSION,
            self.state,
            self.generation,
            self.log_end,
            self.last_start,
            self.last_store_ms,
            self.pending_end,
            self.durable_end,
            self.log_durable_end,
            self.index_name,
            self.index_header,
            self.boot,
            self.lock_modified_ns,
            self.pid,
        )
        return body + _CRC.pack(zlib.crc32(body))

    @property
    def is_at_rest(self) -> bool:
        """True if no batch was under way."""
        return self.state in (TailState.CLEAN, TailState.CLOSED)

    @property
    def slot_offset(self) -> int:
        """The position in the checkpoint file at which this generation is written."""
        return SLOT_OFFSETS[self.generation % len(SLOT_OFFSETS)]


def decode_tail(checkpoint: bytes) -> TailMarker | None:
    """Return the current marker of a checkpoint file; None if no valid one is there.

    A slot that is written but not valid makes both worthless: it may have been the newer.
    """
    slots = [checkpoint[offset : offset + SLOT_BYTES] for offset in SLOT_OFFSETS]
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
    (crc,) = _CRC.unpack_from(slot, _LAYOUT.size)
    if zlib.crc32(slot[: _LAYOUT.size]) != crc:
        return None
    _, version, state, *fields = _LAYOUT.unpack_from(slot)
    if version != VERSION or state not in set(TailState):
        return None
    return TailMarker(TailState(state), *fields)
