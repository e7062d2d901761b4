"""RocketMQ for Spark: `spark.readStream.format("rocketmq")` and the way back."""

from connector.lag import Lag, LagListener
from connector.source import RocketMQDataSource
from connector.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource", "Lag", "LagListener", "RocketMQDataSource"]
