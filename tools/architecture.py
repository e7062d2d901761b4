"""Draws docs/rooms.svg from the import contracts, and checks the walks of docs/architecture.md.

The picture has a row for each layer of the contract "Imports point down only" in pyproject.toml,
which `./run check` enforces, and says of each room what its docstring says; so it can't go stale.
A walk is a table whose rows name a file and a function. Every one of them must exist.

python -m tools.architecture           draw the picture, check the walks
python -m tools.architecture --check   say what is out of date, and exit with 1
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "rooms.svg"
PAGE = ROOT / "docs" / "architecture.md"

STEP = re.compile(r"^\| *\d+ *\| *`([^`]+\.py)` *\| *`([^`]+)` *\|", re.MULTILINE)
"""A step of a walk: number, file, function or Class.method."""

_LAYERS = "Imports point down only"
_WIDTH, _MARGIN, _GAP = 960, 24, 10
_LINE, _HEAD = 17, 22
_NAME_STYLE = 'font-family="monospace" font-size="14" font-weight="bold" fill="#1e293b"'
_COLOURS = {"pyspark_rocketmq": ("#f0fdf4", "#16a34a"), "broker_core": ("#fff7ed", "#ea580c")}


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def layers() -> list[list[str]]:
    """Return the rooms of each layer, the highest first."""
    (contract,) = (each for each in contracts() if each["name"] == _LAYERS)
    return [re.findall(r"[\w.]+", layer) for layer in contract["layers"]]


def source_of(module: str) -> Path:
    """Return the file that a module, or a package's docstring, stands in."""
    root = ROOT / "connector" if module.startswith("pyspark_") else ROOT
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def purpose_of(module: str) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(source_of(module).read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def inner_rooms(module: str) -> list[str]:
    """Return one line with the packages inside a package, or none."""
    folder = source_of(module).parent
    if source_of(module).name != "__init__.py":
        return []
    inside = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    return [" · ".join(f"{name}/" for name in inside)] if inside else []


def picture() -> str:
    """Return the drawing: a row for each layer, and below them what else is forbidden."""
    at = 58
    parts: list[str] = []
    for row in layers():
        width = (_WIDTH - 2 * _MARGIN - (len(row) - 1) * _GAP) // len(row)
        texts = [
            [*textwrap.wrap(purpose_of(room), max(20, width // 8)), *inner_rooms(room)]
            for room in row
        ]
        height = _HEAD + _LINE * max(map(len, texts)) + 12
        for number, (room, lines) in enumerate(zip(row, texts, strict=True)):
            parts += _box(room, lines, _MARGIN + number * (width + _GAP), at, width, height)
        at += height + _GAP
    others = [each["name"] for each in contracts() if each["name"] != _LAYERS]
    at += 14
    parts.append(_text(_MARGIN, at, "And besides:", weight="bold"))
    for name in others:
        at += _LINE
        parts.append(_text(_MARGIN, at, f"– {name}"))
    label = "The rooms of the project, a row for each layer; imports point down only."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {at + 20}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" '
        f'aria-label="{label}">\n'
        f'  <rect width="{_WIDTH}" height="{at + 20}" fill="#ffffff"/>'
    )
    title = _text(_MARGIN, 34, "Each room may call the rooms below it, never one above it", "bold")
    return "\n".join([head, title, *parts, "</svg>"]) + "\n"


def _box(room: str, lines: list[str], x: int, y: int, width: int, height: int) -> list[str]:
    fill, stroke = _COLOURS[room.partition(".")[0]]
    frame = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
    name = room.replace("broker_core.", "")
    parts = [
        f'  <rect {frame} fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>',
        f'  <text x="{x + 14}" y="{y + 22}" {_NAME_STYLE}>{escape(name)}</text>',
    ]
    first = y + 22 + _LINE
    return parts + [_text(x + 14, first + _LINE * i, line) for i, line in enumerate(lines)]


def _text(x: int, y: int, text: str, weight: str = "normal") -> str:
    return f'  <text x="{x}" y="{y}" font-weight="{weight}" fill="#1e293b">{escape(text)}</text>'


def missing_steps(page: str) -> list[str]:
    """Return the steps of the walks whose file or function does not exist."""
    steps = STEP.findall(page)
    if not steps:
        return ["there are no walks"]
    return [f"{path}: {name}" for path, name in steps if not _has(ROOT / path, name)]


def _has(path: Path, name: str) -> bool:
    """Tell whether a file defines a function, class, or Class.method."""
    if not path.is_file():
        return False
    body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
    for part in name.split("."):
        found = [
            each
            for each in body
            if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == part
        ]
        if not found:
            return False
        body = found[0].body
    return True


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    wrong = [
        f"docs/architecture.md: no such step: {step}"
        for step in missing_steps(PAGE.read_text("utf-8"))
    ]
    if arguments != ["--check"]:
        PICTURE.write_text(picture(), "utf-8")
    elif not PICTURE.is_file() or PICTURE.read_text("utf-8") != picture():
        wrong.append("docs/rooms.svg is out of date: run python -m tools.architecture")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
