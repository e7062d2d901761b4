"""`./run bench [NAME…] [--json] [--record]`: measure and print figures; names may be prefixes."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import cluster, decode, remote, report, send, spark_read, spark_write, store
from tests.bench.figure import Figure, tell
from tests.bench.spark_session import load_kafka

Suite = Callable[[Path, "frozenset[str]"], Iterator[Figure]]
SUITES: dict[tuple[str, ...], Suite] = {
    decode.NAMES: decode.run,
    store.NAMES: store.run,
    send.NAMES: send.run,
    spark_read.NAMES: spark_read.run,
    spark_write.NAMES: spark_write.run,
    remote.NAMES: remote.run,
    cluster.NAMES: cluster.run,
}


def main() -> int:
    """Run the chosen suites one after another."""
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures, by name or prefix")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--record", action="store_true", help="keep them, and write the pages")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    known = [name for names in SUITES for name in names]
    if given.list:
        print("\n".join(known))
        return 0
    chosen = frozenset(
        name for name in known if not given.names or any(name.startswith(p) for p in given.names)
    )
    if not chosen:
        print(f"No figure is called {' or '.join(given.names)}; see --list.", file=sys.stderr)
        return 2
    if any(".vs_kafka" in name for name in chosen):
        load_kafka()
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for names, run in SUITES.items():
            wanted = chosen.intersection(names)
            for figure in run(Path(scratch), wanted) if wanted else ():
                tell(f"{figure.name}: {figure.value}")
                figures.append(figure)
    measured = {figure.name: figure.to_json() for figure in figures}
    if given.record:
        report.record(measured, day=datetime.now(UTC).date().isoformat())
    if given.json:
        print(json.dumps(measured, indent=2))
    else:
        _print_table(figures)
    return 0


def _print_table(figures: list[Figure]) -> None:
    table = Table("figure", "ratio", "ours", "peer", "unit", "rows", "note")
    for each in figures:
        row = (f"{each.value:g}", f"{each.ours:,}", f"{each.peer:,}", each.unit, f"{each.rows:,}")
        table.add_row(each.name, *row, each.note)
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())
