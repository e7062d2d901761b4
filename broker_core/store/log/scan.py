"""Log scan: the records of a commit log from some offset to its valid end, as dispatch requests.

Every record is checked with its checksum. Bytes that are no valid record end the log; a blank leads
to the next segment.

After an unclean stop a scan also looks for torn records (`suspects_tears`): written whole to the
page cache, but not to the disk when power was lost. Lost sectors read as zeros. A record that lost
a sector of its head does not add up, and one that lost some of its body fails its checksum, but no
checksum covers the properties text: a record that lost only some of that looks valid. It is told by
a sector that is all zeros and holds some of the text, because text has no zeros (the door refuses
them). Only records behind the last flush can be torn.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec import layout
from broker_core.codec.dispatch_request import DispatchRequests, dispatch_requests
from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.store.recovery.tail_marker import NO_RECORD, TailState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.log.commit_log import CommitLog, Stretch
    from broker_core.store.recovery.tail_marker import TailMarker
    from broker_core.store.settings import StoreSettings

_HEAD = struct.Struct(">iI")
SECTOR = 512


@dataclass(slots=True)
class LogScan:
    """A scan under way: iterate `batches` to the end, then the other fields are final.

    `end` is where valid data ends. `ending` says what is wrong there, empty if nothing follows.
    Records from `stop` on, if given, are left out. With `suspects_tears` a record that lost some of
    its properties ends the log as well.
    """

    log: CommitLog
    settings: StoreSettings
    start: int
    verify: bool = True
    suspects_tears: bool = False
    stop: int | None = None
    end: int = 0
    last_start: int = NO_RECORD
    last_store_ms: int = 0
    ending: str = ""

    def __post_init__(self) -> None:
        self.end = self.start

    def batches(self) -> Iterator[DispatchRequests]:
        """Yield the dispatch requests of all records, in log order, a stretch at a time."""
        for found in self.log.walk(self.start, verify=self.verify):
            stretch = _before_tear(found) if self.suspects_tears else found
            if self.stop is not None and stretch.end > self.stop:
                stretch = _before(stretch, self.stop)
            self.end = stretch.next_offset
            self.ending = stretch.detail
            if len(stretch.starts):
                requests = requests_of(stretch, self.settings)
                self.last_start = int(requests.physical_offsets[-1])
                self.last_store_ms = int(requests.store_timestamps[-1])
                yield requests
            if stretch is not found or self.end == self.stop:
                return

    def run(self) -> LogScan:
        """Scan to the end, for the final fields alone."""
        for _ in self.batches():
            continue
        return self


def requests_of(stretch: Stretch, settings: StoreSettings) -> DispatchRequests:
    """Return the dispatch requests of a stretch's records."""
    return dispatch_requests(_frames(stretch), delay_levels=settings.delay_levels_s)


def _frames(stretch: Stretch) -> FrameBatch:
    return FrameBatch(
        buffer=stretch.buffer,
        starts=stretch.starts,
        sizes=stretch.sizes,
        offsets=np.zeros(len(stretch.starts), dtype=np.int64),
        origin=stretch.segment.base,
        name=str(stretch.segment.path),
    )


def _before(stretch: Stretch, stop: int) -> Stretch:
    """Return a stretch's records that begin before an offset."""
    count = int(np.searchsorted(stretch.starts, stop - stretch.segment.base))
    starts, sizes = stretch.starts[:count], stretch.sizes[:count]
    end = stretch.segment.base + int(starts[-1] + sizes[-1]) if count else stop
    return stretch._replace(starts=starts, sizes=sizes, end=end, stop_reason="more", detail="")


def _before_tear(stretch: Stretch) -> Stretch:
    """Return a stretch up to its first torn record; itself if it has none."""
    if not len(stretch.starts):
        return stretch
    fields = locate(_frames(stretch))
    torn = first_torn(*fields.properties)
    if torn is None:
        return stretch
    end = stretch.segment.base + int(stretch.starts[torn])
    return stretch._replace(
        starts=stretch.starts[:torn],
        sizes=stretch.sizes[:torn],
        end=end,
        stop_reason="invalid",
        detail=f"the record at physical offset {end} lost some of its properties",
    )


def first_torn(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> int | None:
    """Return the row of the first text buffer[start : start + length] that lost a sector, or None.

    `buffer` is a segment from its first byte, so that positions in it align with sectors.
    """
    if not len(starts):
        return None
    low = int(starts[0])
    high = int(starts[-1] + lengths[-1])
    # Running counts of bytes that are not zero: each text is then one subtraction.
    written = np.zeros(high - low + 1, dtype=np.int64)
    np.cumsum(buffer[low:high] != 0, out=written[1:])
    counts = written[starts + lengths - low] - written[starts - low]
    for row in np.flatnonzero(counts < lengths).tolist():
        if _lacks_sector(buffer, int(starts[row]), int(starts[row] + lengths[row])):
            return int(row)
    return None


def _lacks_sector(buffer: NDArray[np.uint8], start: int, end: int) -> bool:
    """Tell whether some sector of [start, end) is all zeros, also what it holds of the neighbours.

    A sector is written whole: where a neighbour's bytes are, the text has lost none.
    """
    first, last = start // SECTOR, -(-end // SECTOR)
    return any(not buffer[at * SECTOR : (at + 1) * SECTOR].any() for at in range(first, last))


def follows_record(log: CommitLog, last_start: int, end: int) -> bool:
    """Tell whether the record at `last_start` ends at `end`, or ends a segment that does."""
    head = _head_at(log, last_start)
    if head is None or head[1] not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return False
    if last_start + head[0] == end:
        return True
    blank = _head_at(log, last_start + head[0])
    is_blank = blank is not None and blank[1] == layout.MAGIC_BLANK
    return is_blank and blank is not None and last_start + head[0] + blank[0] == end


def is_unwritten(log: CommitLog, physical_offset: int) -> bool:
    """Tell whether an offset is unwritten: zeros, or no file that holds it."""
    head = _head_at(log, physical_offset)
    return head is None or head == (0, 0)


def counted_end(log: CommitLog, tail: TailMarker) -> int:
    """Return where a marker's log ends: behind what was being written if that is there, whole."""
    if tail.state is not TailState.PENDING or tail.pending_end == tail.log_end:
        return tail.log_end
    is_whole = has_crc(log, tail.log_end, tail.pending_end, tail.pending_crc)
    return tail.pending_end if is_whole else tail.log_end


def has_crc(log: CommitLog, start: int, end: int, crc: int) -> bool:
    """Tell whether the log's [start, end), which lies in one segment, has a CRC-32."""
    found = log.locate(start)
    if found is None or end > found[0].end:
        return False
    segment, buffer = found
    return zlib.crc32(buffer[start - segment.base : end - segment.base].data) == crc


def _head_at(log: CommitLog, physical_offset: int) -> tuple[int, int] | None:
    """Return (size, magic) at an offset; None if no file holds them."""
    found = log.locate(physical_offset)
    if found is None:
        return None
    segment, buffer = found
    position = physical_offset - segment.base
    if position + _HEAD.size > len(buffer):
        return None
    size, magic = _HEAD.unpack_from(buffer.data, position)
    return size, magic
