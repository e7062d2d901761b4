"""Small Arrow batches joined to large ones, in reads and in writes.

Every batch costs a fixed amount, in Spark and at the broker; few large ones are cheaper than many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def coalesce(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, in batches between half of a limit and both limits.

    Joining copies, so a batch that has more than half of either limit is yielded without waiting
    for more; only the last batch may be smaller. Empty batches are left out.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (count + batch.num_rows > rows or size + batch.nbytes > size_bytes):
            yield _joined(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if 2 * count > rows or 2 * size > size_bytes:
            yield _joined(held)
            held, count, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
