"""Spark on two hosts that are one machine, so that tasks get speculative copies.

Spark starts a copy of a slow task only on a host where no attempt at it runs. Hosts are told apart
by their names, and `local[n]` and `local-cluster[...]` have a single one. Here a master and two
workers live in the driver's JVM, as in `local-cluster`, but each worker has a name of its own for
the loopback interface. Executors are processes with one core each; they end with the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.kit.paths import PYTHONPATH

HOSTS = ("127.0.0.1", "localhost")
EXECUTOR_MB = 512
SETTINGS = {
    "spark.driver.bindAddress": HOSTS[0],
    "spark.driver.host": HOSTS[0],
    "spark.executor.memory": f"{EXECUTOR_MB}m",
    "spark.log.level": "ERROR",
    "spark.speculation": "true",
    # A copy as soon as one task of the stage has ended and another takes longer than it did,
    # however little of its input that one has read.
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def two_hosts(folder: Path) -> Iterator[SparkSession]:
    """A session on two hosts, whose files lie in a folder. Needs a process without Spark."""
    conf = SparkConf().setAll(list(SETTINGS.items()))
    conf.set("spark.local.dir", str(folder / "local"))
    conf.set("spark.sql.warehouse.dir", str(folder / "warehouse"))
    conf.set("spark.executorEnv.PYTHONPATH", PYTHONPATH)
    gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]  # pyspark gives it no types
    context = SparkContext(
        _start(gateway, folder / "work"), "two hosts", conf=conf, gateway=gateway
    )
    try:
        yield SparkSession(context)
    finally:
        context.stop()


def _start(gateway: Any, folder: Path) -> str:
    """Start a master and a worker for each host, by the calls that `local-cluster` makes."""
    jvm = gateway.jvm
    deploy, option = jvm.org.apache.spark.deploy, jvm.scala.Option
    conf = jvm.org.apache.spark.SparkConf(True)
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = f"spark://{HOSTS[0]}:{master._1().address().port()}"
    for number, host in enumerate(HOSTS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            *(host, 0, 0, 1, EXECUTOR_MB, masters, str(folder)),
            *(option.apply(number), conf, option.apply(None)),
        )
    return str(masters[0])
