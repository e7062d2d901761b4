"""Fingerprints of batches: what tells one batch from another that has the same number.

**Problem.** A checkpoint that is restored from a backup, or copied, gives the number of a batch
that is decided to other rows. By number alone they pass for a repeat and are never written.

**Invariants.** A replay has the fingerprint of the first time: with the same destination, and the
same offsets or the same rows. It does not depend on the order of rows or on how they are divided
into tasks, nor on how the broker is addressed. A batch that was decided by an earlier version is
known by the fingerprint that this version gave it.

**Outline.** Three kinds, each a digest of the destination and of

    2o:…    Spark's own entries of this batch and of the one before it in the checkpoint's
            offset log, without the line that has time stamps; the checkpoint's folder; the
            number of rows, and the topics that a column sends them to. The driver reads the log
            where `checkpointLocation` is a local path and its `metadata` names this query.
    2r:…    the rows: their number, and the sum of 64-bit digests of topic, tags, keys,
            properties, shardingKey, queueId, delayLevel and body of each. Tasks add them up, the
            driver joins the sums.
    2t:…    the topics that a column sends the rows of a save with `txnId` to. Its rows may
            differ: the id says that they are the same. Inside a `foreachBatch` a `txnId` names one
            batch of many, which a restored checkpoint makes of other rows: there `2r` counts.

The first is better than the second: rows that are made anew in a replay (`uuid()`, `rand()`, the
time of day in a `foreachBatch`) have another sum, and the replay is then refused as a conflict,
though it is none. Offsets that only count the batches of a source's own log (files: `logOffset`)
say nothing about rows, so such queries have fingerprints of the second kind.

A copy of a checkpoint lies in another folder. It may read the same offsets and write other rows, of
another filter or to other topics: so the folder counts. A batch that is replayed across a move of
its checkpoint is therefore a conflict.

Version 1 had neither folder nor number nor topics in `1o`. Its `1r` had no shardingKey, queueId and
delayLevel, and did not tell where one property ends and the next begins. `fingerprints` returns its
forms behind the own one, for the batch that is replayed across an update (commit.py).

**Rejected.** Digests of whole columns: Spark divides rows anew in a replay. The broker's address: a
store may be opened by path one day and served the next. The sum of the rows beside the offsets: see
`uuid()`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.spans import spans_of
from pyspark_rocketmq.sink.batch_identity import destination

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from broker_core.types import BatchRef
    from pyspark_rocketmq.options.options import SinkOptions

VERSION, FORMER_VERSION = "2", "1"
OFFSETS, ROWS, TOPICS = "o", "r", "t"
_HEX_CHARS = 32
_METADATA_LINE = 1
_UINT64 = 0xFFFFFFFFFFFFFFFF
_SEEDS = [np.uint64(0x9E3779B97F4A7C15 * (2 * n + 1) & _UINT64) for n in range(8)]
_ADDED_SEEDS = [np.uint64(0x9E3779B97F4A7C15 * (2 * n + 1) & _UINT64) for n in range(8, 16)]
_LENGTH = np.dtype("<i4")
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@dataclass(frozen=True)
class RowSum:
    """The number of some rows, and the sum of their digests modulo 2 to the power of 64.

    `topics` are those that a column sends them to, `former` is the sum as version 1 made it.
    """

    rows: int = 0
    digests: int = 0
    topics: frozenset[str] = frozenset()
    former: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum(
            self.rows + other.rows,
            (self.digests + other.digests) & _UINT64,
            self.topics | other.topics,
            (self.former + other.former) & _UINT64,
        )


NO_ROWS = RowSum()


def sum_rows(
    count: int,
    columns: Sequence[pa.Array | None],
    added: Sequence[pa.Array | None] = (),
    topics: frozenset[str] = frozenset(),
) -> RowSum:
    """Return the sum of some rows, given as columns of texts or maps; None for no column.

    Null, empty and no column at all are the same. `added` are columns that version 1 left out.
    """
    digests = np.zeros(count, dtype=np.uint64)
    _add_digests(digests, _SEEDS, columns)
    is_former = all(column is None for column in added)
    former = digests if is_former else digests.copy()
    _add_digests(digests, _ADDED_SEEDS, added)
    whole = int(_mixed(digests).sum(dtype=np.uint64))
    before = whole if is_former else int(_mixed(former).sum(dtype=np.uint64))
    return RowSum(count, whole, topics, before)


def element_lengths(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return, for each row of a map column, the lengths of its keys and those of its values.

    Each is a text of four bytes per element: beside the joined elements it tells where each ends.
    """
    return _row_lengths(column, column.keys), _row_lengths(column, column.items)


def fingerprints(options: SinkOptions, batch: BatchRef, sums: Iterable[RowSum]) -> list[str]:
    """Return the fingerprint of a query's batch, on the driver, then those of earlier versions."""
    where, total = destination(options), sum(sums, NO_ROWS)
    own, former = row_fingerprints(options, [total])
    folder = _local(options.checkpoint)
    logged = None if folder is None else _offsets(folder, batch)
    if folder is None or logged is None:
        return [own, former]
    # One folder has one name, however it is spelled; as it was spelled is how it was named before.
    made = [
        _digest(VERSION + OFFSETS, [where, name, logged, total.rows, sorted(total.topics)])
        for name in dict.fromkeys((str(folder.resolve()), str(folder)))
    ]
    before, entry = logged
    return [*made, _digest(FORMER_VERSION + OFFSETS, [where, *before, "/", *entry]), former]


