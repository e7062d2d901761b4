"""Bloom bitmaps: which registered SQL92 filters matched a message when it was stored.

A broker with `enableCalcFilterBitMap` evaluates every registered filter at dispatch and writes a
bitmap of m bits into the consume-queue extension. A filter owns k of the bits, which follow from
its consumer group and topic, and has them set on each message that it matches. A message on which
any of them is clear did not match, and need not be read; one that has all of them may match, and is
evaluated as usual. So bitmaps save work and never change a verdict.

Bit b is bit b % 8, least significant first, of byte b // 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_MASK64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomShape:
    """The shape of a bitmap: its bits (`m`, a multiple of 8) and those that a filter owns (`k`)."""

    k: int
    m: int

    @classmethod
    def of(cls, error_percent: int = 20, filters: int = 32) -> BloomShape:
        """Return the shape for `maxErrorRateOfBloomFilter` and `expectConsumerNumUseFilter`.

        >>> BloomShape.of(20, 32)
        BloomShape(k=3, m=112)
        """
        error = error_percent / 100
        k = math.ceil(math.log(error) / math.log(0.5))
        bits = math.ceil(filters * math.log2(1 / error) * math.log2(math.e))
        return cls(k, -(-bits // 8) * 8)

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits that a group's filter on a topic owns; some may be equal.

        >>> BloomShape(k=3, m=112).positions("GroupA", "TopicA")
        (29, 107, 11)
        """
        h = murmur3(f"{group}#{topic}".encode())
        low, high = h & 0xFFFFFFFF, h >> 32
        sums = ((low + i * high) & 0xFFFFFFFF for i in range(1, self.k + 1))
        # A sum that is negative as a signed integer is complemented.
        return tuple((v if v < 1 << 31 else v ^ 0xFFFFFFFF) % self.m for v in sums)

    def bitmap(self, positions: Iterable[int]) -> bytes:
        """Return the bitmap that has exactly these bits set."""
        data = bytearray(self.m // 8)
        for position in positions:
            data[position // 8] |= 1 << position % 8
        return bytes(data)


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1, k2 = _words(data[at : at + 16])
        h1 = (_rotate(h1 ^ _mix1(k1), 27) + h2) * 5 + 0x52DCE729 & _MASK64
        h2 = (_rotate(h2 ^ _mix2(k2), 31) + h1) * 5 + 0x38495AB5 & _MASK64
    k1, k2 = _words(data[whole:].ljust(16, b"\0"))
    h1 ^= _mix1(k1) ^ len(data)
    h2 ^= _mix2(k2) ^ len(data)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    return (_finish(h1) + _finish(h2)) & _MASK64


def _words(block: bytes) -> tuple[int, int]:
    return int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")


def _mix1(word: int) -> int:
    return _rotate(word * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mix2(word: int) -> int:
    return _rotate(word * _C2 & _MASK64, 33) * _C1 & _MASK64


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK64


def _finish(word: int) -> int:
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * multiplier & _MASK64
    return word ^ word >> 33
