"""Bodies of many records as one column, the compressed ones inflated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.compression import InflateError, decompress
from broker_core.codec.corruption import corrupt
from broker_core.codec.layout import SysFlag
from broker_core.codec.spans import gather_spans
from broker_core.errors import RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.fields import RecordFields

MAX_COLUMN_BYTES = 1 << 30
"""What the bodies of one batch may take; a binary column of Arrow ends at 2 GiB."""


def body_column(fields: RecordFields, max_bytes: int = MAX_COLUMN_BYTES) -> pa.Array:
    """The bodies as they were sent.

    CorruptRecordError for one that can't be inflated, RequestError if all of them together are
    more than a column should hold.
    """
    _require_room(fields, int(fields.bodies.lengths.sum()), max_bytes)
    stored = gather_spans(fields.bodies)
    packed = np.flatnonzero(fields.sys_flags & SysFlag.COMPRESSED)
    if not len(packed):
        return stored
    plain = _inflated(fields, stored.take(pa.array(packed)), packed, max_bytes)
    mask = np.zeros(len(stored), dtype=np.bool_)
    mask[packed] = True
    return pc.replace_with_mask(stored, pa.array(mask), plain)


def _inflated(
    fields: RecordFields, stored: pa.Array, rows: NDArray[np.intp], max_bytes: int
) -> pa.Array:
    plain = []
    size = 0
    flags = fields.sys_flags[rows].tolist()
    for row, body, flag in zip(rows.tolist(), stored.to_pylist(), flags, strict=True):
        try:
            plain.append(decompress(body, flag))
        except InflateError as error:
            raise corrupt(fields.frames, row, f"its body can't be inflated: {error}") from error
        size += len(plain[-1])
        _require_room(fields, size, max_bytes)
    return pa.array(plain, type=pa.binary())


def _require_room(fields: RecordFields, size_bytes: int, max_bytes: int) -> None:
    if size_bytes > max_bytes:
        message = (
            f"The bodies of {len(fields.frames)} records take more than {max_bytes} bytes."
            " Read fewer records at once (batchRows)."
        )
        raise RequestError(message)
