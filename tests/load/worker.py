"""Producers or followers in a process of their own, for the load test.

    python -m tests.load.worker produce ADDRESS TOPIC THREADS MESSAGES PER_SECOND
    python -m tests.load.worker follow ADDRESS TOPIC THREADS MESSAGES

Each prints `ready` when it is connected, begins when it gets a line of input, and prints one JSON
line per thread when it is done. A body is `producer number sent_ns`, the clock
being the machine's monotonic one, so that followers can tell how old a message is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from broker_core import open_broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.codec.decode import decode
from broker_core.types import QueueRef
from tests.load.loading import APPENDED, SENT

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch


def produce(broker: GrpcBroker, topic: str, thread: int, count: int, per_second: float) -> Any:
    """Send numbered messages at a steady rate; what was acknowledged."""
    name = f"{os.getpid()}-{thread}"
    begin_s = time.monotonic() + thread / (per_second * 16)
    for number in range(count):
        time.sleep(max(0.0, begin_s + number / per_second - time.monotonic()))
        body = f"{name} {number} {time.monotonic_ns()}".encode().ljust(100)
        broker.send(topic, body, queue_id=thread % 4)
    return {"producer": name, "acknowledged": count}


def follow(broker: GrpcBroker, topic: str, queue_id: int, count: int) -> Any:
    """Follow one queue until it has brought so many messages; what came, and how late."""
    came: list[tuple[int, int, FrameBatch]] = []
    left = count
    # What came is taken apart when all of it is there: sixteen readers that decode one message
    # after another would keep the machine busier than the broker does.
    for frames in broker.follow(QueueRef(topic, "broker-a", queue_id), 0):
        came.append((time.monotonic_ns(), time.time_ns(), frames))
        left -= len(frames)
        if left <= 0:
            break
    seen: dict[str, list[int]] = {}
    since_send_ms: list[float] = []
    since_append_ms: list[float] = []
    for now_ns, clock_ns, frames in came:
        messages = decode(frames, ["body", "storeTimestamp"])
        for body in messages.column("body").to_pylist():
            name, number, sent_ns = body.decode().split()
            seen.setdefault(name, []).append(int(number))
            since_send_ms.append((now_ns - int(sent_ns)) / 1e6)
        stored_us = messages.column("storeTimestamp").cast("int64").to_pylist()
        since_append_ms += [clock_ns / 1e6 - stored / 1e3 for stored in stored_us]
    return {
        "queue": queue_id,
        "seen": seen,
        SENT: since_send_ms,
        APPENDED: since_append_ms,
    }


def main(role: str, address: str, topic: str, threads: str, count: str, *rate: str) -> None:
    """Run one role in some threads."""
    answers: list[Any] = []
    with open_broker(address, mode="rw") as broker:
        assert isinstance(broker, GrpcBroker)

        def work(thread: int) -> None:
            if role == "produce":
                answers.append(produce(broker, topic, thread, int(count), float(rate[0])))
            else:
                answers.append(follow(broker, topic, thread % 4, int(count)))

        print("ready", flush=True)
        sys.stdin.readline()
        workers = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for answer in answers:
        print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
