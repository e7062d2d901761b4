"""`rocketmq-broker stats`: numbers of a broker, once or repeatedly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker_core.cli.output import print_json, print_rows, rows_table, write_text
from broker_core.cli.parameters import json_option, open_with_credentials, optional_broker_option

if TYPE_CHECKING:
    from broker_core.api import Broker

Stats = dict[str, str | int | float | bool | None]
Show = Callable[[Stats], None]
RATES = {"messagesEver": "messagesPerSecond", "commitLogMaxOffset": "bytesPerSecond"}
"""Numbers that only grow, and the names of their growth per second."""


@click.command()
@click.argument("store", required=False)
@click.option("-w", "--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two outputs, with --watch.",
)
@optional_broker_option
@json_option
def stats(
    *,
    store: str | None,
    watch: bool,
    interval: float,
    address: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show the numbers of topics, queues, messages and bytes of the store at STORE (or --broker).

    With --watch also shows how fast they grow: in place on a terminal, else one line each time.
    """
    given = store or address
    if given is None:
        message = "give a STORE or --broker"
        raise click.UsageError(message)
    with open_with_credentials(given, config=config) as broker:
        if not watch:
            _show_once(counted(broker), as_json=as_json)
            return
        with _showing(as_json=as_json) as show:
            _watch(broker, show, interval)


def counted(broker: Broker) -> Stats:
    """Return the numbers of a broker of any kind."""
    from broker_core.broker.broker import EmbeddedBroker

    if isinstance(broker, EmbeddedBroker):
        from broker_core.broker.catalog import store_numbers
        from broker_core.store.lock import lock_holder

        reader = broker.reader
        holder = lock_holder(reader.root)
        return {
            "store": str(reader.root),
            **store_numbers(reader, broker.catalog),
            "lockedBy": str(holder) if holder else None,
            "needsRecovery": reader.recovery is not None,
        }
    from broker_core.clients.grpc.client import GrpcBroker

    if isinstance(broker, GrpcBroker):
        return {"broker": broker.address, **broker.stats()}
    topics = broker.topics()
    bounds = [held for topic in topics for held in broker.offsets(topic).values()]
    return {
        "broker": broker.address,
        "topics": len(topics),
        "queues": len(bounds),
        "messages": sum(maximum - minimum for minimum, maximum in bounds),
        "messagesEver": sum(maximum for _, maximum in bounds),
    }


def with_rates(before: Stats, now: Stats, seconds: float) -> Stats:
    """Return the numbers of now, and their growth per second since those of before.

    >>> with_rates({"messagesEver": 10}, {"messagesEver": 30}, 2.0)
    {'messagesEver': 30, 'messagesPerSecond': 10.0}
    """
    found = dict(now)
    for name, rate in RATES.items():
        was, grown = before.get(name), now.get(name)
        if isinstance(was, int) and isinstance(grown, int):
            found[rate] = round((grown - was) / seconds, 1)
    return found


def _watch(broker: Broker, show: Show, interval_s: float) -> None:
    """Show the numbers until Ctrl-C, which is how it is meant to end."""
    try:
        before, then_s = counted(broker), time.monotonic()
        show(with_rates(before, before, interval_s))
        while True:
            time.sleep(interval_s)
            now, now_s = counted(broker), time.monotonic()
            show(with_rates(before, now, now_s - then_s))
            before, then_s = now, now_s
    except KeyboardInterrupt:
        return


def _show_once(found: Stats, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        print_rows(("what", "value"), list(found.items()))


@contextmanager
def _showing(*, as_json: bool) -> Iterator[Show]:
    """Yield a function that shows numbers: in place on a terminal, else as a line each time."""
    if as_json or not sys.stdout.isatty():

        def write(found: Stats) -> None:
            if as_json:
                print_json(found)
            else:
                write_text(" ".join(f"{name}={value}" for name, value in found.items()) + "\n")
            sys.stdout.flush()

        yield write
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False) as live:
        yield lambda found: live.update(
            rows_table(("what", "value"), list(found.items())), refresh=True
        )
