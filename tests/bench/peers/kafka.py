"""A real Kafka broker of one node, and the jars of Spark's own Kafka connector.

Both come by Maven (the poms beside this file) and run on loopback. The broker's data lie in a
directory that the caller gives and removes.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kit.peers import PeerError, artifacts, java
from tests.interop.kit.servers import free_port

_HERE = Path(__file__).resolve().parent
_READY_S = 60.0
_STOP_S = 60.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}/logs
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def connector_jars() -> list[str]:
    """Paths of the jars that spark.jars needs for `format("kafka")`."""
    return sorted(
        str(path) for path in artifacts("spark-kafka", _HERE / "spark-kafka.xml").iterdir()
    )


class KafkaBroker:
    """A fresh broker; topics come into being with `partitions` partitions when first written."""

    def __init__(self, scratch: Path, *, partitions: int = 4, heap: str = "1g") -> None:
        self._jars = artifacts("kafka-broker", _HERE / "kafka-broker.xml")
        self._port = free_port()
        data = scratch / f"kafka-{self._port}"
        data.mkdir(parents=True)
        self._settings = data / "server.properties"
        self._settings.write_text(
            _PROPERTIES.format(
                port=self._port, controller=free_port(), data=data, partitions=partitions
            )
        )
        self._log = data / "broker.log"
        self._format()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    java(),
                    f"-Xmx{heap}",
                    "-cp",
                    f"{self._jars}/*",
                    "kafka.Kafka",
                    str(self._settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait()

    @property
    def address(self) -> str:
        """What `kafka.bootstrap.servers` takes."""
        return f"127.0.0.1:{self._port}"

    def stop(self) -> None:
        """End the broker and wait until it has ended."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _format(self) -> None:
        tool = [java(), "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        made = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True)
        cluster = made.stdout.split()[-1]
        command = [*tool, "format", "-t", cluster, "-c", str(self._settings)]
        subprocess.run(command, check=True, capture_output=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.stop()
        text = f"Kafka did not start: {self._log.read_text(errors='replace')[-2000:]}"
        raise PeerError(text)
