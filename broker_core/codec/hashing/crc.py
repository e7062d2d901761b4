"""Body checksums: CRC-32 of the stored bytes, without its sign bit.

`body_crcs` runs a kernel (crc_kernels.py) for large batches, and for any batch once the kernels are
loaded; else it calls zlib for each body.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.layout import CRC_MASK
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.spans import Spans


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Return the checksum of one stored body.

    >>> hex(body_crc(b"a"))
    '0x68b7be43'
    """
    return zlib.crc32(body) & CRC_MASK


def body_crcs(bodies: Spans) -> NDArray[np.int64]:
    """Return the checksum of every body."""
    data, starts, lengths = bodies
    # The kernel is 5 to 20 times faster than zlib even for ten short bodies; only loading it costs.
    if availability.is_worth(len(starts)) or availability.is_loaded():
        from broker_core.codec.hashing.crc_kernels import crc32_spans

        crcs = np.empty(len(starts), dtype=np.uint32)
        crc32_spans(*arguments.spans(data, starts, lengths), crcs)
        return crcs.astype(np.int64) & CRC_MASK
    texts = map(slice, starts.tolist(), bodies.ends.tolist())
    stored = map(np.ascontiguousarray(data).data.__getitem__, texts)
    return np.fromiter(map(zlib.crc32, stored), dtype=np.int64, count=len(starts)) & CRC_MASK