def row_fingerprints(options: SinkOptions, sums: Iterable[RowSum]) -> list[str]:
    """Return the fingerprint of rows, then that of version 1."""
    where, total = destination(options), sum(sums, NO_ROWS)
    return [
        _digest(VERSION + ROWS, [where, total.rows, total.digests]),
        _digest(FORMER_VERSION + ROWS, [where, str(total.rows), str(total.former)]),
    ]


def save_fingerprint(sums: Iterable[RowSum]) -> str:
    """Return the fingerprint of a save with `txnId`; empty if no column says where its rows go."""
    topics = sum(sums, NO_ROWS).topics
    return _digest(VERSION + TOPICS, sorted(topics)) if topics else ""


def _digest(kind: str, content: Sequence[object]) -> str:
    text = json.dumps(content)
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:_HEX_CHARS]}"


# Rows


def _add_digests(
    digests: NDArray[np.uint64], seeds: Sequence[np.uint64], columns: Sequence[pa.Array | None]
) -> None:
    for seed, column in zip(seeds, columns, strict=False):
        if column is not None:
            digests += _digests(column, seed)


def _digests(column: pa.Array, seed: np.uint64) -> NDArray[np.uint64]:
    """Return a digest of every text of a column: of its length and CRC-32."""
    if pa.types.is_map(column.type):
        names = _digests(_row_texts(column, column.keys), seed)
        names += _digests(_row_texts(column, column.items), seed + _ONE)
        return _mixed(names)
    spans = spans_of(column)
    found = spans.lengths.astype(np.uint64)
    found <<= _HALF
    found |= body_crcs(spans).view(np.uint64)
    found += seed
    _mixed(found)
    if len(found) and not spans.lengths.min():
        found[spans.lengths == 0] = 0
    return found


def _row_texts(rows: pa.Array, elements: pa.Array) -> pa.Array:
    """Return the texts of each row's elements as one text: they lie behind each other already."""
    data = elements.buffers()[2]
    bounds = _element_bounds(elements)
    if bounds is None:
        return pa.array([b""] * len(rows), type=pa.binary())
    kind = pa.large_binary() if bounds.dtype == np.int64 else pa.binary()
    offsets = pa.py_buffer(bounds[np.asarray(rows.offsets)])
    return pa.Array.from_buffers(kind, len(rows), [None, offsets, data])


def _row_lengths(rows: pa.Array, elements: pa.Array) -> pa.Array:
    """Return the lengths of each row's elements as one text."""
    bounds = _element_bounds(elements)
    if bounds is None:
        return pa.array([b""] * len(rows), type=pa.binary())
    lengths = np.diff(bounds).astype(_LENGTH)
    offsets = np.asarray(rows.offsets).astype(np.int64) * _LENGTH.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lengths)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)


def _element_bounds(elements: pa.Array) -> NDArray[np.signedinteger] | None:
    """Return where each text begins in its buffer, and where the last ends; None if none is."""
    offsets = elements.buffers()[1]
    if offsets is None or not len(elements):
        return None
    width: type[np.signedinteger] = np.int32
    if pa.types.is_large_string(elements.type):
        width = np.int64
    bounds = np.frombuffer(offsets, dtype=width)
    return bounds[elements.offset : elements.offset + len(elements) + 1]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number, in place, so that sums of them tell what was added; 0 stays."""
    shifted = numbers >> _HALF
    numbers ^= shifted
    numbers *= _MIX
    np.right_shift(numbers, _HALF, out=shifted)
    numbers ^= shifted
    return numbers


# Offsets


def _offsets(folder: Path, batch: BatchRef) -> tuple[list[str], list[str]] | None:
    """Return the offset log's entries before a batch and of it; None if they do not tell."""
    try:
        query = json.loads((folder / "metadata").read_text("utf-8"))["id"]
        if f"query:{query}" != batch.owner:
            return None
        entry = _entry(folder, batch.number)
        if any(_is_opaque(line) for line in entry):
            return None
        before = _entry(folder, batch.number - 1) if batch.number else []
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return before, entry


def _entry(folder: Path, number: int) -> list[str]:
    lines = (folder / "offsets" / str(number)).read_text("utf-8").splitlines()
    return lines[:_METADATA_LINE] + lines[_METADATA_LINE + 1 :]


def _is_opaque(line: str) -> bool:
    """Tell whether an offset only counts batches in a log of the source's own."""
    return "logOffset" in line


def _local(checkpoint: str | None) -> Path | None:
    """Return a checkpoint's folder if it may be on this machine.

    Hadoop takes what comes behind scheme and authority as it is: `#`, `?` and `%20` are part of a
    name. A relative path begins at the driver's working folder, which this process shares.
    """
    scheme, colon, rest = (checkpoint or "").partition(":")
    if not colon or "/" in scheme:
        return Path(checkpoint).absolute() if checkpoint else None
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path if authority in ("", "localhost") else ""
    return Path(rest) if scheme == "file" and rest.startswith("/") else None
