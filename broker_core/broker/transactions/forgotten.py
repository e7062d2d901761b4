"""Forgotten streams: what is left of a stream of batches once retention no longer carries it along.

Problem. A decision that is deleted without a trace makes a replay of its batch a new batch, and its
rows are written twice. But a store may have seen millions of streams (an owner and a name), and
most of them never come back.

Invariants.

1. A forgotten stream leaves a key of 8 bytes and the number of its newest batch. So a batch with
   that number or an older one is known to be committed, and one with a later number is the next.
   What else was known (the run, the fingerprint) is gone, so whether the batch is the same one
   can't be told: it is refused (history.py).
2. A key is the first 8 bytes of BLAKE2b over the stream's tag and its user. Of a million forgotten
   streams, one in 10^13 new ones meets a key that is not its own, and it is refused, not lost.
3. A stream with a decision in the log is not forgotten, whatever is said here: its decision is
   newer, for streams are forgotten with all of their decisions at once.

A caller without a name is answered by anybody's decision (DecisionLookup.decision_for), so streams
of users with a name leave a second key, over the tag alone.

The journal holds them in records of up to 4096 keys, sorted (`RECORD_KEYS`), 16 bytes a key before
base64. When the segment of such a record goes, its keys are written again together with those that
came since: a million forgotten streams take 21 MiB, and as much is written once in the time that
the log is kept.

Rejected: a Bloom filter of fixed size. It is smaller by half at a million streams, knows no
numbers, and refuses more and more new streams as it fills.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORGOTTEN_TAG = "##forgotten"
"""No stream's tag: those have one `#` (`stream_tag`)."""
RECORD_KEYS = 4096
"""Keys of one record. A search reads one record of each run of retention, in 0.2 ms."""
_NUMBER = np.dtype(">u8")
_KEY_BYTES = _NUMBER.itemsize
_ENCODED_BYTES = 22
"""Bytes of one key and its number in base64, rounded up."""
_FRAME_BYTES = 64


@dataclass(frozen=True, eq=False, slots=True)
class ForgottenStreams:
    """Keys of forgotten streams, sorted, each once, and the number of each one's newest batch."""

    keys: NDArray[np.uint64]
    numbers: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def tag(self) -> str:
        """The tag that the record is found by."""
        return FORGOTTEN_TAG

    @property
    def bounds(self) -> tuple[int, int]:
        """The first key and the last one."""
        return int(self.keys[0]), int(self.keys[-1])

    @classmethod
    def of_streams(
        cls, tags: Sequence[str], users: Sequence[str], numbers: Sequence[int]
    ) -> ForgottenStreams:
        """Return streams as forgotten ones, by tag, user and the number of the newest batch."""
        rows = [
            (key, number)
            for tag, user, number in zip(tags, users, numbers, strict=True)
            for key in ((_key(tag, user), _key(tag, None)) if user else (_key(tag, user),))
        ]
        # Not one array of both: NumPy would make floats of numbers over 2^63.
        keys, newest = zip(*rows, strict=True) if rows else ((), ())
        return cls._sorted(np.array(keys, dtype=np.uint64), np.array(newest, dtype=np.uint64))

    @classmethod
    def join(cls, parts: Sequence[ForgottenStreams]) -> ForgottenStreams:
        """Return the streams of all parts; of one that was forgotten twice the later number."""
        nothing = np.zeros(0, dtype=np.uint64)
        return cls._sorted(
            np.concatenate([nothing, *(part.keys for part in parts)]),
            np.concatenate([nothing, *(part.numbers for part in parts)]),
        )

    @classmethod
    def _sorted(cls, keys: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> ForgottenStreams:
        if not len(keys):
            return cls(keys, numbers)
        order = np.argsort(keys, kind="stable")
        each, firsts = np.unique(keys[order], return_index=True)
        return cls(each, np.maximum.reduceat(numbers[order], firsts))

    def split(self, most_bytes: int) -> Iterator[ForgottenStreams]:
        """Yield records that hold these streams, with bodies of at most `most_bytes`."""
        rows = max(1, min(RECORD_KEYS, (most_bytes - _FRAME_BYTES) // _ENCODED_BYTES))
        for at in range(0, len(self), rows):
            yield ForgottenStreams(self.keys[at : at + rows], self.numbers[at : at + rows])

    def number(self, keys: Sequence[int]) -> int | None:
        """Return the latest number of the streams with some keys; None if none is among them."""
        wanted = np.array(keys, dtype=np.uint64)
        at = np.searchsorted(self.keys, wanted)
        is_found = self.keys[np.minimum(at, len(self) - 1)] == wanted if len(self) else at < 0
        return int(self.numbers[at[is_found]].max()) if is_found.any() else None

    def body(self) -> bytes:
        """Return the record's body."""
        document = {
            "kind": "forgotten",
            "keys": _text(self.keys),
            "numbers": _text(self.numbers),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> ForgottenStreams:
        """Read a record's body back; ValueError, KeyError or TypeError if it is none."""
        keys, numbers = _numbers(document["keys"]), _numbers(document["numbers"])
        if not 0 < len(keys) == len(numbers) or not (keys[:-1] < keys[1:]).all():
            message = "keys of forgotten streams are missing, not sorted, or without numbers"
            raise ValueError(message)
        return cls(keys, numbers)


def keys_for(tag: str, user: str) -> list[int]:
    """Return the keys by which a caller's stream is found if it is forgotten.

    They stand for the decisions that DecisionLookup.decision_for finds.
    """
    return [_key(tag, ""), _key(tag, user or None)]


def _key(tag: str, user: str | None) -> int:
    """Return the key of a user's stream; with None that of anybody's, whoever has a name."""
    # A tag has no space, so that no two pairs are one text.
    named = tag if user is None else f"{tag} {user}"
    return int.from_bytes(blake2b(named.encode(), digest_size=_KEY_BYTES).digest())


def _text(numbers: NDArray[np.uint64]) -> str:
    return b64encode(numbers.astype(_NUMBER).tobytes()).decode("ascii")


def _numbers(text: str) -> NDArray[np.uint64]:
    return np.frombuffer(b64decode(text, validate=True), dtype=_NUMBER).astype(np.uint64)
