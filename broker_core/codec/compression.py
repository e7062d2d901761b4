"""Compression of bodies, as SYSFLAG states it.

    bit 0 set, type 0 or 3   zlib (old clients leave the type 0)
    bit 0 set, type 1        LZ4 frame
    bit 0 set, type 2        Zstandard frame

The stored checksum is of the compressed bytes. RocketMQ does not limit how far a body may grow when
it is inflated; we do: a body over MAX_INFLATED_BYTES (64 MiB) is refused, not served. What clients
send is limited further (broker/admission/records.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from broker_core.codec.layout import COMPRESSION_MASK, COMPRESSION_SHIFT, SysFlag

Compression = Literal["none", "zlib", "lz4", "zstd"]

MAX_INFLATED_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1 << 20

_FLAGS: dict[Compression, int] = {
    "none": 0,
    "zlib": SysFlag.COMPRESSED | SysFlag.ZLIB,
    "lz4": SysFlag.COMPRESSED | SysFlag.LZ4,
    "zstd": SysFlag.COMPRESSED | SysFlag.ZSTD,
}
_NAMES: dict[int, Compression] = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


class InflateError(ValueError):
    """Bytes that are not what their flag says, or that grow beyond the limit."""


def compression_flags(compression: Compression) -> int:
    """Return the SYSFLAG bits that say how a body is compressed."""
    return int(_FLAGS[compression])


def compression_of(sys_flag: int) -> Compression:
    """Return how a record's body is compressed; InflateError for a type that is unknown."""
    if not sys_flag & SysFlag.COMPRESSED:
        return "none"
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if kind not in _NAMES:
        message = f"compression type {kind} is unknown (known: 0 to 3)"
        raise InflateError(message)
    return _NAMES[kind]


def compress(body: bytes, compression: Compression) -> bytes:
    """Return the stored form of a body."""
    if compression == "none":
        return body
    if compression == "zlib":
        return zlib.compress(body)
    return bytes(pa.Codec(compression).compress(body, asbytes=True))


def decompress(body: bytes, sys_flag: int, limit: int = MAX_INFLATED_BYTES) -> bytes:
    """Return the body as it was sent; InflateError for more than `limit` bytes."""
    compression = compression_of(sys_flag)
    if compression == "none":
        return body
    try:
        found = _zlib(body, limit) if compression == "zlib" else _framed(body, compression, limit)
    except (zlib.error, pa.ArrowException, OSError) as error:
        message = f"{len(body)} bytes are not a whole {compression} stream ({error})"
        raise InflateError(message) from error
    if len(found) > limit:
        message = f"a {compression} body of {len(body)} bytes inflates to more than {limit} bytes"
        raise InflateError(message)
    return found


def require_inflatable(body: bytes, sys_flag: int, limit: int = MAX_INFLATED_BYTES) -> int:
    """Return the length of a body as it was sent; raise InflateError if `decompress` would.

    Takes 1 MiB, whatever a body grows to.
    """
    compression = compression_of(sys_flag)
    if compression == "none":
        return len(body)
    grown = 0
    try:
        for size in _chunk_sizes(body, compression):
            grown += size
            if grown > limit:
                message = (
                    f"a {compression} body of {len(body)} bytes inflates to more than {limit} bytes"
                )
                raise InflateError(message)
    except (zlib.error, pa.ArrowException, OSError) as error:
        message = f"{len(body)} bytes are not a whole {compression} stream ({error})"
        raise InflateError(message) from error
    return grown


def _chunk_sizes(body: bytes, compression: Compression) -> Iterator[int]:
    """Inflate a body chunk by chunk; yield how long each is."""
    if compression != "zlib":
        with pa.CompressedInputStream(pa.BufferReader(body), compression) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield len(chunk)
        return
    inflater, left = zlib.decompressobj(), body
    while not inflater.eof:
        chunk = inflater.decompress(left, _CHUNK_BYTES)
        left = inflater.unconsumed_tail
        if not chunk and not left:
            message = "it ends early"
            raise zlib.error(message)
        yield len(chunk)


def _zlib(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    found = inflater.decompress(body, limit + 1)  # one byte more tells that there is more
    if not inflater.eof and len(found) <= limit:
        message = "it ends early"
        raise zlib.error(message)
    return found


def _framed(body: bytes, compression: Compression, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(body), compression) as stream:
        return bytes(stream.read(limit + 1))
