"""Options of a grpc:// broker: timeouts, TLS, credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import grpc

from broker_core.clients.address import BrokerAddress, BrokerKind
from broker_core.errors import AuthenticationError, ConfigError

_LOOPBACK = ("127.", "localhost:", "[::1]:")


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Options of a `grpc://` broker. Secrets are not shown by `repr`.

    `timeout_ms` is the deadline of one call. A call is retried for `retry_ms` while the broker
    can't be reached, so that a restart of it goes unnoticed. Opening is retried for `connect_ms` at
    most: the address may be wrong.
    """

    timeout_ms: int = 30_000
    retry_ms: int = 60_000
    connect_ms: int = 20_000
    token: str | None = field(default=None, repr=False)
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GrpcOptions:
        """Return options of a mapping; raise ConfigError for one that does not exist."""
        known = {each.name for each in fields(cls)}
        for name in given:
            if name not in known:
                names = ", ".join(sorted(known))
                message = f"A grpc:// broker has no option {name!r}; it has {names}."
                raise ConfigError(message)
        options = cls(**given)
        if options.token is not None and not (options.token.isascii() and options.token.strip()):
            message = "A token is ASCII text that is not empty."
            raise ConfigError(message)
        if (options.access_key is None) != (options.secret_key is None):
            message = "Give both accessKey and secretKey, or neither."
            raise ConfigError(message)
        return options

    @property
    def has_credentials(self) -> bool:
        """True if calls carry credentials."""
        return self.token is not None or self.access_key is not None

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return the metadata with credentials that every call carries."""
        if self.token is not None:
            return (("authorization", f"Bearer {self.token}"),)
        if self.access_key is not None:
            return (
                ("x-rocketmq-access-key-bin", self.access_key.encode()),
                ("x-rocketmq-secret-key-bin", (self.secret_key or "").encode()),
            )
        return ()

    def channel_credentials(self, address: BrokerAddress) -> grpc.ChannelCredentials | None:
        """Return the TLS of a grpcs:// address, None for a plain one.

        Raise AuthenticationError if secrets would travel in plain text to another machine.
        """
        if address.kind is BrokerKind.REMOTE_TLS:
            return grpc.ssl_channel_credentials(
                root_certificates=_read(self.tls_ca, "tls.ca"),
                private_key=_read(self.tls_key, "tls.key"),
                certificate_chain=_read(self.tls_cert, "tls.cert"),
            )
        if self.has_credentials and not address.hosts[0].startswith(_LOOPBACK):
            message = (
                f"Credentials are not sent in plain text to another machine ({address.text}); use "
                f"grpcs://."
            )
            raise AuthenticationError(message)
        return None


def _read(path: str | None, option: str) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"Can't read {path}, which {option} names: {error.strerror}."
        raise ConfigError(message) from error
