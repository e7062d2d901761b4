"""The peer of decode and append: one Arrow `take` of whole records by interleaved offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch


def take_records(frames: FrameBatch) -> pa.Array:
    """The records of a batch, copied out and nothing else done to them.

    Written here, not taken from the codec: what ours is measured by must not change with ours.
    """
    return take_spans(frames.buffer, frames.starts, frames.sizes)


def take_spans(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int32]
) -> pa.Array:
    """buffer[start : start + size] for each of many increasing starts."""
    first = int(starts[0])
    offsets = np.empty(2 * len(starts), dtype=np.int32)
    offsets[0::2] = starts - first
    offsets[1::2] = starts - first + sizes
    gaps_and_spans = pa.Array.from_buffers(
        pa.binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(buffer[first:])],
    )
    return gaps_and_spans.take(pa.array(np.arange(0, len(offsets), 2)))
