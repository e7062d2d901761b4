"""Checkpoint: up to which store time each kind of file is known to be on disk.

A file of 4096 bytes of which the first 48 are used, big-endian:

     0 int64 physic_msg_timestamp     store time of the last record in a fully flushed commit log
     8 int64 logics_msg_timestamp     store time of the last record in a flushed consume queue
    16 int64 index_msg_timestamp      end time of the last index file that was filled and flushed
    24 int64 master_flushed_offset    slaves only
    32 int64 confirm_physical_offset  start of the last valid record that recovery found
    40 int64 logics_physical_offset   log offset that flushed consume queues have reached (5.5)

Written after the flush that it records, never before; 4.9 knows the first 24 bytes, 5.x before
5.5 the first 40, and all leave the rest of the file alone. Not checksummed and not needed to read:
recovery uses it to choose where to begin, and a value that is too old only makes it work longer.
The layout is RocketMQ's; changing it needs a decision record and new golden files.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from broker_core.errors import CorruptRecordError
from broker_core.store.io.segments import unreadable

FILE_SIZE = 4096
LAYOUT = struct.Struct(">6q")  # the only statement of this layout in code
# Recovery goes back this far from the times, since files are flushed one after the other.
SAFETY_MS = 3000
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint file's fields; all zeros when nothing was ever flushed."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Checkpoint:
        """Decode the fields; those that a shorter file (an older release's) lacks are zero.

        >>> Checkpoint.decode(bytes(4096)) == Checkpoint()
        True
        """
        return cls(*LAYOUT.unpack(bytes(data[: LAYOUT.size]).ljust(LAYOUT.size, b"\0")))

    def encode(self) -> bytes:
        """Return the first 48 bytes of the file."""
        return LAYOUT.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        )

    @property
    def min_timestamp_ms(self) -> int:
        """The store time before which everything is in the flushed log and consume queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the file; a missing or empty one is a store that never flushed.

    Raise CorruptRecordError for a length that no release writes, or a negative time.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Checkpoint()
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) % 8:
        message = (
            f"Checkpoint {path} is {len(data)} bytes long, expected {FILE_SIZE}; delete it to let "
            f"the next writer recover from the log alone."
        )
        raise CorruptRecordError(message, path)
    checkpoint = Checkpoint.decode(data)
    # Offsets may be -1 ("not known") in files of Apache's broker; times never are.
    negative = [name for name in _TIMES if getattr(checkpoint, name) < 0]
    if negative:
        name = negative[0]
        message = (
            f"Checkpoint {path} has {name} = {getattr(checkpoint, name)}, expected 0 or more; "
            f"delete it to let the next writer recover from the log alone."
        )
        raise CorruptRecordError(message, path)
    return checkpoint
