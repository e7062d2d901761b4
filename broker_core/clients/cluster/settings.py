"""Settings of a cluster's client: plain values, so that they travel to executors.

Names are Python's or those of the connector's options: `tls_ca` is `tls.ca`. TLS is on when any
`tls_…` setting is given. `tls_ca` is a file of certificates to trust, `system` for the machine's
own, or `none` to encrypt without checking the server: RocketMQ's servers that are given no
certificate make themselves one, which no client can check.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker_core.codec.compression import Compression
from broker_core.codec.layout import MAX_BODY_BYTES
from broker_core.errors import ConfigError
from broker_core.store.broker_conf import parse_properties_file
from broker_core.wire.remoting.acl import SigningCredentials
from broker_core.wire.remoting.frame import MAX_FRAME_BYTES

DEFAULT_CONSUMER_GROUP = "pyspark-rocketmq"
DEFAULT_PRODUCER_GROUP = "pyspark-rocketmq"

_TRUST_SYSTEM = "system"
_TRUST_ANYONE = "none"


@dataclass(frozen=True)
class TlsSettings:
    """Settings of TLS. A server's certificate must be for `server_name`, by default its host."""

    ca: str = _TRUST_SYSTEM
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a new context; ConfigError naming the file that can't be used."""
        context = ssl.create_default_context()
        try:
            if self.ca == _TRUST_ANYONE:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            elif self.ca != _TRUST_SYSTEM:
                context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(name for name in (self.ca, self.cert, self.key) if name)
            raise ConfigError(f"The TLS files ({files}) can't be used: {error}.") from error
        return context


@dataclass(frozen=True)
class ClusterSettings:
    """All settings of a client; times in milliseconds, sizes in bytes.

    A read waits `pull_timeout_ms` for messages that must be there, brokers that restart included; a
    write waits `send_timeout_ms` for acknowledgements. `request_timeout_ms` bounds one request and
    its answer. `pulls_in_flight` and `pull_bytes_in_flight` bound one range being read,
    `sends_in_flight` the requests to one broker, `batch_bytes` the body of one request.
    """

    credentials: SigningCredentials | None = None
    tls: TlsSettings | None = None
    namespace: str = ""
    consumer_group: str = DEFAULT_CONSUMER_GROUP
    producer_group: str = DEFAULT_PRODUCER_GROUP
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 10_000
    pull_timeout_ms: int = 120_000
    send_timeout_ms: int = 60_000
    pulls_in_flight: int = 16
    pull_bytes_in_flight: int = 6 * 1024 * 1024
    sends_in_flight: int = 8
    batch_bytes: int = 1024 * 1024
    max_message_size: int = MAX_BODY_BYTES
    compression: Compression = "none"
    compression_threshold: int = 4096
    max_frame_bytes: int = MAX_FRAME_BYTES

    @classmethod
    def of(cls, config: Mapping[str, Any] | str | Path | None) -> ClusterSettings:
        """Return the settings in a mapping or a properties file; ConfigError for unknown ones."""
        if config is None:
            return cls()
        given = _read(config) if isinstance(config, (str, Path)) else config
        present = {_known(name): value for name, value in given.items() if value is not None}
        found = {name: _parse(name, present[name]) for name in present.keys() & _FIELDS}
        return replace(cls(), credentials=_credentials(present), tls=_tls(present), **found)


def _natural(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def _positive(value: Any) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _compression(value: Any) -> str:
    if value not in ("none", "zlib", "lz4", "zstd"):
        raise ValueError
    return str(value)


_NUMBER = "a number from 1"
_FIELDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "namespace": (_text, "a text"),
    "consumer_group": (_text, "a group's name"),
    "producer_group": (_text, "a group's name"),
    "connect_timeout_ms": (_positive, _NUMBER),
    "request_timeout_ms": (_positive, _NUMBER),
    "pull_timeout_ms": (_positive, _NUMBER),
    "send_timeout_ms": (_positive, _NUMBER),
    "pulls_in_flight": (_positive, _NUMBER),
    "pull_bytes_in_flight": (_positive, _NUMBER),
    "sends_in_flight": (_positive, _NUMBER),
    "batch_bytes": (_positive, _NUMBER),
    "max_message_size": (_positive, _NUMBER),
    "compression": (_compression, "none, zlib, lz4 or zstd"),
    "compression_threshold": (_natural, "a number from 0"),
    "max_frame_bytes": (_positive, _NUMBER),
}
_ACCESS = ("access_key", "secret_key", "security_token")
_TLS = ("tls_ca", "tls_cert", "tls_key", "tls_server_name")
_KNOWN = frozenset((*_FIELDS, *_ACCESS, *_TLS))


def _own_name(name: str) -> str:
    """Return the name of a setting in Python's spelling; options are spelled `tls.serverName`.

    >>> _own_name("accessKey"), _own_name("tls.serverName"), _own_name("pull_timeout_ms")
    ('access_key', 'tls_server_name', 'pull_timeout_ms')
    """
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name.replace(".", "_")).lower()


def _read(path: str | Path) -> dict[str, str]:
    try:
        return parse_properties_file(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} can't be read: {error.strerror}."
        ) from error


def _parse(name: str, value: Any) -> Any:
    parse, form = _FIELDS[name]
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Option {name} is {value!r}, expected {form}.") from error


def _known(name: str) -> str:
    own = _own_name(name)
    if own in _KNOWN:
        return own
    nearest = difflib.get_close_matches(own, _KNOWN, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(sorted(_KNOWN))}."
    raise ConfigError(f"A rocketmq:// broker has no option {name!r}; {hint}")


def _credentials(given: Mapping[str, Any]) -> SigningCredentials | None:
    access, secret, token = (given.get(name) for name in _ACCESS)
    if access is None and secret is None and token is None:
        return None
    if not access or not secret:
        missing = "accessKey" if not access else "secretKey"
        raise ConfigError(f"accessKey and secretKey go together; {missing} is missing.")
    return SigningCredentials(str(access), str(secret), str(token or ""))


def _tls(given: Mapping[str, Any]) -> TlsSettings | None:
    if not any(name in given for name in _TLS):
        return None
    ca, cert, key, server_name = (given.get(name) for name in _TLS)
    return TlsSettings(str(ca or _TRUST_SYSTEM), cert, key, server_name)
