"""Index file: finds records by topic and key.

One hash table a file, named by its creation time (17 digits, local time), big-endian:

    0          40                   40 + 4 * H                                40 + 4 * H + 20 * N
    | header   | H slots, int32     | N entries, 20 bytes each, number 0 unused |

    header                            entry
     0 int64 begin_timestamp           0 int32 key_hash
     8 int64 end_timestamp             4 int64 physical_offset
    16 int64 begin_physical_offset    12 int32 seconds      after begin_timestamp, rounded down
    24 int64 end_physical_offset      16 int32 previous     entry of the same slot, 0: none
    32 int32 slot_count     slots in use
    36 int32 entry_count    next entry's number, starts at 1

H is 5 000 000 and N 20 000 000 by default. A slot holds the number of its newest entry. A key is
indexed as `topic#key` by Java's string hash made non-negative, and lies in slot hash % H. Hashes
collide, so the caller of a lookup compares the texts.

Written by dispatch after the record; a full file is followed by a new one. Not checksummed: after
an unclean stop files that may be incomplete are dropped and rebuilt from the log. All that a lookup
touches is checked: an entry must lie in its slot's chain, and chains only lead to older entries.
The layout is RocketMQ's; changing it needs a decision record and new golden files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.hashing.index_keys import KEY_MARK
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.errors import CorruptRecordError
from broker_core.store.io.segments import map_file, unreadable

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The only statement of these layouts in code.
HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("slot_count", ">i4"),
        ("entry_count", ">i4"),
    ]
)
SLOT = np.dtype(">i4")
ENTRY = np.dtype(
    [
        ("key_hash", ">i4"),
        ("physical_offset", ">i8"),
        ("seconds", ">i4"),
        ("previous", ">i4"),
    ]
)
HEADER_BYTES = HEADER.itemsize
SLOT_BYTES = SLOT.itemsize
ENTRY_BYTES = ENTRY.itemsize
MAX_TIME_MS = (1 << 63) - 1
FIRST_ENTRY = 1
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000

_NAME = re.compile(r"[0-9]{17}\Z", re.ASCII)
_WORDS_PER_ENTRY = ENTRY_BYTES // SLOT_BYTES
_SCAN_WORDS = 1 << 18
_SAMPLE_ENTRIES = 1000
_LOOK_BACK = 8


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which a key of a topic is indexed.

    >>> key_hash("TopicTest", "7F000001000A18B4AAC200000001ABCD")
    616046194
    """
    hashed, shift = _key_hash(key)
    value = (java_hash(topic + KEY_MARK) * shift + hashed) & 0xFFFFFFFF
    return index_hash(value - (1 << 32) if value >= 1 << 31 else value)


@lru_cache(maxsize=64)
def _key_hash(key: str) -> tuple[int, int]:
    """Return a key's own hash, and what the hash of the text before it is multiplied by.

    Apart from the topic's, for one id is looked for in every topic, and may have 32,767 bytes.
    """
    units = len(key.encode("utf-16-le", "surrogatepass")) // 2
    return java_hash(key), pow(31, units, 1 << 32)


def file_size(slots: int, entries: int) -> int:
    """Return the length of an index file.

    >>> file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)
    420000040
    """
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * entries


