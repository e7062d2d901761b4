"""The performance page, its plots and the README's figures say what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench import report
from tests.bench.__main__ import SUITES
from tests.bench.report_charts import charts
from tests.bench.report_plot import svg

MARKED = f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\nMore.\n"


def figure(value: float, unit: str = "rows/s") -> dict[str, Any]:
    return {
        "value": value,
        "ours": 2e6 * value,
        "peer": 2e6,
        "unit": unit,
        "rows": 1_000_000,
        "columns": "",
        "machine": "",
        "note": "",
    }


def recorded_in(folder: Path, **figures: dict[str, Any]) -> Path:
    (folder / "README.md").write_text(MARKED, "utf-8")
    (folder / "docs").mkdir(exist_ok=True)
    report.record(
        {name.replace("__", "."): each for name, each in figures.items()}, "2026-01-31", folder
    )
    return folder


def test_pages_and_readme_are_what_the_record_generates() -> None:
    assert report.outdated() == []


def test_a_figure_that_nobody_has_words_for_is_shown_all_the_same(tmp_path: Path) -> None:
    root = recorded_in(tmp_path, something__new=figure(1.5))

    page = (root / "docs" / "performance.md").read_text("utf-8")

    assert "| `something.new` | ours: 3 million rows/s | its peer: 2 million rows/s | 1.5 |" in page


def test_a_number_changed_by_hand_is_noticed(tmp_path: Path) -> None:
    root = recorded_in(tmp_path, decode__body__vs_take=figure(0.75))
    page = root / "docs" / "performance.md"

    page.write_text(page.read_text("utf-8").replace("0.75", "0.95"), "utf-8")

    assert report.outdated(root) == ["docs/performance.md"]


def test_a_missed_goal_is_said_to_be_missed(tmp_path: Path) -> None:
    root = recorded_in(
        tmp_path, decode__body__vs_take=figure(0.5), open__growth=figure(1.0, unit="s")
    )

    rows = (root / "docs" / "performance.md").read_text("utf-8").splitlines()

    (missed,) = [row for row in rows if "`decode.body.vs_take`" in row]
    (met,) = [row for row in rows if "`open.growth`" in row]
    assert missed.endswith("| 0.5 | ≥ 0.7, missed |")
    assert met.endswith("| 1 | ≤ 3 |")


def test_the_readme_keeps_what_stands_around_its_figures(tmp_path: Path) -> None:
    root = recorded_in(tmp_path, read__tag__selective=figure(40.0))

    text = (root / "README.md").read_text("utf-8")

    assert text.startswith(f"# Title\n\n{report.BEGIN}\n\n| ours")
    assert text.endswith(f"{report.END}\n\nMore.\n")
    assert "old" not in text


def test_a_second_run_on_the_machine_adds_to_the_first(tmp_path: Path) -> None:
    recorded_in(tmp_path, decode__body__vs_take=figure(0.5), open__growth=figure(1.0, unit="s"))

    recorded_in(tmp_path, decode__body__vs_take=figure(0.8))

    figures = report.load(tmp_path)["figures"]
    assert {name: each["value"] for name, each in figures.items()} == {
        "decode.body.vs_take": 0.8,
        "open.growth": 1.0,
    }


def test_figures_of_another_machine_are_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_in(tmp_path, open__growth=figure(1.0, unit="s"))
    elsewhere = {**report.load(tmp_path)["machine"], "cores": "96"}
    monkeypatch.setattr(report, "facts", lambda: elsewhere)

    recorded_in(tmp_path, decode__body__vs_take=figure(0.8))

    assert list(report.load(tmp_path)["figures"]) == ["decode.body.vs_take"]


def test_plots_are_well_formed_and_have_a_bar_for_each_value() -> None:
    figures = {name: figure(0.8) for names in SUITES for name in names}

    for chart in charts(figures).values():
        picture = ElementTree.fromstring(svg(chart))
        bars = [each for each in picture.iter() if each.get("height") == "16"]
        assert len(bars) == sum(len(group) for group in chart.groups.values()) > 0
