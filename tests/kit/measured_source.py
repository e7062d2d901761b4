"""The product's source, whose tasks note how much memory their worker process has ever used."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.source.batch import RocketMQReader


class MeasuredReader(RocketMQReader):
    """Writes the peak, in bytes, to a file named after the process when a task ends."""

    def __init__(self, options: SourceOptions, notes: str) -> None:
        super().__init__(options)
        self._notes = Path(notes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (self._notes / str(os.getpid())).write_text(str(peak_kib * 1024))


class MeasuredSource(RocketMQDataSource):
    """Reads like `rocketmq`; the option `notes` is the directory for the files."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-measured"

    def reader(self, schema: StructType) -> MeasuredReader:
        notes = self.options.pop("notes")
        return MeasuredReader(SourceOptions.parse(self.options).for_batch(), notes)
