"""Real name servers and brokers, as child processes on free loopback ports.

Each server has a scratch directory of its own for configuration, logs and what else the JVM drops.
A server is ready when its constructor returns; it is stopped by SIGTERM, which is a clean shutdown
of the store, or killed. Only processes started here are ever signalled, and each by its own pid.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kit import peers

HOST = "127.0.0.1"
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 90
_POLL_S = 0.05

# Needed under Java 17: the store unmaps its files through these packages.
_OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# What every broker here is told, unless a test says otherwise.
_BROKER_DEFAULTS: Mapping[str, object] = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerIP1": HOST,
    "bindAddress": HOST,
    "enablePropertyFilter": "true",
    # The wheel makes files of its own and adds seconds to every start.
    "timerWheelEnable": "false",
    # Half messages of a store under test must not be checked, and so appended again, by themselves.
    "transactionCheckInterval": 86_400_000,
    # No file may vanish because of its age or a full disk while a test looks at it.
    "fileReservedTime": 876_000,
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": "false",
    # Defaults hand out 32 messages a pull; tests that read everything want more.
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferBytesOnMessageInMemory": 8_388_608,
    "maxTransferCountOnMessageInDisk": 1024,
    "maxTransferBytesOnMessageInDisk": 8_388_608,
}


class Server:
    """One JVM with a RocketMQ server in it, ready when constructed.

    Raises PeerError with the end of the server's output when it ends or stays silent instead of
    reporting that it is up.
    """

    def __init__(
        self,
        main: str,
        settings: Mapping[str, object],
        home: Path,
        version: str,
        jvm: Sequence[str] = _JVM_OPTIONS,
    ) -> None:
        self.home = home
        self.output = home / "output.log"
        self.address = f"{HOST}:{settings['listenPort']}"
        config = _write_home(home, settings)
        with self.output.open("w") as output:
            self._process = subprocess.Popen(
                _command(main, config, home, version, jvm),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._await_boot(main)

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    def stop(self) -> None:
        """Shut the server down in order (SIGTERM) and wait; a second call does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                self.kill()
                text = f"{self.address} did not stop within {_STOP_TIMEOUT_S} s: {self.tail()}"
                raise peers.PeerError(text) from error

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash would, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """Return the end of what the server printed, less the logging library's own status."""
        text = self.output.read_text(encoding="utf-8", errors="replace")
        return "\n".join(line for line in text.splitlines() if " |-" not in line)[-4000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _await_boot(self, main: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while "boot success" not in self.tail():
            if self._process.poll() is not None:
                text = f"{main} ended with status {self._process.returncode}: {self.tail()}"
                raise peers.PeerError(text)
            if time.monotonic() > deadline:
                self.kill()
                text = f"{main} did not start within {_START_TIMEOUT_S} s: {self.tail()}"
                raise peers.PeerError(text)
            time.sleep(_POLL_S)


class NameServer(Server):
    """A name server; several brokers may register with it, under different names at one time."""

    def __init__(self, scratch: Path, version: str = peers.VERSION) -> None:
        port = free_port()
        settings = {"listenPort": port, "bindAddress": HOST}
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        super().__init__(main, settings, scratch / f"namesrv-{port}", version)


class Broker(Server):
    """A broker on a store directory, which it creates if there is none.

    Args:
        store: The store's root.
        name_server: Where it registers; also where clients look for it.
        scratch: A directory for its own files, outside the store.
        settings: Lines of its broker.conf, over the defaults above. A store that exists must be
            given its own file sizes, or the broker refuses it.
        port: Its port; two more are taken, port - 2 and haListenPort.
        version: The release to run.
        jvm: Options of its Java; as they are, it starts soon and never gets fast.
    """

    def __init__(
        self,
        store: Path,
        name_server: NameServer,
        scratch: Path,
        settings: Mapping[str, object] | None = None,
        *,
        port: int | None = None,
        version: str = peers.VERSION,
        jvm: Sequence[str] = _JVM_OPTIONS,
    ) -> None:
        port = port or free_port(-2, 1)
        self.store = store
        self.name_server = name_server
        self.settings = {
            **_BROKER_DEFAULTS,
            "namesrvAddr": name_server.address,
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            **(settings or {}),
        }
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().__init__(main, self.settings, scratch / f"broker-{port}", version, jvm)


def free_port(*neighbours: int) -> int:
    """Return a loopback port that is free now, and so are its neighbours at these distances.

    Chosen below the range from which systems take ports for outgoing connections, so that none of
    those takes it before the server does.
    """
    while True:
        port = random.randint(20_000, 31_000)
        if all(_is_free(port + distance) for distance in (0, *neighbours)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _write_home(home: Path, settings: Mapping[str, object]) -> Path:
    """Make a server's scratch directory anew and return its configuration file."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "conf").mkdir(parents=True)
    for server in ("namesrv", "broker"):  # Release 4 does not start without them.
        (home / "conf" / f"logback_{server}.xml").write_text("<configuration/>\n")
    config = home / "server.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return config


def _command(main: str, config: Path, home: Path, version: str, jvm: Sequence[str]) -> list[str]:
    places = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Djava.io.tmpdir={home}")
    class_path = f"{peers.jars(version)}/*"
    return [
        *(peers.java(), *jvm, *places, *_OPENED),
        *("-cp", class_path, main, "-c", str(config)),
    ]
