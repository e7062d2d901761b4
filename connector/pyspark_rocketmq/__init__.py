"""RocketMQ for Spark: `spark.readStream.format("rocketmq")` and the way back.

Spark imports every module whose name begins with `pyspark_` and looks for a `DefaultSource` in it.
An ImportError on that way would hide all Python data sources of the environment, whosever they
are. So importing this package loads nothing but itself, and works without pyspark; each name is
loaded when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from broker_core import SqlFilter, open_broker
    from pyspark_rocketmq.data_source import RocketMQDataSource
    from pyspark_rocketmq.data_source import RocketMQDataSource as DefaultSource
    from pyspark_rocketmq.source.lag import Lag, LagListener

__all__ = [
    "DefaultSource",
    "Lag",
    "LagListener",
    "RocketMQDataSource",
    "SqlFilter",
    "open_broker",
    "register",
]

_HOMES = {
    "DefaultSource": ("pyspark_rocketmq.data_source", "RocketMQDataSource"),
    "Lag": ("pyspark_rocketmq.source.lag", "Lag"),
    "LagListener": ("pyspark_rocketmq.source.lag", "LagListener"),
    "RocketMQDataSource": ("pyspark_rocketmq.data_source", "RocketMQDataSource"),
    "SqlFilter": ("broker_core", "SqlFilter"),
    "open_broker": ("broker_core", "open_broker"),
}
"""Module and name of everything that is loaded when it is asked for."""


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known to a session that does not find it by itself.

    Spark looks for sources once, when the first one is asked for, and not at all where its path has
    a blank in it. Works on Spark Connect too, and may be called again.
    """
    from pyspark_rocketmq.data_source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module, attribute = _HOMES[name]
    found: object = getattr(importlib.import_module(module), attribute)
    globals()[name] = found  # the next look does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
