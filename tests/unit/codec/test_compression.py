"""Compressed bodies, one at a time."""

from __future__ import annotations

import pytest

from broker_core.codec.compression import (
    Compression,
    InflateError,
    compress,
    compression_flags,
    compression_of,
    decompress,
)

pytestmark = pytest.mark.usefixtures("either_way")

KINDS: list[Compression] = ["none", "zlib", "lz4", "zstd"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"x", b"Hello RocketMQ " * 1000], ids=["empty", "1", "15k"])
def test_a_body_comes_back_as_it_was_sent(kind: Compression, body: bytes) -> None:
    flags = compression_flags(kind)

    assert decompress(compress(body, kind), flags) == body
    assert compression_of(flags) == kind


def test_old_clients_leave_the_type_zero_and_mean_zlib() -> None:
    assert compression_of(0x1) == "zlib"
    assert decompress(compress(b"old", "zlib"), 0x1) == b"old"


@pytest.mark.parametrize("kind", KINDS[1:])
class TestRefusals:
    def test_a_body_cut_short_is_refused(self, kind: Compression) -> None:
        stored = compress(bytes(range(256)) * 20, kind)

        with pytest.raises(InflateError, match=f"not a whole {kind} stream"):
            decompress(stored[: len(stored) // 2], compression_flags(kind))

    def test_bytes_of_another_kind_are_refused(self, kind: Compression) -> None:
        with pytest.raises(InflateError, match=f"not a whole {kind} stream"):
            decompress(b"not compressed at all", compression_flags(kind))

    def test_a_body_beyond_the_limit_is_refused(self, kind: Compression) -> None:
        stored = compress(bytes(100_001), kind)

        assert len(decompress(stored, compression_flags(kind), limit=100_001)) == 100_001
        with pytest.raises(InflateError, match="more than 100000 bytes"):
            decompress(stored, compression_flags(kind), limit=100_000)
