"""Message ids. Both kinds are upper-case hex and can't be told apart by length.

    offset id    store host (8 or 20 bytes as stored), physical offset i64      32 or 56 digits
    unique id    IPv4 4 bytes, pid u16, process constant u32, time u32, counter u16    32 digits

The time of a unique id is milliseconds since the first of the month, local time, unsigned.
Unique ids are stored as the property UNIQ_KEY; any text that does not repeat would do.
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.layout import HOST_V4, HOST_V6
from broker_core.jit import availability
from broker_core.types import PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEX = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), dtype=np.uint16)
_OFFSET = struct.Struct(">q")
_MAKER_BYTES, _TICK_BYTES = 10, 6
UNIQUE_ID_CHARS = 2 * (_MAKER_BYTES + _TICK_BYTES)
MAKER_CHARS = 2 * _MAKER_BYTES
"""Digits of a unique id that its maker fixes: all but the time and the counter."""


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id by which a broker finds a record without any index.

    >>> offset_id(bytes.fromhex("0a00000500002a9f"), 0)
    '0A00000500002A9F0000000000000000'
    """
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def parse_offset_id(text: str) -> tuple[bytes, PhysicalOffset] | None:
    """Return (store host, PhysicalOffset) of an offset id, or None if the text can't be one."""
    if len(text) not in (2 * (HOST_V4 + 8), 2 * (HOST_V6 + 8)):
        return None
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    if 2 * len(raw) != len(text):  # fromhex skips blanks
        return None
    (offset,) = struct.unpack(">q", raw[-8:])
    return (raw[:-8], PhysicalOffset(offset)) if offset >= 0 else None


def hex_upper(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the upper-case hex digits of every row of a byte matrix: (rows, n) to (rows, 2n)."""
    digits: NDArray[np.uint8] = _HEX[raw].view(np.uint8)
    return digits.reshape(len(raw), 2 * raw.shape[1])


class UniqueIds:
    """A maker of unique ids for one process; ids of two makers differ by pid and random constant.

    The counter runs over 48 bits made of time and counter fields together: when more than 65 536
    ids are asked for within a millisecond, the time field runs ahead of the clock instead of
    repeating. Forked children must make their own (`process_id` tells).
    """

    def __init__(self, address: int = 0x7F000001) -> None:
        self.process_id = os.getpid()
        constant = int.from_bytes(os.urandom(4), "big")
        self._next = 0
        self._maker = struct.pack(">IHI", address, self.process_id & 0xFFFF, constant).hex()
        self._month = (-1, 0)

    def make_one(self, now_ms: int) -> str:
        """Return one fresh id, as `make` would make it."""
        minute = now_ms // 60_000
        if self._month[0] != minute:  # months begin with a minute, everywhere
            self._month = (minute, _month_start_ms(now_ms))
        tick = max(self._next, (now_ms - self._month[1]) << 16)
        self._next = tick + 1
        return f"{self._maker}{tick & 0xFFFFFFFFFFFF:012x}".upper()

    def make(self, count: int, now_ms: int | None = None) -> NDArray[np.uint8]:
        """Return `count` fresh ids as a (count, 32) matrix of ASCII hex digits.

        The kernel write_ids (properties/join_kernels.py) makes large batches of them.
        """
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        first = max(self._next, (now - _month_start_ms(now)) << 16)
        self._next = first + count
        ids = np.empty((count, UNIQUE_ID_CHARS), dtype=np.uint8)
        maker = np.frombuffer(self._maker.upper().encode(), dtype=np.uint8)
        if availability.is_worth(count):
            from broker_core.codec.properties.join_kernels import write_ids

            write_ids(maker, first, ids.reshape(-1))
            return ids
        ids[:, :MAKER_CHARS] = maker
        ticks = np.arange(first, first + count, dtype=np.int64) & 0xFFFFFFFFFFFF
        counters = ticks.astype(">i8").view(np.uint8).reshape(count, 8)[:, -_TICK_BYTES:]
        ids[:, MAKER_CHARS:] = hex_upper(counters)
        return ids


def _month_start_ms(now_ms: int) -> int:
    local = time.localtime(now_ms / 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
