"""Checks that every relative link in the project's Markdown pages leads to a file that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The Markdown pages that a reader may open, not those of installed packages."""
    folders = ("docs", "examples", "conf", "tests")
    return sorted(
        [*ROOT.glob("*.md"), *(page for f in folders for page in ROOT.glob(f"{f}/**/*.md"))]
    )


def broken_links(page: Path) -> list[str]:
    """Targets of this page's relative links that do not exist; the web is not looked at."""
    targets = LINK.findall(FENCE.sub("", page.read_text("utf-8")))
    local = (
        target for target in targets if "://" not in target and not target.startswith("mailto:")
    )
    return [target for target in local if not (page.parent / target).exists()]


def main() -> int:
    """Print each broken link; exit 1 if there is one."""
    broken = [(page.relative_to(ROOT), link) for page in pages() for link in broken_links(page)]
    for page, link in broken:
        print(f"{page}: {link} does not exist")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
