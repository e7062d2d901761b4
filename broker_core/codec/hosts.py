"""Host addresses as records carry them: 4 or 16 address bytes, then the port as i32."""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from broker_core.codec.layout import HOST_V4, HOST_V6

_PORT = struct.Struct(">i")


@lru_cache(maxsize=1024)  # a broker's own host goes into every record, and parsing takes 4 µs
def pack_host(address: str, port: int) -> bytes:
    """Return the stored form of an address.

    >>> pack_host("127.0.0.1", 54321).hex()
    '7f0000010000d431'
    """
    return ipaddress.ip_address(address).packed + _PORT.pack(port)


def host_text(raw: bytes) -> str:
    """Return `address:port`, as RocketMQ's tools print it; IPv6 in the long form of Java.

    >>> host_text(bytes.fromhex("7f0000010000d431"))
    '127.0.0.1:54321'
    """
    (port,) = _PORT.unpack_from(raw, len(raw) - 4)
    return f"{_address_text(raw[:-4])}:{port}"


def _address_text(address: bytes) -> str:
    if len(address) == HOST_V4 - 4:
        return ".".join(str(part) for part in address)
    groups = struct.unpack(">8H", address)
    return "[" + ":".join(f"{group:x}" for group in groups) + "]"


def is_v6(raw: bytes) -> bool:
    """Tell whether a stored host is an IPv6 one."""
    return len(raw) == HOST_V6


def host_texts(raw: NDArray[np.uint8]) -> list[str]:
    """Return host_text of every row of a (rows, 8 or 20) matrix.

    Few distinct hosts are expected: each is made text once.
    """
    width = raw.shape[1]
    distinct, codes = np.unique(
        np.ascontiguousarray(raw).view(np.dtype((np.void, width)))[:, 0], return_inverse=True
    )
    texts = [host_text(item.tobytes()) for item in distinct]
    return [texts[code] for code in codes.tolist()]
