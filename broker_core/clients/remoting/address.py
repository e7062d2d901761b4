"""Addresses: of a cluster (`rocketmq://ns1:9876,ns2:9876`) and of one server (`host:port`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from broker_core.errors import AddressError

SCHEME = "rocketmq://"
NAME_SERVER_PORT = 9876

_SEPARATOR = re.compile(r"[,;]")


class Endpoint(NamedTuple):
    """One server. The host of an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str, default_port: int | None = None) -> Endpoint:
    """The server that a text names; ValueError if it names none.

    >>> parse_endpoint("10.0.0.5:10911"), parse_endpoint("[::1]", 9876)
    (Endpoint(host='10.0.0.5', port=10911), Endpoint(host='::1', port=9876))
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip(), "" if default_port is None else str(default_port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text.strip()!r} is not host:port")
    return Endpoint(host, int(port))


def parse_cluster_address(address: str) -> tuple[Endpoint, ...]:
    """The name servers of a cluster, in the order written, each once.

    >>> [str(server) for server in parse_cluster_address("rocketmq://ns1:9876, ns2")]
    ['ns1:9876', 'ns2:9876']

    Raises:
        AddressError: The address names no server, or has credentials in it (not repeated then).
    """
    if "@" in address:
        raise AddressError(
            "A broker address must not hold credentials; give accessKey and secretKey as options."
        )
    form = "A cluster's address is rocketmq://host:port,host:port (its name servers)"
    if not address.startswith(SCHEME):
        raise AddressError(f"{form}, not {address!r}.")
    parts = [part for part in _SEPARATOR.split(address[len(SCHEME) :].rstrip("/")) if part.strip()]
    if not parts:
        raise AddressError(f"{form}, but {address!r} names none.")
    try:
        servers = [parse_endpoint(part, NAME_SERVER_PORT) for part in parts]
    except ValueError as error:
        raise AddressError(f"{form}; in {address!r} {error}.") from error
    return tuple(dict.fromkeys(servers))
