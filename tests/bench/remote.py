"""The remote core under load: sinks, single sends, and how soon followers see what was sent.

Peers are the embedded store, for sinks, and for single messages a gRPC server in Python that only
answers: the least that a message and its answer cost here. Rates and times are in `ours`.

Of the single sends, `lone` is one thread that sends the next message when the last is acknowledged,
so that every call carries one; its peer is sent requests as large as those. The others have many
threads, whose messages share calls, and their peer is sent bodies.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker_core import open_broker
from broker_core.clients.grpc.connection import Connection
from broker_core.wire.core.methods import APPEND, Method
from tests.bench.data import BODY_BYTES, QUEUES, TOPIC
from tests.bench.figure import (
    Figure,
    Seconds,
    Turn,
    machine,
    rate_figure,
    take_turns,
    tell,
    touch_memory,
)
from tests.bench.spark_session import session
from tests.bench.spark_write import (
    ROWS,
    WRITE_TRIES,
    WRITES,
    cached_rows,
    new_store,
    save_and_delete,
)
from tests.kit.served import ROOT, ServeCommand
from tests.load.loading import SENT, load

SINKS = {
    "write.remote.exactly_once.vs_embedded": "exactly-once",
    "write.remote.at_least_once.vs_embedded": "at-least-once",
}
LONE = "send.remote.lone.vs_echo"
SENDS = {
    # processes, each with a connection; threads of each; sends of each thread
    LONE: (1, 1, 2000),
    "send.remote.connection.vs_echo": (1, 64, 300),
    "send.remote.total.vs_echo": (4, 64, 100),
}
FOLLOW = "follow.remote.vs_echo"
NAMES = (*SINKS, *SENDS, FOLLOW)


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """Each figure with stores of its own."""
    if names & SINKS.keys():
        yield from _sinks(scratch, names)
    if names & SENDS.keys():
        yield from _sends(scratch, names)
    if FOLLOW in names:
        yield _follow(scratch)


@contextmanager
def served(store: Path) -> Iterator[str]:
    """A new store behind gRPC, in a process of its own; its address."""
    serve = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    try:
        address = serve.wait_ready()
        with open_broker(address, mode="rw") as broker:
            broker.create_topic(TOPIC, queues=QUEUES)
        yield address
    finally:
        serve.stop()
        shutil.rmtree(store)


# Sinks


def _sinks(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """One server and one store for all rounds: a server has to get warm too."""
    with session(scratch) as spark:
        rows = cached_rows(spark)
        for name, delivery in SINKS.items():
            if name in names:
                tell(name)
                own = scratch / "sink"
                with served(scratch / "sink-remote") as address:
                    turns: dict[str, Turn] = {
                        "remote": partial(save_and_delete, rows, address, delivery),
                        "embedded": partial(save_and_delete, rows, new_store(own), delivery),
                    }
                    times = take_turns(
                        turns, WRITES, before=lambda: touch_memory(scratch), tries=WRITE_TRIES
                    )
                shutil.rmtree(own)
                yield rate_figure(
                    name, ROWS, times["remote"], times["embedded"], columns="keys,body"
                )


# Single messages


def _sends(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    with served(scratch / "sends") as broker, _echo() as echo:
        for name, (processes, threads, count) in SENDS.items():
            if name not in names:
                continue
            tell(name)
            size = _request_bytes(broker) if name == LONE else BODY_BYTES
            with ExitStack() as stack:
                ways = {
                    role: [
                        stack.enter_context(_caller(role, address, threads, count, size))
                        for _ in range(processes)
                    ]
                    for role, address in (("send", broker), ("echo", echo))
                }
                turns: dict[str, Turn] = {role: _calling(each) for role, each in ways.items()}
                times = take_turns(turns)
            note = f"{processes} connections of {threads} threads"
            if name == LONE:
                note = f"one message a call, requests of {size} bytes"
            rows = processes * threads * count
            yield rate_figure(name, rows, times["send"], times["echo"], note=note)


def _request_bytes(address: str) -> int:
    """Return the size of the request that carries one message."""
    ask, sizes = Connection.ask, []

    def measured(self: Connection, method: Method, request: Any, **more: Any) -> Any:
        if method is APPEND:
            sizes.append(len(request))
        return ask(self, method, request, **more)

    with open_broker(address, mode="rw") as broker, patch.object(Connection, "ask", measured):
        broker.send(TOPIC, b"x" * BODY_BYTES)
    (size,) = sizes
    return size


@contextmanager
def _echo() -> Iterator[str]:
    with _process("serve") as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()


@contextmanager
def _caller(
    role: str, address: str, threads: int, count: int, size: int = BODY_BYTES
) -> Iterator[subprocess.Popen[str]]:
    """A process that calls; an echo is sent `size` bytes, a broker a body of the usual size."""
    with _process(role, address, str(threads), str(count), str(size)) as caller:
        yield caller


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.remote_echo", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _calling(callers: list[subprocess.Popen[str]]) -> Turn:
    def turn() -> Seconds:
        begin = time.perf_counter()
        _answers(callers)
        return time.perf_counter() - begin

    return turn


def _answers(callers: list[subprocess.Popen[str]]) -> list[dict[str, float]]:
    for caller in callers:
        assert caller.stdin is not None
        caller.stdin.write("go\n")
        caller.stdin.flush()
    return [json.loads(caller.stdout.readline()) for caller in callers if caller.stdout]


def _follow(scratch: Path) -> Figure:
    """How late after its append the slowest hundredth of messages is, beside an echo's slowest.

    64 producers send 960 messages a second to 16 followers, each of a quarter of them.
    """
    tell(FOLLOW)
    store = scratch / "follow"
    loaded = load(store, processes=4, seconds=20, per_second=15)
    shutil.rmtree(store)
    with _echo() as echo, _caller("echo", echo, 1, 2000) as caller:
        _answers([caller])
        (answer,) = _answers([caller])
    ours, peer = loaded.age_ms(0.99), answer["p99_ms"]
    return Figure(
        name=FOLLOW,
        value=round(ours / peer, 3),
        ours=round(ours, 2),
        peer=round(peer, 2),
        unit="ms at p99",
        rows=loaded.total,
        columns="body",
        machine=machine(),
        note=f"median {loaded.age_ms(0.5):.1f} ms, p99 since the send began "
        f"{loaded.age_ms(0.99, SENT):.1f} ms; 64 producers, 960/s, 16 followers",
    )
