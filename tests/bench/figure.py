"""A figure: how fast ours is, how fast the peer is, and the ratio, from alternating rounds.

Machines that run this are shared and noisy, so no absolute number means anything by itself: ours
and the peer take turns, the first turns of each are thrown away (they warm caches and compilers),
and the medians of the others make the ratio.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROUNDS = 3
WARM_UP_ROUNDS = 3
"""Rounds that do not count: compilers are at work, and a virtual machine gets memory that it
touches for the first time ten times slower than memory it has had before."""

_STEAL = 8
"""The place of stolen time in the first line of /proc/stat."""
_STOLEN_SHARE = 0.05

_TOUCHED_BYTES = 3 << 29
_BLOCK_BYTES = 4 << 20
_BLOCK = bytes(_BLOCK_BYTES)

Seconds = float
Turn = Callable[[], Seconds]
"""Does the work once and says how long it took."""


@dataclass(frozen=True)
class Figure:
    """One line of the result. `ours` and `peer` are in `unit`; `value` is the ratio that counts."""

    name: str
    value: float
    ours: float
    peer: float
    unit: str
    rows: int
    columns: str
    machine: str
    note: str = ""

    def to_json(self) -> dict[str, object]:
        """The figure as contract section 8 has it."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


def machine() -> str:
    """What this run was measured on."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


def timed(work: Callable[[], object], clock: Callable[[], Seconds] = time.perf_counter) -> Turn:
    """Measure a call by the wall clock, or by another one.

    What runs in one thread and waits for nothing is best measured by `time.process_time`: it
    stands still while others have the core.
    """

    def turn() -> Seconds:
        begin = clock()
        work()
        return clock() - begin

    return turn


def take_turns(
    turns: dict[str, Turn],
    rounds: int = ROUNDS,
    *,
    before: Callable[[], None] = lambda: None,
    tries: int = 1,
) -> dict[str, Seconds]:
    """The median time of each, over rounds in which all of them take one turn, once warm.

    `before` is called before each turn, whosever it is. A turn during which the host of a virtual
    machine gave its processors to others is taken again, up to so many `tries`, whosever it is.
    """
    times: dict[str, list[Seconds]] = {name: [] for name in turns}
    for number in range(-WARM_UP_ROUNDS, rounds):
        for name, turn in turns.items():
            label = f"round {number + 1}" if number >= 0 else "warming up"
            for left in reversed(range(tries if number >= 0 else 1)):
                before()
                stolen = _stolen_seconds()
                seconds = turn()
                if not left or _stolen_seconds() - stolen <= _STOLEN_SHARE * seconds:
                    break
                tell(f"  {label}, {name}: {seconds:.3f} s, disturbed")
            tell(f"  {label}, {name}: {seconds:.3f} s")
            if number >= 0:
                times[name].append(seconds)
    return {name: statistics.median(each) for name, each in times.items()}


def _stolen_seconds() -> Seconds:
    """How long processors had work and were not given to this machine; 0 where nobody says."""
    facts = Path("/proc/stat")
    if not facts.exists():
        return 0.0
    ticks = facts.read_text(encoding="ascii").split(maxsplit=_STEAL + 1)[_STEAL]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def touch_memory(scratch: Path) -> None:
    """Write a file and delete it, so that a turn that writes files finds memory at hand.

    A virtual machine may give freed memory back to its host within a second, and gets it back ten
    times slower than it writes: turns would be measured by the pauses before them. Memory that
    a program had used and freed does not help: files get next what was a file's before.
    """
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 8
    size = min(_TOUCHED_BYTES, size, shutil.disk_usage(scratch).free // 4)
    path = scratch / "touched"
    with path.open("wb", buffering=0) as file:
        for _ in range(0, size, _BLOCK_BYTES):
            file.write(_BLOCK)
    path.unlink()


def rate_figure(
    name: str, rows: int, ours: Seconds, peer: Seconds, *, columns: str = "", note: str = ""
) -> Figure:
    """How many times the peer's rate ours is."""
    return Figure(
        name=name,
        value=round(peer / ours, 3),
        ours=round(rows / ours),
        peer=round(rows / peer),
        unit="rows/s",
        rows=rows,
        columns=columns,
        machine=machine(),
        note=note,
    )


def time_figure(name: str, rows: int, ours: Seconds, peer: Seconds, *, note: str = "") -> Figure:
    """How many times the peer's time ours takes."""
    return Figure(
        name=name,
        value=round(ours / peer, 3),
        ours=round(ours, 6),
        peer=round(peer, 6),
        unit="s",
        rows=rows,
        columns="",
        machine=machine(),
        note=note,
    )


def tell(text: str) -> None:
    """Say on standard error how far it is."""
    print(text, file=sys.stderr, flush=True)
