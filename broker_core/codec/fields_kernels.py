"""Fields of many records, located and checked in one walk: the compiled twin of fields.examine.

Runs for batches of at least WORTH_ROWS records. Records of every version and host width are
understood. One that does not check ends the walk, and the twin finds out what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.jit.compiler import (
    AHEAD_ROWS,
    BYTES,
    INT32S,
    INT32S_OUT,
    INT64,
    INT64S,
    LINE_BYTES,
    inlined,
    kernel,
    load_byte,
    load_i16,
    load_i32,
    load_i64,
    prefetch,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONE = -1
"""Stands for a queue, an origin or a topic that is not given."""

_V1 = layout.MAGIC_V1 - (1 << 32)
_V2 = layout.MAGIC_V2 - (1 << 32)
_BORN_V6 = int(layout.SysFlag.BORN_HOST_V6)
_STORE_V6 = int(layout.SysFlag.STORE_HOST_V6)


@inlined
def is_same(
    data: NDArray[np.uint8], at: int, other: NDArray[np.uint8], start: int, length: int
) -> bool:
    """Tell whether two texts of one length are equal."""
    for index in range(length):
        if load_byte(data, at + index) != load_byte(other, start + index):
            return False
    return True


@kernel(
    types.UniTuple(INT64, 3),
    BYTES,
    INT64S,
    INT32S,
    INT64S,
    INT64,
    INT64,
    types.Tuple((BYTES, INT64)),
    INT32S_OUT,
    types.Array(types.int64, 2, "C"),
)
def locate_fields(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    queue_id: int,
    origin: int,
    wanted: tuple[NDArray[np.uint8], int],
    sys_flags: NDArray[np.int32],
    found: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Return (rows that check, all are V1 with IPv4 hosts, all carry the topic of the first).

    `wanted` is the topic that all must carry, and its length, or -1 for any. The rows of `found`
    are starts and lengths of bodies, topics and properties.
    """
    topic, wanted_length = wanted
    limit = len(data)
    is_plain, is_one_topic = 1, 1
    first_start, first_length = 0, -1
    rows = len(starts)
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            # The fixed part, and what lies behind the body: a body is not read. Prefetching may go
            # anywhere, so sizes that are not checked yet do no harm.
            ahead = starts[row + AHEAD_ROWS]
            prefetch(data, ahead)
            prefetch(data, ahead + LINE_BYTES)
            prefetch(data, ahead + sizes[row + AHEAD_ROWS] - 2 * LINE_BYTES)
            prefetch(data, ahead + sizes[row + AHEAD_ROWS] - LINE_BYTES)
        start = starts[row]
        size = sizes[row]
        # Nothing below checks bounds: a length is compared with the bytes that are left in the
        # record before it leads anywhere. `start + size` could wrap around.
        if start < 0 or size < layout.MIN_RECORD_BYTES or start > limit - size:
            return row, 0, 0
        if load_i32(data, start) != size:
            return row, 0, 0
        magic = load_i32(data, start + layout.MAGIC)
        if queue_id != NONE and (
            load_i32(data, start + layout.QUEUE_ID) != queue_id
            or load_i64(data, start + layout.QUEUE_OFFSET) != offsets[row]
        ):
            return row, 0, 0
        if origin != NONE and load_i64(data, start + layout.PHYSICAL_OFFSET) != start + origin:
            return row, 0, 0
        flags = load_i32(data, start + layout.SYS_FLAG)
        growth = 0
        if flags & (_BORN_V6 | _STORE_V6):
            is_plain = 0
            if flags & _BORN_V6:
                growth += layout.HOST_GROWTH
            if flags & _STORE_V6:
                growth += layout.HOST_GROWTH
        topic_head = 1
        if magic != _V1:
            if magic != _V2:
                return row, 0, 0
            is_plain = 0
            topic_head = 2
        spare = size - (layout.BODY + growth + topic_head + 2)
        if spare < 0:
            return row, 0, 0
        body = start + layout.BODY + growth
        body_length = load_i32(data, body - 4)
        if body_length < 0 or body_length > spare:
            return row, 0, 0
        spare -= body_length
        at = body + body_length
        if topic_head == 1:
            topic_length = load_byte(data, at)  # unsigned, while the field is signed
            if topic_length > layout.MAX_TOPIC_V1:
                return row, 0, 0
        else:
            topic_length = load_i16(data, at)
        at += topic_head
        if topic_length < 0 or topic_length > spare:
            return row, 0, 0
        if wanted_length != NONE:
            if topic_length != wanted_length or not is_same(data, at, topic, 0, topic_length):
                return row, 0, 0
        elif is_one_topic:
            if first_length < 0:
                first_start, first_length = at, topic_length
            elif topic_length != first_length or not is_same(
                data, at, data, first_start, topic_length
            ):
                is_one_topic = 0
        text = at + topic_length + 2
        text_length = spare - topic_length
        if load_i16(data, text - 2) != text_length:
            return row, 0, 0
        sys_flags[row] = flags
        found[0, row] = body
        found[1, row] = body_length
        found[2, row] = at
        found[3, row] = topic_length
        found[4, row] = text
        found[5, row] = text_length
    return rows, is_plain, is_one_topic
