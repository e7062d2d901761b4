from __future__ import annotations

import pyarrow as pa

from pyspark_rocketmq.coalesce import coalesce


def batch(*bodies: bytes) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array(bodies, type=pa.binary())})


def test_batches_are_joined_until_they_are_more_than_half_of_what_they_may_be() -> None:
    sizes = [3, 0, 3, 2, 9, 3, 3, 3, 1]
    batches = [batch(*[b"%d" % number] * size) for number, size in enumerate(sizes)]

    joined = list(coalesce(batches, rows=10, size_bytes=1 << 20))

    assert [each.num_rows for each in joined] == [6, 2, 9, 6, 4]
    bodies = [body for each in joined for body in each.column("body").to_pylist()]
    assert bodies == [b"%d" % number for number, size in enumerate(sizes) for _ in range(size)]


def test_large_rows_are_joined_by_bytes() -> None:
    batches = [batch(b"x" * 1000) for _ in range(5)]

    joined = coalesce(batches, rows=100, size_bytes=3500)

    assert [each.num_rows for each in joined] == [2, 2, 1]


def test_a_batch_that_is_large_enough_is_not_copied() -> None:
    whole = batch(b"x", b"y")

    [found] = coalesce([whole], rows=3, size_bytes=1 << 20)

    assert found is whole


def test_no_rows_are_no_batches() -> None:
    assert list(coalesce([batch()], rows=10, size_bytes=10)) == []
