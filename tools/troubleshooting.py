"""Write the lists of conditions into docs/troubleshooting.md; --check compares them.

The page's own text says when a class of conditions occurs and what to check. Its conditions, from
pyspark_rocketmq/conditions.py, stand between two marks under each class. A class without marks is
an error, and so are marks without a class.
"""

from __future__ import annotations

import re
import string
import sys
from pathlib import Path

from pyspark_rocketmq.conditions import CATALOGUE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "troubleshooting.md"
MARKED = re.compile(r"(<!-- conditions of (\w+) -->\n).*?(<!-- end of conditions -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return the page with every list as the catalogue has it."""
    classes = {name.partition(".")[0] for name in CATALOGUE}
    marked = {name for _, name, _ in MARKED.findall(text)}
    if classes != marked:
        differing = ", ".join(sorted(classes ^ marked))
        raise SystemExit(f"docs/troubleshooting.md: classes and marks differ by {differing}")
    return MARKED.sub(lambda found: f"{found[1]}\n{conditions_of(found[2])}\n{found[3]}", text)


def conditions_of(name: str) -> str:
    """Return the conditions of a class as a list."""
    return "".join(
        f"- **`{condition}`** ({each.sqlstate}): {_italic(each.message)}\n"
        for condition, each in CATALOGUE.items()
        if condition.partition(".")[0] == name
    )


def _italic(message: str) -> str:
    """Return the sentence with its parameters in italics."""
    parts = string.Formatter().parse(message)
    return "".join(text + (f"*{name}*" if name else "") for text, name, _, _ in parts)


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    text = PAGE.read_text("utf-8")
    if arguments != ["--check"]:
        PAGE.write_text(filled(text), "utf-8")
    elif filled(text) != text:
        sys.stderr.write(
            "docs/troubleshooting.md is out of date: run python -m tools.troubleshooting\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
