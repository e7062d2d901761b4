"""The demo: an order pipeline on an embedded store, whose query is killed half-way without harm.

One process sends orders. Another runs a checkpointed Spark query that filters them with SQL92, sums
them up in windows and writes the totals to a second topic, exactly once. This process watches both,
kills the query with SIGKILL during a batch, and starts it again. At the end it compares the second
topic with the orders that were sent, without Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker_core import open_broker

HERE = Path(__file__).resolve().parent
ORDERS = 6_000
ORDERS_PER_SECOND = 600
BATCHES_BEFORE_KILL = 3
WINDOW_SECONDS = 300
PATIENCE_S = 600
PAUSE_S = 0.25
ROWS_SHOWN = 8

console = Console(highlight=False)
Document = dict[str, Any]
Child = subprocess.Popen[bytes]


class Demo:
    """The folder, its store, and the processes that work on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"file:{folder / 'store'}"
        self.scratch = folder / "spark"
        self.scratch.mkdir()
        with open_broker(self.address, mode="rw", create=True) as broker:
            broker.create_topic("orders", queues=4)
            broker.create_topic("totals", queues=2)

    def start(self, script: str, *arguments: str) -> Child:
        """Start a script of this folder in a process group of its own."""
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, HERE / script, self.address, *arguments],
                env=os.environ | {"TMPDIR": str(self.scratch)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_query(self) -> Child:
        return self.start("demo_query.py", str(self.folder))

    def planned(self) -> int:
        """Return the number of batches in the query's log of offsets."""
        return self._newest("offsets") + 1

    def committed(self) -> int:
        """Return the number of batches that Spark has logged as done."""
        return self._newest("commits") + 1

    def orders_read(self) -> int:
        """Return the number of orders that the committed batches have read."""
        if not self.committed():
            return 0
        newest = self.folder / "checkpoint" / "offsets" / str(self.committed() - 1)
        offsets = json.loads(newest.read_text().splitlines()[-1])
        return sum(offsets["orders"]["broker-a"].values())

    def _newest(self, log: str) -> int:
        try:
            names = [file.name for file in (self.folder / "checkpoint" / log).iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def count(self, topic: str) -> int:
        """Return the number of messages in a topic."""
        with open_broker(self.address) as broker:
            return sum(end - start for start, end in broker.offsets(topic).values())

    def read(self, topic: str) -> list[tuple[str, Document]]:
        """Return tag and content of all messages of a topic, in the order they were stored."""
        with open_broker(self.address) as broker:
            columns = ["tags", "body", "physicalOffset"]
            queues = sorted(queue.queue_id for queue in broker.offsets(topic))
            tables = [broker.read(topic, queue_id, columns=columns) for queue_id in queues]
        rows = sorted(
            (row for table in tables for row in table.to_pylist()),
            key=lambda row: row["physicalOffset"],
        )
        return [(row["tags"], json.loads(row["body"])) for row in rows]

    def close_windows(self) -> None:
        """Send an order of the next day, so that all windows before it end."""
        order = {"order": "o-last", "second": 86_400, "region": "eu", "price": 99}
        with open_broker(self.address, mode="rw") as broker:
            broker.send(
                "orders", json.dumps(order).encode(), tags="paid", properties={"price": "99"}
            )


# ----------------------------------------------------------------------------------------- watching


@dataclass
class Screen:
    """The progress shown: a live table on a terminal; elsewhere a line after each change."""

    demo: Demo
    state: str = "starting"
    started: float = field(default_factory=time.monotonic)
    _told: tuple[object, ...] = ()

    def say(self, state: str) -> None:
        self.state = state
        console.print(f"[dim]{self.elapsed():4.0f} s[/]  {state}", soft_wrap=True)

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def watch(self, children: list[Child], until: Callable[[], bool]) -> None:
        """Show progress until `until` returns True; exit if a child fails first."""
        if not console.is_terminal:
            self._wait(children, until, self._print_line)
            return
        with Live(self._picture(), console=console, transient=True, auto_refresh=False) as live:
            self._wait(children, until, lambda: live.update(self._picture(), refresh=True))

    def _wait(
        self, children: list[Child], until: Callable[[], bool], show: Callable[[], None]
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not until():
            broken = [child for child in children if child.poll() not in (None, 0)]
            if broken or time.monotonic() > deadline:
                why = "A process ended early" if broken else f"No end after {PATIENCE_S} s"
                raise SystemExit(f"{why}; {self.demo.folder / 'log.txt'} says more.")
            show()
            time.sleep(PAUSE_S)

    def _progress(self) -> str:
        demo = self.demo
        return (
            f"orders sent {demo.count('orders'):,}, read {demo.orders_read():,}; "
            f"batches {demo.committed()}; totals written {demo.count('totals')}"
        )

    def _print_line(self) -> None:
        if (self.state, self.demo.committed()) != self._told:
            self._told = (self.state, self.demo.committed())
            console.print(f"{self.elapsed():4.0f} s  {self._progress()}", soft_wrap=True)

    def _picture(self) -> Group:
        table = Table("window", "region", "orders", "value", title="Newest totals", min_width=44)
        for _, total in self.demo.read("totals")[-ROWS_SHOWN:]:
            texts = (total["window"], total["region"], total["orders"], f"{total['value']:,}")
            table.add_row(*map(str, texts))
        done = self.demo.orders_read() * 40 // ORDERS
        bar = Text("█" * done, style="green") + Text("░" * (40 - done), style="dim")
        head = Text(f"{self.elapsed():4.0f} s  {self.state}")
        return Group(head, bar, Text(self._progress()), table)


# ------------------------------------------------------------------------------------------ proving


def expected_totals(sent: list[tuple[str, Document]]) -> dict[tuple[str, str], list[str]]:
    """Return the orders of each window and region, computed in plain Python."""
    totals: dict[tuple[str, str], list[str]] = {}
    for tag, order in sent:
        if tag == "paid" and order["price"] > 20:
            minute = order["second"] // WINDOW_SECONDS * (WINDOW_SECONDS // 60)
            window = f"{minute // 60:02}:{minute % 60:02}"
            totals.setdefault((window, order["region"]), []).append(order["order"])
    return totals


def prove(sent: list[tuple[str, Document]], written: list[tuple[str, Document]]) -> list[str]:
    """Return the claims that hold, one line each; raise SystemExit with the first that does not."""
    price = {order["order"]: order["price"] for _, order in sent}
    expected = expected_totals(sent)
    windows = Counter((total["window"], total["region"]) for _, total in written)
    ids = Counter(name for _, total in written for name in total["ids"])
    wanted = Counter(name for names in expected.values() for name in names)
    claims = {
        f"All {ORDERS:,} orders that the generator sent are in the topic, each once.": (
            len(sent) == len(price) == ORDERS
        ),
        f"The SQL92 filter kept the right {len(wanted):,} of them.": ids.keys() == wanted.keys(),
        "Each of those is in the totals exactly once, across the kill.": ids == wanted,
        f"Each of the {len(expected)} windows by region was written exactly once.": (
            windows == Counter(dict.fromkeys(expected, 1))
        ),
        "Every count and every sum equals that of a calculation without Spark.": all(
            (total["orders"], total["value"]) == (len(names), sum(price[name] for name in names))
            and sorted(total["ids"]) == sorted(names)
            for _, total in written
            for names in [expected.get((total["window"], total["region"]), [])]
        ),
    }
    for claim, holds in claims.items():
        if not holds:
            raise SystemExit(f"This does not hold: {claim}")
    return list(claims)


# ----------------------------------------------------------------------------------------- the demo


def run(demo: Demo, children: list[Child]) -> list[str]:
    """Run the demo and return its claims; `children` always holds the processes to end."""
    screen = Screen(demo)
    screen.say(f"a generator sends {ORDERS:,} orders, Spark starts")
    generator = demo.start("demo_orders.py", str(ORDERS), str(ORDERS_PER_SECOND))
    children += [generator, demo.start_query()]
    screen.watch(children, lambda: demo.committed() >= BATCHES_BEFORE_KILL)
    killed = kill_in_a_batch(demo, children.pop())
    screen.say(f"[bold red]killed the query (SIGKILL) during batch {killed}[/]")

    children.append(demo.start_query())
    screen.say("the same query starts again, on the same checkpoint")
    screen.watch(children, lambda: demo.committed() > killed)
    screen.say(f"batch {killed} was run again and is committed")
    screen.watch(children, lambda: generator.poll() == 0 and demo.orders_read() == ORDERS)
    sent = demo.read("orders")
    demo.close_windows()
    screen.say("all orders are read; an order of the next day closes the last windows")
    expected = len(expected_totals(sent))
    screen.watch(children, lambda: demo.count("totals") >= expected)
    screen.watch(children, lambda: demo.committed() == demo.planned())
    for child in children:
        child.communicate()  # ends its standard input, on which it stops
    screen.say("the query has stopped")
    return prove(sent, demo.read("totals"))


def kill_in_a_batch(demo: Demo, query: Child) -> int:
    """Kill driver and JVM between the two log entries of a batch, and return the batch's number.

    The batch may be unread, prepared, or committed in the topic but not in Spark's log. In each
    case the next run has to repeat it.
    """
    while demo.planned() == demo.committed() and query.poll() is None:
        time.sleep(0.01)
    os.killpg(query.pid, signal.SIGKILL)
    query.communicate()
    return demo.planned() - 1


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pyspark-rocketmq-demo-"))
    started = time.monotonic()
    # Exit through `finally` on SIGTERM, so that the children end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    demo = Demo(folder)
    children: list[Child] = []
    try:
        proved = run(demo, children)
    finally:
        for child in children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        shutil.rmtree(demo.scratch, ignore_errors=True)
    console.print(f"\n[bold green]Proved in {time.monotonic() - started:.0f} s[/]")
    for claim in proved:
        console.print(f"  [green]✓[/] {claim}", soft_wrap=True)
    console.print(f"\nStore, checkpoint and log are in {folder}. Have a look:", soft_wrap=True)
    command = Path(sys.executable).with_name("rocketmq-broker")
    console.print(f"  {command} tail totals --broker {demo.address}", soft_wrap=True)
    console.print(f"  {command} check {folder / 'store'}", soft_wrap=True)


if __name__ == "__main__":
    main()
