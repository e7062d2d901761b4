"""Process settings, tried in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.process_settings import SWITCH

ROOT = Path(__file__).parents[2]
PRELUDE = """
import gc, socket
from broker_core.process_settings import tune_worker

listener = socket.create_server(("127.0.0.1", 0))
spark = socket.create_connection(listener.getsockname())
ours, _ = listener.accept()

def answer():
    spark.sendall(b"a task")
    ours.recv(10)
    ours.sendall(b"done")
    spark.recv(10)

def is_prompt():
    return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
"""


def run(script: str) -> list[str]:
    command = [sys.executable, "-c", PRELUDE + script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="sockets can be told so on Linux only")
def test_a_connection_acknowledges_at_once_after_each_task() -> None:
    told = run(
        """
tune_worker()
for _ in range(2):
    answer()
    print(is_prompt())
    gc.collect()
    print(is_prompt())
"""
    )

    assert told == ["0", "1", "0", "1"]


def test_what_stays_is_frozen_after_a_task_if_it_is_much() -> None:
    told = run(
        """
tune_worker()
tune_worker()
print(len(gc.callbacks), gc.get_freeze_count() > 0)
module = [[] for _ in range(30_000)]
gc.collect()
first = gc.get_freeze_count()
few = [[] for _ in range(1000)]
gc.collect()
print(first > 30_000, gc.get_freeze_count() - first < 1000)
later = [[] for _ in range(30_000)]
gc.collect()
print(gc.get_freeze_count() - first > 30_000)
"""
    )

    assert told == ["1", "False", "True", "True", "True"]


def test_freezing_comes_to_an_end() -> None:
    told = run(
        """
tune_worker()
kept, counts = [], []
for _ in range(20):
    kept.append([[] for _ in range(30_000)])
    gc.collect()
    counts.append(gc.get_freeze_count())
print(counts[0] < counts[1], counts[-2] == counts[-1], counts[-1] < 12 * 30_000)
"""
    )

    assert told == ["True", "True", "True"]


def test_a_connection_that_was_closed_does_no_harm() -> None:
    told = run(
        """
tune_worker()
ours.close()
spark.close()
gc.collect()
print("well")
"""
    )

    assert told == ["well"]


SWITCHED = """
import ctypes, gc, os
import pyarrow as pa
from broker_core.process_settings import keep_freed_memory, tune_worker

before = pa.default_memory_pool().backend_name, len(gc.callbacks)
keep_freed_memory()
tune_worker()
print(before == (pa.default_memory_pool().backend_name, len(gc.callbacks)))
"""


@pytest.mark.parametrize(("said", "is_left"), [("off", "True"), ("OFF ", "True"), ("", "False")])
def test_one_variable_leaves_the_process_as_it_is(said: str, is_left: str) -> None:
    env = {**os.environ, SWITCH: said}
    env.pop("ARROW_DEFAULT_MEMORY_POOL", None)

    done = subprocess.run(
        [sys.executable, "-c", SWITCHED],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [is_left]
