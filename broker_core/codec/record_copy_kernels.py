"""Copies of stored records, in one pass: the twin of `_copy_joined` in record_copy.py.

Header and body lie one behind the other in the original, whatever the hosts' widths, and are copied
as one run of bytes; the fields that change are overwritten in the copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.codec.encode_kernels import TOPICS, put_topic
from broker_core.jit.compiler import (
    BOOLEAN,
    BYTES_OUT,
    INT32S,
    INT64,
    INT64S,
    SPANS,
    copy,
    kernel,
    load_i32,
    store_i16,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.encode_kernels import KernelTopics
    from broker_core.jit.arguments import KernelSpans

_PREPARED = layout.BODY - layout.PREPARED_OFFSET
_RECONSUMED = layout.BODY - layout.RECONSUME_TIMES


@kernel(
    types.void,
    BYTES_OUT,
    INT64S,
    INT32S,
    SPANS,
    INT64S,
    SPANS,
    TOPICS,
    INT32S,
    INT32S,
    INT64S,
    types.UniTuple(INT64, 2),
    BOOLEAN,
)
def copy_originals(
    out: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    originals: KernelSpans,
    header_bytes: NDArray[np.int64],
    properties: KernelSpans,
    topics: KernelTopics,
    codes: NDArray[np.int32],
    queue_ids: NDArray[np.int32],
    prepared: NDArray[np.int64],
    flag_bits: tuple[int, int],
    forgets_retries: bool,
) -> None:
    """Write copies of `sizes` bytes at `starts`.

    `originals` are the starts of the records and the lengths of their bodies, `header_bytes` the
    lengths of what is before the bodies. `flag_bits` are those of SYSFLAG to keep, and to set.
    """
    data, record_starts, body_lengths = originals
    text_data, text_starts, text_lengths = properties
    magics = topics[2]
    keep, put = flag_bits
    prepared_step = 1 if len(prepared) > 1 else 0
    for row in range(len(starts)):
        at = starts[row]
        length = header_bytes[row] + body_lengths[row]
        copy(out, at, data, record_starts[row], length)
        # Offsets and store time are still the original's: `EncodedRecords.patch` writes them.
        store_i32(out, at, sizes[row])
        store_i32(out, at + layout.MAGIC, magics[codes[row]])
        store_i32(out, at + layout.QUEUE_ID, queue_ids[row])
        # Bits that tell the hosts' widths and the compression stay: hosts and body are copied.
        flags = load_i32(data, record_starts[row] + layout.SYS_FLAG)
        store_i32(out, at + layout.SYS_FLAG, (flags & keep) | put)
        body = at + header_bytes[row]
        store_i64(out, body - _PREPARED, prepared[row * prepared_step])
        if forgets_retries:
            store_i32(out, at + layout.FLAG, 0)
            store_i32(out, body - _RECONSUMED, 0)
        at = put_topic(out, at + length, topics, codes[row])
        store_i16(out, at, text_lengths[row])
        copy(out, at + 2, text_data, text_starts[row], text_lengths[row])
