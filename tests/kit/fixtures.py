"""Stores written by Apache RocketMQ, and what its own client reads from them.

They lie in tests/fixtures; the README there says what each one holds and how it was made. Nothing
here writes to that directory: a test gets its own unpacked copy.
"""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1] / "fixtures"
NAMES = tuple(sorted(entry.parent.name for entry in ROOT.glob("*/store.tar.gz")))

# The file sizes of all these stores, under the names a broker.conf gives them.
SIZES = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}


class FilterQuery(NamedTuple):
    """One line of queries.tsv; `kind` is "tag", "sql" or "push", and only "push" has a group."""

    kind: str
    topic: str
    expression: str
    group: str | None


@contextmanager
def open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive that nothing but plain data is unpacked from, where Python can tell (3.11.4)."""
    with tarfile.open(path) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        yield archive


def extract(name: str, tmp_path: Path) -> Path:
    """Unpack a store below tmp_path and return its root, named after the fixture.

    Modification times are those of the archive to the nanosecond: a store's retention and some of
    its searches look at them.
    """
    root = tmp_path / name
    with open_archive(ROOT / name / "store.tar.gz") as archive:
        archive.extractall(root)
        # Deepest first, so that setting a directory's time is not undone by work inside it.
        for member in sorted(archive, key=lambda entry: entry.name, reverse=True):
            mtime_ns = int(Decimal(member.pax_headers.get("mtime", member.mtime)) * 10**9)
            os.utime(root / member.name, ns=(mtime_ns, mtime_ns))
    return root


def expected(name: str) -> dict[str, Any]:
    """Return the client's view of a store, a fresh document on every call."""
    with gzip.open(ROOT / name / "expected.json.gz", "rt", encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    return document


def queries(name: str) -> list[FilterQuery]:
    """Return the filtered reads whose answers `expected` has, in file order."""
    lines = (ROOT / name / "queries.tsv").read_text(encoding="utf-8").splitlines()
    return [_filter_query(line) for line in lines if line.strip()]


def _filter_query(line: str) -> FilterQuery:
    kind, topic, expression, *group = line.split("\t")
    return FilterQuery(kind, topic, expression, group[0] if group else None)
