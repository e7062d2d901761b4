"""Configuration files: reads and writes config/*.json, the tables a broker keeps beside the log.

UTF-8 text, one object a file. Apache's broker writes maps with integer keys without quoting them,
`{0:12,1:7}`, which is not JSON. Both forms are read, quoted keys are written, and every release of
Apache's broker reads those.

A new version is written beside the old one, made durable, and takes its name after the old one was
renamed to X.bak, so that a crash at any point leaves X or X.bak whole. Reading takes X, and X.bak
if X is missing or damaged (Apache's broker overwrites X itself and can leave a torn one). Only the
holder of the store's lock writes.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import CorruptRecordError
from broker_core.store.io.files import make_directory, storage_error, write_new
from broker_core.store.io.segments import unreadable

if TYPE_CHECKING:
    from broker_core.store.io.files import Files

log = logging.getLogger(__name__)
# A whole string, or a bare integer key. Strings are matched only to be stepped over.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<lead>[{,]\s*)(?P<key>-?[0-9]+)(?=\s*:)', re.DOTALL)
_BACKUP = ".bak"
_HEAD_BYTES = 512
"""More than `dataVersion` takes."""


class _DamagedError(ValueError):
    """A text that is no configuration document."""


class Version(NamedTuple):
    """One content of a file, told by inode, length and modification time."""

    inode: int
    size_bytes: int
    modified_ns: int


class Fingerprint(NamedTuple):
    """One content of a file, told by its versions and its first bytes.

    Versions alone can come again: the third file that replaces one may have its inode, and its time
    too if all were made within one tick of the clock. But our changes are counted in `dataVersion`,
    and names are sorted, so it is among the first bytes.
    """

    versions: tuple[Version | None, Version | None]
    head: bytes


def parse(text: str) -> dict[str, Any]:
    """Return the object that a configuration text holds; ValueError if it holds none.

    >>> parse('{"offsetTable":{"t@g":{0:12,1:7}}}')
    {'offsetTable': {'t@g': {'0': 12, '1': 7}}}
    """
    try:
        document = _parsed(text)
    except RecursionError as error:
        message = "nested too deeply"
        raise _DamagedError(message) from error
    if not isinstance(document, dict):
        message = f"expected an object, found {type(document).__name__}"
        raise _DamagedError(message)
    return document


def _parsed(text: str) -> object:
    try:
        # What we wrote ourselves, however long, needs no second look at each of its strings.
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(_TOKEN.sub(_quoted, text))


def _quoted(match: re.Match[str]) -> str:
    if match["key"] is None:
        return match[0]
    return f'{match["lead"]}"{match["key"]}"'


def render(document: Mapping[str, Any]) -> str:
    """Return the text of a document as Apache's broker lays it out: tabs, sorted names."""
    return json.dumps(
        document, ensure_ascii=False, indent="\t", separators=(",", ":"), sort_keys=True
    )


def backup(path: Path) -> Path:
    """Return where the version before the current one is kept."""
    return path.with_name(path.name + _BACKUP)


def versions(path: Path) -> tuple[Version | None, Version | None]:
    """Return the versions of a file and of its backup, None for one that does not exist.

    Taken before `load`, unchanged versions mean that loading again returns an equal document.
    """
    name = os.fspath(path)
    return _version(name), _version(name + _BACKUP)


def _version(name: str) -> Version | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - for every message; a Path costs as much again
    except OSError:
        return None
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def fingerprint(path: Path) -> Fingerprint:
    """Return the fingerprint of a file; taken before `load`, as `versions` is."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        head = b""
    return Fingerprint(versions(path), head or b"")


def load(path: Path) -> dict[str, Any]:
    """Return a document, from its backup if it is missing or damaged; empty if there is neither.

    CorruptRecordError if there are files but none is whole.
    """
    damaged: list[str] = []
    for candidate in (path, backup(path)):
        try:
            text = candidate.read_text(encoding="utf-8")
            if not text.strip():
                continue
            document = parse(text)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unreadable(candidate, error) from error
        except ValueError as error:
            damaged.append(f"{candidate.name}: {error}")
            continue
        if damaged:
            log.warning(
                "event=config_file_damaged using=backup path=%s reason=%s", path, damaged[0]
            )
        return document
    if damaged:
        message = (
            f"Configuration file {path} is damaged and no backup helps ({'; '.join(damaged)}); "
            f"restore it from a backup, or delete it and its .bak to start with an empty one."
        )
        raise CorruptRecordError(message, path)
    return {}


def persist(files: Files, path: Path, document: Mapping[str, Any]) -> None:
    """Replace a document; after a crash at any point the old or the new one is read, whole."""
    persist_encoded(files, path, render(document).encode())


def persist_encoded(files: Files, path: Path, document: bytes) -> None:
    """Replace a document as `persist` does, by one that is rendered already."""
    fresh = path.with_name(path.name + ".tmp")
    try:
        make_directory(files, path.parent)
        # Data before name: renaming an unsynced file could, after a power cut, leave the name on
        # an empty one. write_new syncs; the sync at the end makes both renames durable.
        write_new(files, fresh, document)
        if path.exists():
            files.rename(path, backup(path))
        files.rename(fresh, path)
        files.fsync_dir(path.parent)
    except OSError as error:
        raise storage_error(error, "save the configuration", path) from error


def next_version(version: object, now_ms: int) -> dict[str, Any]:
    """Return the `dataVersion` after one that was read, by which brokers tell that a file changed.

    Anything that is no version counts as never changed.

    >>> next_version({"counter": 3, "stateVersion": 0, "timestamp": 1}, 5)
    {'counter': 4, 'stateVersion': 0, 'timestamp': 5}
    """
    known = version if isinstance(version, dict) else {}
    counter = known.get("counter", 0)
    return {
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "stateVersion": known.get("stateVersion", 0),
        "timestamp": now_ms,
    }
