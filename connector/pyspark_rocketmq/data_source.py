"""The data source that Spark finds under the name "rocketmq": where every read and write begins.

Spark asks the package for `DefaultSource`; its `__init__.py` answers with the class here.

A stream goes on in source/stream.py, a batch read in source/batch.py, any write in sink/writer.py.

Spark loads this module in every environment that has the package, also for those who read no
RocketMQ topic. It needs pyspark alone; everything else is loaded by the call that needs it.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_PLANNER = "plan_data_source_read"


def plans_without_filters() -> bool:
    """Tell whether this is the process in which Spark plans reads that have no filter to push.

    With its own switch off, Spark refuses there any reader that could take filters, although none
    would come. Pushing happens in another process, so a reader that takes none is right here
    whatever the switch says. Where Spark's worker can't be told, the answer is no.
    """
    return any(_PLANNER in argument for argument in sys.argv[:2])


class RocketMQDataSource(DataSource):
    """Reads and writes RocketMQ topics.

        spark.readStream.format("rocketmq")
            .option("broker", "file:/path/to/store").option("subscribe", "orders").load()

    docs/options.md lists every option, docs/conditions.md every error.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns asked for; refuse, at load, everything that is wrong for any read."""
        from pyspark_rocketmq.options.options import SourceOptions, advice
        from pyspark_rocketmq.options.table import Scope
        from pyspark_rocketmq.source.schema import spark_schema

        options = SourceOptions.parse(self.options)
        for sentence in advice(self.options, Scope.READ):
            log.warning("%s", sentence)
        return spark_schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read."""
        from pyspark_rocketmq.options.options import SourceOptions, advice
        from pyspark_rocketmq.options.table import Scope
        from pyspark_rocketmq.source.batch import RocketMQPushdownReader, RocketMQReader
        from pyspark_rocketmq.source.schema import check_schema

        options = SourceOptions.parse(self.options).for_batch()
        check_schema(schema, options.columns)
        of_any_read = advice(self.options, Scope.READ)
        for sentence in advice(self.options, Scope.BATCH_READ):
            if sentence not in of_any_read:
                log.warning("%s", sentence)
        if options.filter_pushdown and not plans_without_filters():
            return RocketMQPushdownReader(options)
        return RocketMQReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming read; it checks its options with the first call."""
        from pyspark_rocketmq.source.stream import RocketMQStreamReader

        return RocketMQStreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch write; refuse what is wrong for all rows, before any task.

        Spark asks for it in a process of its own, which it keeps for the next write.
        """
        from broker_core.process_settings import tune_worker
        from pyspark_rocketmq.errors import sink_errors
        from pyspark_rocketmq.options.options import advice
        from pyspark_rocketmq.options.table import Scope
        from pyspark_rocketmq.sink.writer import RocketMQWriter

        tune_worker()
        if overwrite:
            raise sink_errors.overwrite()
        for sentence in advice(self.options, Scope.WRITE):
            log.warning("%s", sentence)
        return RocketMQWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a streaming write; complete mode appends, as every mode must."""
        from broker_core.process_settings import tune_worker
        from pyspark_rocketmq.sink.writer import RocketMQStreamWriter

        tune_worker()
        del overwrite
        return RocketMQStreamWriter(self.options, schema)
