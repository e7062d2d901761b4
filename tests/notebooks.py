"""Executes every notebook in examples/ from clean; fails on an error or an empty output.

    ./run notebooks [NAME ...] [--save]

Names are parts of file names. `--save` writes the outputs back, without what went to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CELL_TIMEOUT_S = 600


def code_cells(notebook: Any) -> list[Any]:
    """The cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> list[Any]:
    """What a reader sees of a cell: everything but stderr, where Spark talks to itself."""
    return [output for output in cell.outputs if output.get("name") != "stderr"]


def execute(path: Path, *, save: bool) -> list[str]:
    """Run one notebook; what is wrong with it, a line each.

    A cell that was committed with an output must have one again.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # not ours
    had_output = [bool(shown(cell)) for cell in code_cells(notebook)]
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(EXAMPLES)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        return [str(error)]
    has_output = [bool(shown(cell)) for cell in code_cells(notebook)]
    if save:
        for cell in code_cells(notebook):
            cell.outputs = shown(cell)
            cell.metadata.pop("execution", None)  # when it ran is no news
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]  # not ours
        return [] if any(has_output) else ["it has no output at all"]
    lost = [
        number
        for number, (had, has) in enumerate(zip(had_output, has_output, strict=True), start=1)
        if had and not has
    ]
    problems = [f"code cell {number} had an output and has none now" for number in lost]
    return problems if any(had_output) else [*problems, "it was committed without outputs"]


def main(arguments: list[str]) -> int:
    """Execute the notebooks that are asked for; 1 if any has a problem."""
    parser = argparse.ArgumentParser(prog="./run notebooks")
    parser.add_argument("names", nargs="*", help="parts of file names; all if none is given")
    parser.add_argument("--save", action="store_true", help="write the outputs back")
    asked = parser.parse_args(arguments)
    paths = [
        path
        for path in sorted(EXAMPLES.glob("*.ipynb"))
        if not asked.names or any(name in path.name for name in asked.names)
    ]
    if not paths:
        print("no notebook has such a name", file=sys.stderr)
        return 1
    failed = False
    for path in paths:
        started = time.monotonic()
        problems = execute(path, save=asked.save)
        failed = failed or bool(problems)
        print(f"{path.name}: {'failed' if problems else 'ok'}, {time.monotonic() - started:.0f} s")
        for problem in problems:
            print(f"  {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
