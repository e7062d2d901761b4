"""Spark reading a topic as a table while other processes commit to it in pieces and roll back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit import stores
from tests.kit.seen import COLUMNS, TOPIC, Seen, changes, decisions, faults, wanted
from tests.kit.watched_commit import (
    DONE,
    HALF_WAY,
    TASKS,
    Size,
    commit_batches,
    create,
    roll_back_batches,
    running,
)

SIZE = Size(batches=2, rows=6_000, piece_rows=600, block_rows=100, file_bytes=1 << 20)


def read(spark: SparkSession, root: Path) -> Seen:
    """What a batch read of the whole topic returns, and what was decided by its end."""
    frame = (
        spark.read.format("rocketmq")
        .options(broker=f"file:{root}", subscribe=TOPIC, columns=",".join(COLUMNS))
        .load()
    )
    table = frame.toArrow()
    with stores.open_r(root) as reader:
        return Seen.of(table, decisions(reader))


@pytest.mark.embedded
def test_batch_reads_beside_commits_and_roll_backs_see_what_is_decided_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    create(root, SIZE)
    reads: list[Seen] = []
    word = ""

    with (
        running(roll_back_batches, root, SIZE),
        running(commit_batches, root, SIZE) as (_, told),
    ):
        while word != DONE:
            word = told.recv()
            reads.append(read(spark, root))
            if word == HALF_WAY:
                told.send("go on")
                reads.append(read(spark, root))

    whole = TASKS * SIZE.rows
    assert [fault for seen in reads for fault in faults(seen)] == []
    assert [change for pair in pairwise(reads) for change in changes(*pair)] == []
    assert [len(seen) for seen in reads[::2]] == [whole // 2, whole * 3 // 2, whole * 2]
    assert reads[-1].bodies() == wanted(range(SIZE.batches), TASKS, SIZE.rows)
