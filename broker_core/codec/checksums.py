"""Body checksums: CRC-32 of the stored bytes, without its sign bit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import spans
from broker_core.codec.layout import CRC_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SMALL_BYTES = 2048


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

    No kernel computes many CRC-32s at once; zlib is mapped over bytes objects instead. Small
    bodies are made such by Arrow, which is quicker than slicing; large ones are not copied.
    """
    bodies: Iterable[bytes | memoryview]
    if int(lengths.sum()) <= _SMALL_BYTES * len(lengths):
        bodies = spans(data, starts, lengths).to_numpy(zero_copy_only=False)
    else:
        places = map(slice, starts.tolist(), (starts + lengths).tolist())
        bodies = map(np.ascontiguousarray(data).data.__getitem__, places)
    found = np.fromiter(map(zlib.crc32, bodies), dtype=np.int64, count=len(starts))
    return found & CRC_MASK
