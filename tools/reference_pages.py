"""Write docs/options.md and docs/conditions.md from the tables in pyspark_rocketmq.

python -m tools.reference_pages           write the pages
python -m tools.reference_pages --check   say which page is out of date, and exit with 1
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

from pyspark_rocketmq.conditions import CATALOGUE
from pyspark_rocketmq.options.table import GROUPS, Option, Scope

DOCS = Path(__file__).resolve().parent.parent / "docs"

_SCOPES = {Scope.STREAM_READ: "stream", Scope.BATCH_READ: "batch", Scope.WRITE: "write"}
_GENERATED = (
    "<!-- Written by `python -m tools.reference_pages`; edit the tables in pyspark_rocketmq. -->"
)


def options_page() -> str:
    """Return the page of all options, by group."""
    lines = [
        "# Options",
        "",
        _GENERATED,
        "",
        "Names are case-insensitive, values are not. An option that is unknown, or has no effect",
        "where it is given, is named in the log together with the nearest one that exists.",
    ]
    for title, rows in GROUPS.items():
        lines += ["", f"## {title}", "", "| option | for | default | meaning |"]
        lines += ["| --- | --- | --- | --- |", *map(_option_row, rows)]
    return "\n".join(lines) + "\n"


def conditions_page() -> str:
    """Return the page of all error conditions, with SQLSTATE and sentence."""
    lines = [
        "# Error conditions",
        "",
        _GENERATED,
        "",
        "Every error of the connector begins with its condition in brackets and ends with its",
        "SQLSTATE. Spark shows it inside an error of its own. Names in *italics* are filled in.",
        "",
        "| condition | SQLSTATE | message |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {each.sqlstate} | {_italic(each.message)} |"
        for name, each in CATALOGUE.items()
    ]
    return "\n".join(lines) + "\n"


PAGES = {"options.md": options_page, "conditions.md": conditions_page}


def outdated(docs: Path = DOCS) -> list[str]:
    """Return the names of the pages whose file differs from what the tables say."""
    return [
        name
        for name, page in PAGES.items()
        if not (docs / name).is_file() or (docs / name).read_text("utf-8") != page()
    ]


def write(docs: Path = DOCS) -> None:
    """Write all pages."""
    docs.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (docs / name).write_text(page(), "utf-8")


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    if arguments == ["--check"]:
        stale = outdated()
        for name in stale:
            sys.stderr.write(f"docs/{name} is out of date: run python -m tools.reference_pages\n")
        return 1 if stale else 0
    write()
    return 0


def _option_row(option: Option) -> str:
    scope = ", ".join(word for part, word in _SCOPES.items() if part in option.scope)
    cells = [f"`{option.name}`", scope, _default(option), option.doc]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(option: Option) -> str:
    if option.shown:
        return option.shown
    if option.default is None:
        return ""
    return f"`{str(option.default).lower()}`"


def _italic(message: str) -> str:
    parts = string.Formatter().parse(message)
    return "".join(
        text + (f"*{name}*" if name else "") for text, name, _spec, _conversion in parts
    ).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
