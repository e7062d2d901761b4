"""Writes docs/performance.md, its plots and the README's figures from a recorded run.

./run bench --record             measure everything, keep it, write the pages
python -m tests.bench.report     write the pages again from what was kept; --check compares them

Nobody types a number into a page. What is kept is docs/performance/recorded.json: the figures as
`./run bench --json` prints them, each with its day, and the facts of the machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.report_charts import PLOTS, charts
from tests.bench.report_figures import GROUPS, README_FIGURES, Figures, Group, Meaning, shown
from tests.bench.report_machine import facts
from tests.bench.report_plot import Chart, svg

ROOT = Path(__file__).resolve().parents[2]
RECORDED = "docs/performance/recorded.json"
COMMAND = "./run bench --record"
BEGIN, END = "<!-- figures: written by ./run bench --record -->", "<!-- end of figures -->"

_INTRO = f"""\
# Performance

<!-- Written by `{COMMAND}`; edit tests/bench/report*.py. -->

## Method

`./run bench` measures; `{COMMAND}` also keeps the result in `{RECORDED}` and
writes this page from it. No number here was typed by hand.

A figure is a ratio, because rates of one machine say little about another. Ours and its peer take
turns in one run; the first three turns of each are thrown away, and the medians of at least three
others make the ratio. Messages have bodies of 100 bytes, a tag, a key and a unique key, in 4
queues; pages are in memory. Spark runs as `local[2]`, streams read the whole topic as one
micro-batch, and every read ends in `noop`. Before each turn that writes, a file is written and
deleted: a virtual machine gives freed memory back to its host, and getting it again is slower than
writing. A turn that writes is taken again, at most twice and whosever it is, if the host gave the
processors to others for more than a twentieth of it.

The peers are real: Spark's own Kafka source and sink on a Kafka broker that runs on the same
machine. *The ceiling* is a Python source that does nothing but hand Arrow batches to Spark that
were made before: no source written in Python can be faster. Sets of columns are Kafka's six
(`topic`, `queueId`, `queueOffset`, `storeTimestamp`, `keys`, `body`), our ten default ones, and two
(`body`, `queueOffset`).

Goals were set before the code was written. Where a figure misses its goal, the table says so.
"""


# ---------------------------------------------------------------------------------------- recording


def record(figures: Mapping[str, Mapping[str, object]], day: str, root: Path = ROOT) -> None:
    """Keep figures and write the pages.

    Figures of an earlier run stay if they were made on the same machine with the same versions.
    """
    kept = load(root) if (root / RECORDED).exists() else {}
    earlier = kept.get("figures", {}) if kept.get("machine") == facts() else {}
    fresh = {name: {**figure, "day": day} for name, figure in figures.items()}
    document = {"machine": facts(), "figures": dict(sorted({**earlier, **fresh}.items()))}
    (root / RECORDED).parent.mkdir(parents=True, exist_ok=True)
    (root / RECORDED).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    write(root)


def load(root: Path = ROOT) -> dict[str, Any]:
    """What was kept."""
    document: dict[str, Any] = json.loads((root / RECORDED).read_text("utf-8"))
    return document


# -------------------------------------------------------------------------------------------- pages


def files(recorded: Mapping[str, Any], readme: str) -> dict[str, str]:
    """Every generated file by its path, from what was kept and the README as it is."""
    plots = {
        f"docs/performance/{name}.svg": svg(chart)
        for name, chart in charts(recorded["figures"]).items()
    }
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        "docs/performance.md": performance_page(recorded),
        "README.md": f"{before}{BEGIN}\n\n{readme_block(recorded)}\n{END}{after}",
        **plots,
    }


def performance_page(recorded: Mapping[str, Any]) -> str:
    """The whole page."""
    figures: Figures = recorded["figures"]
    days = sorted({figure["day"] for figure in figures.values()})
    lines = [_INTRO, "## Machine", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in recorded["machine"].items()]
    lines += [f"| measured | {' and '.join(days)} |"]
    drawn = charts(figures)
    for group in shown(figures):
        lines += ["", f"## {group.title}", "", *_pictures(group, drawn), *_table(group, figures)]
        lines += ["", group.limits] if group.limits else []
    return "\n".join(lines) + "\n"


def _pictures(group: Group, drawn: Mapping[str, Chart]) -> list[str]:
    return [
        line
        for name, chart in drawn.items()
        if PLOTS[name] == group.title
        for line in (f"![{chart.title}](performance/{name}.svg)", "")
    ]


def _table(group: Group, figures: Figures) -> list[str]:
    head = ["| figure | ours | beside | ratio | goal |", "| --- | --- | --- | ---: | --- |"]
    return head + [
        f"| `{name}` | {meaning.ours}: {_amount(figures[name], 'ours')} "
        f"| {meaning.peer}: {_amount(figures[name], 'peer')} "
        f"| {figures[name]['value']:.3g} | {_goal(meaning, figures[name]['value'])} |"
        for name, meaning in group.meanings.items()
    ]


def readme_block(recorded: Mapping[str, Any]) -> str:
    """The README's table: a few figures, the machine, and the command."""
    figures: Figures = recorded["figures"]
    meanings = {name: each for group in GROUPS for name, each in group.meanings.items()}
    machine = recorded["machine"]
    rows = [
        f"| {meanings[name].ours} | {_amount(figures[name], 'ours')} | {meanings[name].peer} "
        f"| {_amount(figures[name], 'peer')} | {figures[name]['value']:.3g} |"
        for name in README_FIGURES
        if name in figures
    ]
    return "\n".join(
        [
            "| ours | | beside | | ratio |",
            "| --- | ---: | --- | ---: | ---: |",
            *rows,
            "",
            f"Measured on {machine['cores']} cores of {machine['processor']},",
            f"{machine['memory']} of memory, Python {machine['Python']},",
            f"Spark {machine['pyspark']}, by `{COMMAND}`.",
            "",
        ]
    )


def _amount(figure: Mapping[str, Any], side: str) -> str:
    value = figure[side]
    if figure["unit"] == "rows/s":
        return f"{value / 1e6:.3g} million rows/s" if value >= 1e5 else f"{value:,.0f} rows/s"
    if figure["unit"] == "s":
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} {figure['unit']}"


def _goal(meaning: Meaning, value: float) -> str:
    if meaning.goal is None:
        return ""
    verdict = "" if meaning.is_met(value) else ", missed"
    return f"{'≤' if meaning.is_cost else '≥'} {meaning.goal:g}{verdict}"


# ------------------------------------------------------------------------------------------ command


def write(root: Path = ROOT) -> None:
    """Write all that follows from what was kept."""
    for path, text in files(load(root), (root / "README.md").read_text("utf-8")).items():
        (root / path).write_text(text, "utf-8")


def outdated(root: Path = ROOT) -> list[str]:
    """Paths of the files that are not what the record says."""
    texts = files(load(root), (root / "README.md").read_text("utf-8"))
    return [
        path
        for path, text in texts.items()
        if not (root / path).is_file() or (root / path).read_text("utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """The command; returns its exit status."""
    if arguments == ["--check"]:
        stale = outdated()
        for path in stale:
            sys.stderr.write(f"{path} is out of date: run python -m tests.bench.report\n")
        return 1 if stale else 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
