"""The body of SEND_BATCH_MESSAGE: messages of one topic and queue, one entry after another.

    size        i32   22 + body + properties
    zero        i32   where a record has its magic
    zero        i32   where a record has its checksum
    flag        i32
    bodyLength  i32
    body
    propertiesLength i16
    properties

There is no count and no outer header. Everything else (system flags, birth) stands in the request's
header and holds for all entries, so only messages that agree in it may share a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.spans import regular_offsets, spans_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_OVERHEAD_BYTES = 22
_HEAD = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_length", ">i4")]
)


def encode_entries(
    bodies: pa.Array, properties: pa.Array, flags: NDArray[np.int32] | int = 0
) -> tuple[memoryview, NDArray[np.int64]]:
    """The entries of messages in order, and the bounds between them (one more than messages)."""
    count = len(bodies)
    _, _, body_lengths = spans_of(bodies)
    _, _, properties_lengths = spans_of(properties)
    heads = np.zeros(count, dtype=_HEAD)
    sizes = ENTRY_OVERHEAD_BYTES + body_lengths + properties_lengths
    heads["size"] = sizes
    heads["flag"] = flags
    heads["body_length"] = body_lengths
    joined = pc.binary_join_element_wise(
        _fixed(heads.view(np.uint8), count, _HEAD.itemsize),
        bodies.cast(pa.binary()),
        _fixed(properties_lengths.astype(">i2").view(np.uint8), count, 2),
        properties.cast(pa.binary()),
        pa.scalar(b"", type=pa.binary()),
    )
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    data, starts, _ = spans_of(joined)
    first = int(starts[0]) if count else 0
    return data.data[first : first + int(bounds[-1])], bounds


def _fixed(data: NDArray[np.uint8], count: int, width: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, regular_offsets(count, width), pa.py_buffer(data)]
    )
