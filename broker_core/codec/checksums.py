"""Body checksums: CRC-32 of the stored bytes, without its sign bit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.layout import CRC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """The checksum of one stored body.

    >>> hex(body_crc(b"a"))
    '0x68b7be43'
    """
    return zlib.crc32(body) & CRC_MASK


def body_crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The checksums of many bodies data[start : start + length].

    No kernel computes many CRC-32s at once; zlib is mapped over slices instead.
    """
    view = np.ascontiguousarray(data).data
    begins, ends = starts.tolist(), (starts + lengths).tolist()
    found = np.fromiter(
        map(zlib.crc32, map(view.__getitem__, map(slice, begins, ends))),
        dtype=np.int64,
        count=len(begins),
    )
    return found & CRC_MASK
