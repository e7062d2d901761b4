"""RocketMQ for Spark: `spark.readStream.format("rocketmq")` and the way back."""

from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.data_source import RocketMQDataSource as DefaultSource
from pyspark_rocketmq.source.lag import Lag, LagListener

__all__ = ["DefaultSource", "Lag", "LagListener", "RocketMQDataSource"]