def entry_position(slots: int, number: int) -> int:
    """Return the position of entry `number` in a file with `slots` slots."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * number


def list_index_files(directory: Path) -> list[Path]:
    """Return the index files of a store, oldest first; files of other names are skipped."""
    try:
        names = [path for path in directory.iterdir() if _NAME.match(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(directory, error) from error
    return sorted(path for path in names if path.is_file())


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first 40 bytes of an index file. `entry_count` is 1 when nothing is in it."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    slot_count: int = 0
    entry_count: int = 1

    @classmethod
    def decode(cls, data: NDArray[np.uint8] | bytes) -> IndexHeader:
        """Read a header; a count that was never written reads as 1."""
        header = np.frombuffer(bytes(data[:HEADER_BYTES]), dtype=HEADER)[0]
        decoded = cls(*header.item())
        return decoded if decoded.entry_count > 0 else replace(decoded, entry_count=1)

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        fields = tuple(getattr(self, name) for name in HEADER.names or ())
        return np.array([fields], dtype=HEADER).tobytes()


def read_header(path: Path) -> IndexHeader:
    """Read the header of an index file; that of an empty one if the file is too short for any."""
    with path.open("rb") as file:
        return IndexHeader.decode(file.read(HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))


class IndexFile:
    """The read-only view of one index file; FileNotFoundError if it is gone."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        self.path = path
        self.data = map_file(path)
        if len(self.data) < HEADER_BYTES:
            raise self._corrupt(f"is {len(self.data)} bytes long, shorter than its header")
        self._slots = slots

    @property
    def header(self) -> IndexHeader:
        """The header as it is now: a writer may be changing it."""
        return IndexHeader.decode(self.data)

    @property
    def is_empty(self) -> bool:
        """True if nothing is in it; CorruptRecordError if its header contradicts itself."""
        for _ in range(2):  # a writer raises one number after the other
            header = self.header
            if header.entry_count > 1 or header.slot_count == 0:
                return header.entry_count <= 1
        raise self._corrupt(f"counts {header.slot_count} slots in use but no entries")

    @property
    def slots(self) -> int:
        """The number of slots; found from the file's size and content if it was not given."""
        if self._slots is None:
            self._slots = find_slots(self.data, self.path)
        return self._slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._slots = slots

    @property
    def capacity(self) -> int:
        """The number of entries that the file has room for, the unused number 0 included."""
        return (len(self.data) - entry_position(self.slots, 0)) // ENTRY_BYTES

    def slot_values(self) -> NDArray[np.int32]:
        """Return the values of all slots."""
        end = HEADER_BYTES + SLOT_BYTES * self.slots
        values: NDArray[np.int32] = self.data[HEADER_BYTES:end].view(SLOT)
        return values

    def entries(self) -> NDArray[np.void]:
        """Return all entries that the header counts, number 0 included."""
        start = entry_position(self.slots, 0)
        count = min(self.header.entry_count, self.capacity)
        return self.data[start : start + count * ENTRY_BYTES].view(ENTRY)

    def lookup(self, wanted: int, begin_ms: int = 0, end_ms: int = MAX_TIME_MS) -> Iterator[int]:
        """Yield physical offsets of records indexed under a hash, newest first.

        Times in an index are rounded down to seconds. CorruptRecordError as soon as an entry on
        the way contradicts the layout.
        """
        slot = wanted % self.slots
        position = HEADER_BYTES + SLOT_BYTES * slot
        number = int(self.data[position : position + SLOT_BYTES].view(SLOT)[0])
        # The slot first: a writer beside us only ever raises the count. Apache's sets the slot
        # before it counts the entry, so number == count is an entry in the making.
        header = self.header
        count = min(header.entry_count, self.capacity)
        if number < 0 or number > count:
            raise self._corrupt(f"has {number} in slot {slot}, expected 0 to {count}")
        is_bounded = begin_ms > 0 or end_ms < MAX_TIME_MS
        while number > 0 and number < self.capacity:
            hashed, physical_offset, seconds, previous = self._entry(number, slot)
            time_ms = header.begin_timestamp + seconds * 1000
            if is_bounded and time_ms < begin_ms:
                return
            if hashed == wanted and (not is_bounded or time_ms <= end_ms):
                yield physical_offset
            if previous == number:
                return  # Apache's broker writes and reads this as the end of a chain
            number = previous

    def _entry(self, number: int, slot: int) -> tuple[int, int, int, int]:
        start = entry_position(self.slots, number)
        fields = self.data[start : start + ENTRY_BYTES].view(ENTRY)[0].item()
        hashed, physical_offset, seconds, previous = fields
        if hashed < 0 or hashed % self.slots != slot:
            raise self._corrupt(
                f"has entry {number} with hash {hashed} in slot {slot}, "
                f"it belongs into slot {hashed % self.slots} of {self.slots}"
            )
        if physical_offset < 0 or seconds < 0 or not 0 <= previous <= number:
            raise self._corrupt(
                f"has entry {number} with physical offset {physical_offset}, "
                f"time {seconds} s and previous entry {previous}"
            )
        return hashed, physical_offset, seconds, previous

    def _corrupt(self, what: str) -> CorruptRecordError:
        message = (
            f"Index file {self.path} {what}; delete the file to search without it, or restore it "
            f"from a backup."
        )
        return CorruptRecordError(message, self.path)


