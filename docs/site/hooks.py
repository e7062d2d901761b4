"""Hooks of the site: add pages outside docs/ under project/, and adapt links to that.

Pages are written for readers of the repository, with links from file to file. In the site a file of
docs/ keeps its path, and any other file is under project/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("*.md", "LICENSE", "conf/*.conf", "examples/*.py", "examples/*.ipynb")
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside docs/ that pages lead to."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            site_path = f"project/{path.relative_to(ROOT).as_posix()}"
            files.append(File.generated(config, site_path, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links between files into links between pages."""
    return LINK.sub(lambda link: f"{link[1]}{moved(page.file.src_uri, link[2])}{link[3]}", markdown)


def moved(page: str, target: str) -> str:
    """Return a link's target in the site, for a page at its path in the site.

    >>> moved("options.md", "guarantees.md"), moved("options.md", "../conf/broker.conf")
    ('guarantees.md', 'project/conf/broker.conf')
    >>> moved("project/README.md", "docs/options.md")
    '../options.md'
    """
    if "://" in target or target.startswith("mailto:"):
        return target
    is_outside = page.startswith("project/")
    source = page.removeprefix("project/") if is_outside else f"docs/{page}"
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    site_path = file.removeprefix("docs/") if file.startswith("docs/") else f"project/{file}"
    return posixpath.relpath(site_path, posixpath.dirname(page) or ".")
