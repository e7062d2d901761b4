"""Small stores for tests, and proof that nothing in one changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from broker_core.broker.broker import EmbeddedBroker
from tests.kit import fixtures

SMALL = dict(fixtures.SIZES)


def create(root: Path, **config: object) -> EmbeddedBroker:
    """A new store with small files, open for writing."""
    return EmbeddedBroker.open(f"file:{root}", root, mode="rw", create=True, config=SMALL | config)


def open_r(root: Path) -> EmbeddedBroker:
    """A store, open for reading."""
    return EmbeddedBroker.open(f"file:{root}", root)


def open_rw(root: Path) -> EmbeddedBroker:
    """A store, open for writing."""
    return EmbeddedBroker.open(f"file:{root}", root, mode="rw")


def snapshot(root: Path) -> dict[str, tuple[int, str]]:
    """Every path below a directory with its modification time and content."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def deleted_maps(root: Path) -> list[str]:
    """What this process has mapped of files below a directory that were deleted; Linux only."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(root) in line and line.endswith("(deleted)")]


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)
