"""Endpoints: where one server listens, as routes and addresses write it."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """One server. The host of an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """The server that a text names; ValueError if it names none.

    >>> parse_endpoint("10.0.0.5:10911"), parse_endpoint("[::1]:9876")
    (Endpoint(host='10.0.0.5', port=10911), Endpoint(host='::1', port=9876))
    """
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text.strip()!r} is not host:port")
    return Endpoint(host, int(port))
