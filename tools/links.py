"""Check that the target of every relative link in the project's Markdown pages exists.

A link may name a file, a heading of a page, or both. Links into the web are not checked, so this
needs no network.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages and notebooks that a reader may open, not those of installed packages."""
    folders = ("docs", "examples", "conf", "tests")
    below = (
        page for f in folders for kind in ("md", "ipynb") for page in ROOT.glob(f"{f}/**/*.{kind}")
    )
    return sorted([*ROOT.glob("*.md"), *below])


def prose(page: Path) -> str:
    """Return a page's text without its blocks of code."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    titles = HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    """Yield an error text for each relative link without a target."""
    for link in LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield f"{link} does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: the page has no such heading"


def main() -> int:
    """Print each broken link; exit 1 if there is one."""
    broken = [(page.relative_to(ROOT), what) for page in pages() for what in broken_links(page)]
    for page, what in broken:
        print(f"{page}: {what}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
