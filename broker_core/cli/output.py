"""Output of commands: tables for terminals, tabs for pipes, JSON for programs, progress bars."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

SHOW_AFTER_S = 1.0
"""Seconds after which a progress bar appears."""

Report = Callable[[int, int], None]


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    write_text(json.dumps(value, ensure_ascii=False) + "\n")


def write_text(text: str) -> None:
    """Write text to stdout as UTF-8, whatever the locale says."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))


class JsonLines(logging.Formatter):
    """Log records as JSON objects, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record, and the error that goes with it, as one line."""
        document = {
            "time": round(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: aligned for a terminal, tab-separated with a heading otherwise."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(rows_table(columns, rows))
        return
    lines = [list(columns), *_texts(rows)]
    write_text("".join("\t".join(row) + "\n" for row in lines))


def rows_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table as a terminal shows it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in _texts(rows):
        table.add_row(*row)
    return table


def _texts(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [["" if value is None else str(value) for value in row] for row in rows]


@contextmanager
def progress(description: str) -> Iterator[Report]:
    """Give a function to tell (done, total) to; a bar appears when the work takes long."""
    started = time.monotonic()
    bar: Progress | None = None
    is_for_people = sys.stderr.isatty()

    def report(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and is_for_people and time.monotonic() - started > SHOW_AFTER_S:
            bar = _bar(description)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def _bar(description: str) -> Progress:
    """Make a progress bar on stderr. Loading rich takes 0.1 s, which short work need not pay."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(description, total=None)
    return bar
