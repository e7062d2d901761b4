"""Pages lead to each other, and none is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.conditions import CATALOGUE
from tools import links, troubleshooting
from tools.links import anchors, broken_links, pages

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_no_page_has_a_link_that_leads_nowhere() -> None:
    assert [(page.name, what) for page in pages() for what in broken_links(page)] == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, with `code`\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-with-code)\n"
        "[c](gone.md) [d](there.md#other) [e](#here)\n"
        "\n```\n[f](in-code.md)\n```\n[g](https://example.org/)\n",
        "utf-8",
    )

    assert list(broken_links(page)) == [
        "gone.md does not exist",
        "there.md#other: the page has no such heading",
        "#here: the page has no such heading",
    ]


def test_every_page_is_listed_on_the_first_one() -> None:
    listed = set(links.LINK.findall((DOCS / "README.md").read_text("utf-8")))

    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} == {
        name for name in listed if "/" not in name
    }


def test_every_condition_is_explained_in_troubleshooting() -> None:
    text = (DOCS / "troubleshooting.md").read_text("utf-8")

    assert troubleshooting.filled(text) == text
    assert [name for name in CATALOGUE if f"**`{name}`**" not in text] == []
    assert {name.partition(".")[0].lower() for name in CATALOGUE} <= anchors(
        DOCS / "troubleshooting.md"
    )


def test_a_class_of_conditions_without_advice_is_an_error() -> None:
    text = (DOCS / "troubleshooting.md").read_text("utf-8")

    with pytest.raises(SystemExit, match="ROCKETMQ_SINK"):
        troubleshooting.filled(text.replace("conditions of ROCKETMQ_SINK", "nothing"))
