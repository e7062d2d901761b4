"""Body checksums: CRC-32 of the stored bytes, without its sign bit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.hashing.crc_many import crc32_many
from broker_core.codec.layout import CRC_MASK
from broker_core.codec.spans import gather_spans
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.spans import Spans

_SMALL_BYTES = 2048
# Beyond this a call of zlib for each body is quicker; and few bodies are not worth the tables.
_MANY = 256
_SHORT_BYTES = 384


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """The checksum of one stored body.

    >>> hex(body_crc(b"a"))
    '0x68b7be43'
    """
    return zlib.crc32(body) & CRC_MASK


def body_crcs(bodies: Spans) -> NDArray[np.int64]:
    """Return the checksums of many bodies."""
    _, starts, lengths = bodies
    longest = int(lengths.max(initial=0))
    if kernels.is_worth(len(lengths)) or (longest > _SHORT_BYTES and _can_fold()):
        from broker_core.codec.hashing.crc_kernels import crc32_spans

        crcs = np.empty(len(starts), dtype=np.uint32)
        crc32_spans(*arguments.spans(*bodies), crcs)
        return crcs.astype(np.int64) & CRC_MASK
    if len(lengths) >= _MANY and longest <= _SHORT_BYTES and longest <= 2 * lengths.mean():
        return crc32_many(*bodies).astype(np.int64) & CRC_MASK
    found = np.fromiter(map(zlib.crc32, _each(bodies)), dtype=np.int64, count=len(starts))
    return found & CRC_MASK


def _can_fold() -> bool:
    """Whether there is a kernel at hand that is quicker than zlib."""
    if not kernels.is_at_hand():
        return False
    from broker_core.codec.hashing.crc_kernels import CAN_FOLD

    return CAN_FOLD


def _each(bodies: Spans) -> Iterable[bytes | memoryview]:
    """Every body: small ones as bytes made by Arrow, quicker than slicing; large ones in place."""
    data, starts, lengths = bodies
    if int(lengths.sum()) <= _SMALL_BYTES * len(lengths):
        found: Iterable[bytes] = gather_spans(bodies).to_numpy(zero_copy_only=False)
        return found
    places = map(slice, starts.tolist(), bodies.ends.tolist())
    return map(np.ascontiguousarray(data).data.__getitem__, places)
