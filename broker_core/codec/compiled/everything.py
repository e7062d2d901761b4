"""All kernels; importing this makes them ready. `python -m` of it compiles ahead of need."""

from __future__ import annotations

from broker_core.codec.compiled import (
    checksums,
    copying,
    decoding,
    encoding,
    endings,
    entries,
    folding,
    gathering,
    grouping,
    hashing,
    indexing,
    joining,
    locating,
    numbers,
    properties,
    scanning,
    unpacking,
)

__all__ = [
    "checksums",
    "copying",
    "decoding",
    "encoding",
    "endings",
    "entries",
    "folding",
    "gathering",
    "grouping",
    "hashing",
    "indexing",
    "joining",
    "locating",
    "numbers",
    "properties",
    "scanning",
    "unpacking",
]
