"""Broker addresses: the kind of broker, and its path or hosts.

    file:/abs/store   file:///abs/store   file:rel/store   a bare path      an embedded store
    grpc://host:port  grpcs://host:port                                    our remote broker
    rocketmq://host:port,host:port                                         an Apache cluster

Credentials are never part of an address: one that has them is refused without being printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

from broker_core.errors import AddressError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/@?#\[\]]+):([0-9]{1,5})\Z")
_BARE_CREDENTIALS = re.compile(r"[^/]*:[^/]*@")
_FORMS = (
    "file:/path/to/store, grpc://host:port, grpcs://host:port or rocketmq://nameserver:port[,…]"
)


class BrokerKind(Enum):
    """The kinds of broker, by the scheme of their addresses."""

    EMBEDDED = "file"
    REMOTE = "grpc"
    REMOTE_TLS = "grpcs"
    CLUSTER = "rocketmq"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A parsed address: `path` of an embedded store, or the `hosts` of the others."""

    kind: BrokerKind
    text: str
    path: Path | None = None
    hosts: tuple[str, ...] = ()


def parse_address(text: str) -> BrokerAddress:
    """Parse an address; AddressError says what is expected.

    >>> parse_address("rocketmq://ns1:9876,ns2:9876").hosts
    ('ns1:9876', 'ns2:9876')
    >>> parse_address("file:///data/store").path.as_posix()
    '/data/store'
    """
    if not text.strip():
        message = f"The broker address is empty; expected {_FORMS}."
        raise AddressError(message)
    match = _SCHEME.match(text)
    # A path may contain a colon; only what looks like scheme:// or file: is taken for a URL.
    if match is None or not (match[2].startswith("//") or match[1].lower() == "file"):
        if _BARE_CREDENTIALS.match(text):
            _refuse_credentials(text)
        return BrokerAddress(BrokerKind.EMBEDDED, text, Path(text))
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return _file_address(text, rest)
    _refuse_credentials(rest)
    try:
        kind = BrokerKind(scheme)
    except ValueError as error:
        message = f"Unknown kind of broker {scheme!r} in {text!r}; expected {_FORMS}."
        raise AddressError(message) from error
    return BrokerAddress(kind, text, hosts=_hosts(kind, text, rest))


def _refuse_credentials(rest: str) -> None:
    authority = rest.removeprefix("//")
    if "@" in authority:
        message = (
            "The broker address contains credentials (…@host), which would end up in logs and "
            "query plans; give accessKey and secretKey, or token, as options instead."
        )
        raise AddressError(message)


def _file_address(text: str, rest: str) -> BrokerAddress:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if "@" in host:
            _refuse_credentials(rest)
        if host not in ("", "localhost") or not slash:
            message = (
                f"A file: address names a path on this machine, not a host: {text!r}; expected "
                f"file:/path/to/store, file:///path/to/store or file:relative/path."
            )
            raise AddressError(message)
        rest = "/" + path
    if not rest:
        message = f"The broker address {text!r} has no path; expected file:/path/to/store."
        raise AddressError(message)
    return BrokerAddress(BrokerKind.EMBEDDED, text, Path(unquote(rest)))


def _hosts(kind: BrokerKind, text: str, rest: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in re.split("[,;]", rest.removeprefix("//").rstrip("/")))
    is_single = kind is not BrokerKind.CLUSTER
    for host in hosts:
        match = _HOST_PORT.match(host)
        if match is None or not 0 < int(match[2]) < 65536:
            message = f"{host!r} in broker address {text!r} is no host:port; expected {_FORMS}."
            raise AddressError(message)
    if is_single and len(hosts) > 1:
        message = f"A {kind.value}:// address has one host:port, not {len(hosts)}: {text!r}."
        raise AddressError(message)
    return hosts
