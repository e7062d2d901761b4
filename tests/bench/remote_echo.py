"""The least that a message and its answer cost over gRPC in Python: a server that only answers.

    python -m tests.bench.remote_echo serve
        prints its address, until killed
    python -m tests.bench.remote_echo echo ADDRESS THREADS COUNT BYTES
        each line of input makes each thread call COUNT times, with so many bytes
    python -m tests.bench.remote_echo send ADDRESS THREADS COUNT BYTES
        the same with sends to our broker, of bodies of the usual size whatever BYTES are

Answers to a line are lines of JSON: seconds, and the slowest hundredth's milliseconds. A channel or
a client is made once and shared by all threads of a process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from broker_core import open_broker
from tests.bench.data import BODY_BYTES, TOPIC

_PATH = "/bench.Echo/Echo"
_BODY = b"x" * BODY_BYTES


def serve() -> None:
    """Answer every request with itself."""
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server = grpc.server(ThreadPoolExecutor(64))
    generic = grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler})
    server.add_generic_rpc_handlers([generic])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def call(act: Callable[[], object], threads: int, count: int) -> dict[str, float]:
    """Let each thread do something `count` times."""
    took_s: list[float] = []

    def work() -> None:
        mine = []
        for _ in range(count):
            begin = time.perf_counter()
            act()
            mine.append(time.perf_counter() - begin)
        took_s.extend(mine)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "p99_ms": 1000 * sorted(took_s)[int(len(took_s) * 0.99)]}


def main(role: str, address: str = "", threads: str = "", count: str = "", size: str = "") -> None:
    """Play one role."""
    if role == "serve":
        serve()
    elif role == "echo":
        with grpc.insecure_channel(address) as channel:
            stub = channel.unary_unary(_PATH)
            request = b"x" * int(size)
            _answer(lambda: stub(request), int(threads), int(count))
    else:
        with open_broker(address, mode="rw") as broker:
            _answer(lambda: broker.send(TOPIC, _BODY), int(threads), int(count))


def _answer(act: Callable[[], object], threads: int, count: int) -> None:
    for _ in sys.stdin:
        print(json.dumps(call(act, threads, count)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
