"""Settings of a server: a broker.conf with Apache's names for Apache's settings, and ours.

Settings of the store are in store/settings.py; the others are here, one row of OPTIONS each. A name
that neither knows is no error, since a broker.conf has hundreds that mean nothing here. It is
logged as a warning, with the nearest name that is known.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from broker_core.errors import ConfigError
from broker_core.store.broker_conf import parse_properties_file
from broker_core.store.settings import KNOWN_NAMES, StoreSettings
from broker_core.wire.core.methods import Limits

PAGE_BYTES = 4096
_MEGABYTE = 1 << 20
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})\Z")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """All settings of a server. `unknown` holds names that neither table knows."""

    store: StoreSettings = field(default_factory=StoreSettings)
    listen: str = "127.0.0.1:8081"
    metrics_listen: str = ""
    chunk_bytes: int = 4 * _MEGABYTE
    append_bytes: int = 128 * _MEGABYTE
    in_flight_bytes: int = 256 * _MEGABYTE
    max_calls: int = 256
    max_connections: int = 1024
    flush_interval_ms: int = 500
    clean_interval_ms: int = 10_000
    creates_topics: bool = False
    is_pooled: bool = False
    commit_interval_ms: int = 200
    commit_least_pages: int = 4
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    credentials_file: str = ""
    unknown: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None) -> ServiceSettings:
        """Return the settings of a broker.conf, or defaults; raise ConfigError for a bad one."""
        if path is None:
            return cls()
        store = StoreSettings.load(path)
        texts = parse_properties_file(Path(path).read_text(encoding="utf-8"))
        return cls.of(texts, str(path), store)

    @classmethod
    def of(
        cls, texts: Mapping[str, str], origin: str, store: StoreSettings | None = None
    ) -> ServiceSettings:
        """Return the settings of a mapping with a broker.conf's names."""
        values: dict[str, Any] = {"store": StoreSettings.load(texts) if store is None else store}
        for name, option in OPTIONS.items():
            if name not in texts:
                continue
            try:
                values[option.attribute] = option.parse(texts[name].strip())
            except ValueError as error:
                message = (
                    f"{name} in {origin} is {texts[name]!r}, expected {option.expected} "
                    f"(example: {name}={option.example})."
                )
                raise ConfigError(message) from error
        known = KNOWN_NAMES | OPTIONS.keys() | IGNORED
        settings = cls(**values, unknown=tuple(sorted(texts.keys() - known)))
        settings._require_sense(origin)
        return settings

    def _require_sense(self, origin: str) -> None:
        if self.is_pooled and self.store.flush == "sync":
            message = (
                f"{origin} has both transientStorePoolEnable=true, which acknowledges messages "
                f"in memory, and flushDiskType=SYNC_FLUSH, which promises that they are on the "
                f"disk; choose ASYNC_FLUSH, or no pool."
            )
            raise ConfigError(message)

    @property
    def commit_least_bytes(self) -> int:
        """Bytes in the transient pool that are committed before the interval is over."""
        return self.commit_least_pages * PAGE_BYTES

    @property
    def limits(self) -> Limits:
        """Bytes that a client may send at once."""
        return Limits(self.store.max_message_bytes, self.chunk_bytes, self.append_bytes)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        host = self.listen.rpartition(":")[0]
        return host in _LOOPBACK or host.startswith("127.")

    @property
    def is_secure(self) -> bool:
        """True if connections are encrypted and every client is authenticated."""
        return bool(self.tls_cert and (self.credentials_file or self.tls_client_ca))

    def listening_at(self, address: str | None) -> ServiceSettings:
        """Return the settings with another address to listen at, if one is given."""
        return self if address is None else replace(self, listen=parse_listen(address))

    def warnings(self) -> list[str]:
        """Return a line for each unknown name."""
        lines = []
        known = sorted(KNOWN_NAMES | OPTIONS.keys())
        for name in self.unknown:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            advice = f"did you mean {near[0]}?" if near else "it is not used here."
            lines.append(f"unknown setting {name}; {advice}")
        return lines


def parse_listen(text: str) -> str:
    """Return `host:port`, checked; raise ConfigError if it is none. Port 0 is any free port."""
    match = _ADDRESS.match(text)
    if match is None or int(match[2]) > 65535:
        message = f"{text!r} is no address to listen at; give host:port, as in 127.0.0.1:8081."
        raise ConfigError(message)
    return text


class _Option(NamedTuple):
    attribute: str
    parse: Callable[[str], Any]
    expected: str
    example: str


def _number(attribute: str, low: int, high: int, default: int) -> _Option:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            message = f"{value} is not within {low} to {high}"
            raise ValueError(message)
        return value

    return _Option(attribute, parse, f"a number from {low} to {high}", str(default))


def _switch(attribute: str) -> _Option:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    return _Option(attribute, parse, "true or false", "true")


def _text(attribute: str, expected: str, example: str) -> _Option:
    return _Option(attribute, str, expected, example)


def _address(attribute: str, example: str) -> _Option:
    def parse(text: str) -> str:
        try:
            return parse_listen(text)
        except ConfigError as error:
            raise ValueError(text) from error

    return _Option(attribute, parse, "host:port", example)


_MONTH_MS = 31 * 86_400_000

OPTIONS: Mapping[str, _Option] = {
    # Apache's
    "flushIntervalCommitLog": _number("flush_interval_ms", 1, _MONTH_MS, 500),
    "autoCreateTopicEnable": _switch("creates_topics"),
    "transientStorePoolEnable": _switch("is_pooled"),
    "commitIntervalCommitLog": _number("commit_interval_ms", 1, _MONTH_MS, 200),
    "commitCommitLogLeastPages": _number("commit_least_pages", 0, 1 << 20, 4),
    "cleanResourceInterval": _number("clean_interval_ms", 1, _MONTH_MS, 10_000),
    # Ours
    "grpcListenAddress": _address("listen", "127.0.0.1:8081"),
    "grpcMaxChunkBytes": _number("chunk_bytes", 4096, 16 * _MEGABYTE, 4 * _MEGABYTE),
    "grpcMaxAppendBytes": _number("append_bytes", 4096, 1 << 30, 128 * _MEGABYTE),
    "grpcMaxInFlightBytes": _number("in_flight_bytes", 4096, 1 << 40, 256 * _MEGABYTE),
    "grpcMaxCalls": _number("max_calls", 1, 10_000, 256),
    "grpcMaxConnections": _number("max_connections", 1, 100_000, 1024),
    "grpcTlsCert": _text("tls_cert", "a path", "broker.pem"),
    "grpcTlsKey": _text("tls_key", "a path", "broker.key"),
    "grpcTlsClientCa": _text("tls_client_ca", "a path", "clients.pem"),
    "grpcCredentialsFile": _text("credentials_file", "a path", "credentials.json"),
    "metricsListenAddress": _address("metrics_listen", "127.0.0.1:5557"),
}
IGNORED = frozenset({"brokerId", "brokerRole", "namesrvAddr", "storePathConsumeQueue"})
"""Names that every broker.conf of Apache's has and that a single broker does not use."""
