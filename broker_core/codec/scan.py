"""Walk over a log: the records in a run of bytes, and where valid data ends.

Sizes chain records together, so the walk itself is a loop over two integers a record. Python
follows the first WORTH_ROWS records here; its twin in scan_kernels.py follows the rest,
where there is Numba. Every other check runs over all found records at once (fields.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from broker_core.codec import layout
from broker_core.codec.fields import examine, first_bad_body, first_bad_topic
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import corrupt
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Followed = tuple[NDArray[np.int64], NDArray[np.int32], int, int, int]
    """Starts, sizes, end of the last record, TOTALSIZE and MAGICCODE of the last head seen."""

_SIZE_AND_MAGIC = struct.Struct(">iI")

_ROWS = 1 << 16

StopReason = Literal["stop", "blank", "zero", "invalid"]


@dataclass(frozen=True)
class Walk:
    """Valid records in order, and why the walk ended at `end` (a position in the buffer).

    stop_reason   "stop"     the given end was reached
                  "blank"    the segment's end-of-file record lies at `end`
                  "zero"     nothing was ever written there
                  "invalid"  what lies there is not a valid record; `detail` says why
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    end: int
    stop_reason: StopReason
    detail: str = ""


def walk(
    buffer: NDArray[np.uint8],
    start: int,
    stop: int,
    *,
    origin: int,
    verify: bool,
    name: str = "",
) -> Walk:
    """Follow records from `start` until `stop` or the first byte that starts no valid record.

    `origin` is the PhysicalOffset of buffer[0]; records must state the offset they lie at.
    `verify` also checks every body's checksum.
    """
    starts, sizes, end, reason, detail = chain(buffer, start, stop)
    frames = FrameBatch(
        buffer=buffer,
        starts=starts,
        sizes=sizes,
        offsets=np.zeros(len(starts), dtype=np.int64),
        origin=origin,
        name=name,
    )
    bad = _first_invalid(frames, verify=verify)
    if bad is None:
        return Walk(frames.starts, frames.sizes, end, reason, detail)
    return Walk(
        frames.starts[:bad],
        frames.sizes[:bad],
        int(frames.starts[bad]),
        "invalid",
        str(corrupt(frames, bad)),
    )


def _first_invalid(frames: FrameBatch, *, verify: bool) -> int | None:
    """Return the number of the first record that is not valid, whatever is wrong with it."""
    fields, bad = examine(frames)
    if bad is not None:
        # A record before the bad one may still have a bad topic or body, and comes first then.
        fields, _ = examine(frames.slice(0, bad))
    checks = [first_bad_topic, first_bad_body] if verify else [first_bad_topic]
    found = [bad, *(check(fields) for check in checks)]
    return min((row for row in found if row is not None), default=None)


def chain(
    buffer: NDArray[np.uint8], start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], int, StopReason, str]:
    """Follow TOTALSIZE from record to record, checking nothing but size and magic.

    Return starts, sizes, the end of the last record, why the chain ends there, and what is wrong if
    anything is. A segment's size does not tell how many records it has, for most of it may never
    have been written. So Python begins, and the kernel goes on if there are many.
    """
    # The kernel trusts its bounds; a caller that gave wrong ones gets Python's error.
    is_inside = start >= 0 and stop <= len(buffer)
    follow, room = follow_sizes, availability.WORTH_ROWS
    starts, sizes, at, size, magic = follow(buffer, start, stop, room)
    runs = [(starts, sizes)]
    while len(starts) == room:
        if is_inside and availability.is_worth(room):
            follow = follow_sizes_compiled
        room = _ROWS
        starts, sizes, at, size, magic = follow(buffer, at, stop, room)
        runs.append((starts, sizes))
    if len(runs) > 1:
        starts = np.concatenate([run for run, _ in runs])
        sizes = np.concatenate([run for _, run in runs])
    return starts, sizes, at, *_ending(size, magic, stop - at)


def follow_sizes(buffer: NDArray[np.uint8], start: int, stop: int, most: int) -> Followed:
    """Return the next records from `start` on, `most` of them.

    Fewer, if bytes follow that are not the head of a record which ends at `stop` or before.
    """
    starts: list[int] = []
    sizes: list[int] = []
    view = buffer.data
    unpack = _SIZE_AND_MAGIC.unpack_from
    versions = (layout.MAGIC_V1, layout.MAGIC_V2)
    at, last = start, stop - layout.BLANK_BYTES
    size, magic = 0, 0
    for _ in range(most):
        if at > last:
            break
        size, magic = unpack(view, at)
        if magic not in versions or size < layout.MIN_RECORD_BYTES or at + size > stop:
            break
        starts.append(at)
        sizes.append(size)
        at += size
    return np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int32), at, size, magic


def follow_sizes_compiled(buffer: NDArray[np.uint8], start: int, stop: int, most: int) -> Followed:
    """Follow sizes by the kernel, as `follow_sizes` does; [start, stop) must lie in the buffer."""
    from broker_core.codec import scan_kernels

    starts = np.empty(most, dtype=np.int64)
    sizes = np.empty(most, dtype=np.int32)
    data = arguments.octets(buffer)
    found, at, size, magic = scan_kernels.follow_sizes(data, start, stop, starts, sizes)
    return starts[:found], sizes[:found], at, size, magic


def _ending(size: int, magic: int, remaining: int) -> tuple[StopReason, str]:
    """Return why a chain ends: what the last head that was read says, if there was room for one.

    The head is not read again: a writer may have put a record there since.
    """
    if remaining < layout.BLANK_BYTES:
        return "stop", ""
    if magic == layout.MAGIC_BLANK:
        return "blank", ""
    if magic == 0 and size == 0:
        return "zero", ""
    if magic in (layout.MAGIC_V1, layout.MAGIC_V2):
        return "invalid", f"record size is {size}, {remaining} bytes remain"
    return "invalid", f"magic is {magic:#010x} (size {size})"
