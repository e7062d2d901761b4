"""Remembered settings: what a store was told when it was made and its files can't say yet.

A store's file sizes are those of its files, but before the first message it has none, and a new
kind of file may come later (the first key makes the first index file). So what a configuration gave
is written down beside the other configuration, in a file of ours that RocketMQ leaves alone:

    config/storeSettings.json    {"mappedFileSizeCommitLog": "65536", ...}

Names and texts are those of a broker.conf. Files have the last word, then the configuration that a
store is opened with, then this. Written under the store's lock, and only when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store import config_files

if TYPE_CHECKING:
    from broker_core.store.io.files import Files

FILE = Path("config") / "storeSettings.json"


def load_settings_file(root: Path) -> dict[str, str]:
    """Return what the store at `root` remembers; CorruptRecordError if it can't be read."""
    return {name: str(value) for name, value in config_files.load(root / FILE).items()}


def save_settings_file(files: Files, root: Path, settings: Mapping[str, str]) -> None:
    """Add settings to what the store at `root` remembers, durably; the holder of the lock may."""
    known = load_settings_file(root)
    wanted = {**known, **settings}
    if wanted != known:
        config_files.persist(files, root / FILE, wanted)
