"""Settings file: reads and writes config/storeSettings.json, the settings a store was made with.

A store's file sizes are those of its files, but before the first message it has none, and a new
kind of file may come later (the first key makes the first index file). So the given sizes are
written beside the other configuration, in a file of ours that RocketMQ ignores:

    config/storeSettings.json    {"mappedFileSizeCommitLog": "65536", ...}

Names and texts are those of a broker.conf. Files take precedence, then the configuration that a
store is opened with, then this file. Written under the store's lock, and only when it changes.
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
    """Return the settings that the store at `root` remembers; CorruptRecordError if unreadable."""
    return {name: str(value) for name, value in config_files.load(root / FILE).items()}


def save_settings_file(files: Files, root: Path, settings: Mapping[str, str]) -> None:
    """Add settings to those that the store at `root` remembers, durably; needs the lock."""
    known = load_settings_file(root)
    wanted = {**known, **settings}
    if wanted != known:
        config_files.persist(files, root / FILE, wanted)