def find_slots(data: NDArray[np.uint8], path: Path) -> int:
    """Return the slot count that a file's size and content agree with.

    The size leaves every fifth number possible. Slots hold numbers of entries, so the first word
    that is larger than any of those belongs to an entry, and most likely to the first. Each
    candidate must lead from every used slot to an entry whose hash belongs there, and from entry
    to older entry: what a writer is just adding does not matter. A file without entries says
    nothing: then the default's proportion, four entries a slot, decides.
    """
    words, rest = divmod(len(data) - HEADER_BYTES, SLOT_BYTES)
    if rest or words < _WORDS_PER_ENTRY:
        raise _undecided(path, f"its {len(data)} bytes fit no slot count")
    if len(data) == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
        return DEFAULT_SLOTS
    entry_count = IndexHeader.decode(data).entry_count
    if entry_count <= 1:
        return _proportional(words)
    values = data[HEADER_BYTES:].view(SLOT)
    # Keys with tiny hashes hide in front of the word that was found: look a few entries back.
    for slots in range(_first_hash(values) - _WORDS_PER_ENTRY, 0, -_WORDS_PER_ENTRY)[:_LOOK_BACK]:
        if _fits(values, slots, entry_count):
            return slots
    raise _undecided(path, f"no slot count fits its {entry_count - 1} entries")


def _first_hash(values: NDArray[np.int32]) -> int:
    """Return the word at which the entry begins that holds the first word too large for a slot."""
    limit = len(values) // _WORDS_PER_ENTRY
    for start in range(0, len(values), _SCAN_WORDS):
        words = values[start : start + _SCAN_WORDS]
        found = np.flatnonzero((words > limit) | (words < 0))
        if len(found):
            word = start + int(found[0])
            return word - (word - len(values)) % _WORDS_PER_ENTRY
    return 0


def _proportional(words: int) -> int:
    """Return the slot count nearest to a quarter of the entries that leaves whole entries."""
    slots = words // (1 + 4 * _WORDS_PER_ENTRY)
    return max(1, slots - (slots - words) % _WORDS_PER_ENTRY)


def _fits(values: NDArray[np.int32], slots: int, entry_count: int) -> bool:
    """Return True if slots lead to entries whose hashes belong there, and entries to older ones."""
    held = values[:slots].astype(np.int64)  # a copy: a writer may be setting slots
    used = np.flatnonzero(held)
    numbers = held[used]
    capacity = (len(values) - slots) // _WORDS_PER_ENTRY
    if len(used) and (numbers.min() < 1 or numbers.max() >= capacity):
        return False
    hashes = values[slots + numbers * _WORDS_PER_ENTRY].astype(np.int64)
    if not (hashes % slots == used).all():
        return False
    sample = np.arange(1, min(entry_count, capacity, _SAMPLE_ENTRIES))
    entries = values[slots:].view(np.uint8)[: capacity * ENTRY_BYTES].view(ENTRY)[sample]
    is_sound = (entries["key_hash"] >= 0) & (entries["physical_offset"] >= 0)
    is_sound &= (entries["previous"] >= 0) & (entries["previous"] <= sample)
    return bool(is_sound.all()) and bool((np.diff(entries["physical_offset"]) >= 0).all())


def _undecided(path: Path, why: str) -> CorruptRecordError:
    message = (
        f"Can't tell how many slots index file {path} has: {why}. Give maxHashSlotNum and "
        f"maxIndexNum of the broker that wrote it in config=, or delete the file."
    )
    return CorruptRecordError(message, path)
