"""TLS of the server: its certificate, and the authority of clients' certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from broker_core.service.settings import ServiceSettings


def server_credentials(settings: ServiceSettings) -> grpc.ServerCredentials | None:
    """Return the TLS that the settings ask for, None for a plain port.

    Raise ConfigError if a file can't be read, or if the certificate or its key is missing.
    """
    if not (settings.tls_cert or settings.tls_key or settings.tls_client_ca):
        return None
    if not (settings.tls_cert and settings.tls_key):
        message = "TLS needs both grpcTlsCert and grpcTlsKey."
        raise ConfigError(message)
    pair = (_read(settings.tls_key, "grpcTlsKey"), _read(settings.tls_cert, "grpcTlsCert"))
    if not settings.tls_client_ca:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials(
        [pair],
        root_certificates=_read(settings.tls_client_ca, "grpcTlsClientCa"),
        require_client_auth=True,
    )


def _read(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"Can't read {path}, which {setting} names: {error.strerror}."
        raise ConfigError(message) from error
