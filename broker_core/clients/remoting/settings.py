"""What a client of a cluster can be told. Plain values, so that they travel to executors.

Names are those of the connector's options where it has one. TLS is on when any `tls.` name is
given; `tls.ca` is a file of certificates to trust, `system` for the machine's own, or `none` to
encrypt without knowing to whom (RocketMQ's servers make themselves a certificate when they are
given none, and nobody can check that one).
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker_core.clients.remoting.acl import Credentials
from broker_core.clients.remoting.frame import MAX_FRAME_BYTES
from broker_core.codec.compression import Compression
from broker_core.codec.layout import MAX_BODY_BYTES
from broker_core.errors import ConfigError
from broker_core.store.properties_file import parse_properties_file

DEFAULT_CONSUMER_GROUP = "pyspark-rocketmq"
DEFAULT_PRODUCER_GROUP = "pyspark-rocketmq"

_TRUST_SYSTEM = "system"
_TRUST_ANYONE = "none"


@dataclass(frozen=True)
class TlsSettings:
    """How connections are encrypted. The certificate is held against `server_name`, or the host."""

    ca: str = _TRUST_SYSTEM
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """A fresh context; ConfigError naming the file that can't be used."""
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
    """All that a client can be told; times in milliseconds, sizes in bytes.

    `pull_timeout_ms` is how long a read waits for messages that must be there, brokers that
    restart included; `send_timeout_ms` the same for a write. `request_timeout_ms` bounds one
    question and its answer.
    """

    credentials: Credentials | None = None
    tls: TlsSettings | None = None
    namespace: str = ""
    consumer_group: str = DEFAULT_CONSUMER_GROUP
    producer_group: str = DEFAULT_PRODUCER_GROUP
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 10_000
    pull_timeout_ms: int = 120_000
    send_timeout_ms: int = 60_000
    pulls_in_flight: int = 16
    pull_bytes_in_flight: int = 16 * 1024 * 1024
    sends_in_flight: int = 8
    batch_bytes: int = 1024 * 1024
    max_message_size: int = MAX_BODY_BYTES
    compression: Compression = "none"
    compression_threshold: int = 4096
    max_frame_bytes: int = MAX_FRAME_BYTES

    @classmethod
    def of(cls, config: Mapping[str, Any] | str | Path | None) -> ClusterSettings:
        """The settings of a mapping or a properties file; ConfigError for what is unknown there."""
        if config is None:
            return cls()
        given = _read(config) if isinstance(config, (str, Path)) else config
        present = {name: value for name, value in given.items() if value is not None}
        for name in present:
            if name not in _FIELDS and name not in _SECURITY:
                raise ConfigError(_unknown(name))
        found = {_FIELDS[name][0]: _parse(name, present[name]) for name in present.keys() & _FIELDS}
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


_FIELDS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "namespace": ("namespace", _text, "a text"),
    "consumerGroup": ("consumer_group", _text, "a group's name"),
    "producerGroup": ("producer_group", _text, "a group's name"),
    "connectTimeoutMs": ("connect_timeout_ms", _positive, "a number from 1"),
    "requestTimeoutMs": ("request_timeout_ms", _positive, "a number from 1"),
    "pullTimeoutMs": ("pull_timeout_ms", _positive, "a number from 1"),
    "sendTimeoutMs": ("send_timeout_ms", _positive, "a number from 1"),
    "pullsInFlight": ("pulls_in_flight", _positive, "a number from 1"),
    "pullBytesInFlight": ("pull_bytes_in_flight", _positive, "a number from 1"),
    "sendsInFlight": ("sends_in_flight", _positive, "a number from 1"),
    "batchBytes": ("batch_bytes", _positive, "a number from 1"),
    "maxMessageSize": ("max_message_size", _positive, "a number from 1"),
    "compression": ("compression", _compression, "none, zlib, lz4 or zstd"),
    "compressionThreshold": ("compression_threshold", _natural, "a number from 0"),
    "maxFrameBytes": ("max_frame_bytes", _positive, "a number from 1"),
}
_ACCESS = ("accessKey", "secretKey", "securityToken")
_TLS = ("tls.ca", "tls.cert", "tls.key", "tls.serverName")
_SECURITY = frozenset(_ACCESS + _TLS)


def _read(path: str | Path) -> dict[str, str]:
    try:
        return parse_properties_file(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} can't be read: {error.strerror}."
        ) from error


def _parse(name: str, value: Any) -> Any:
    _, parse, form = _FIELDS[name]
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Setting {name} is {value!r}, expected {form}.") from error


def _unknown(name: str) -> str:
    known = sorted((*_FIELDS, *_SECURITY))
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]}" if nearest else f"known are {', '.join(known)}"
    return f"Setting {name} is unknown to rocketmq:// brokers; {hint}."


def _credentials(given: Mapping[str, Any]) -> Credentials | None:
    access, secret, token = (given.get(name) for name in _ACCESS)
    if access is None and secret is None and token is None:
        return None
    if not access or not secret:
        missing = "accessKey" if not access else "secretKey"
        raise ConfigError(f"accessKey and secretKey belong together; {missing} is missing.")
    return Credentials(str(access), str(secret), str(token or ""))


def _tls(given: Mapping[str, Any]) -> TlsSettings | None:
    if not any(name in given for name in _TLS):
        return None
    ca, cert, key, server_name = (given.get(name) for name in _TLS)
    return TlsSettings(str(ca or _TRUST_SYSTEM), cert, key, server_name)
