"""Settings, credentials and texts: what is refused, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.clients.cluster.settings import ClusterSettings, TlsSettings
from broker_core.errors import (
    ConfigError,
)
from broker_core.wire.remoting.acl import SigningCredentials


def test_names_are_those_of_the_options() -> None:
    found = ClusterSettings.of(
        {
            "accessKey": "ak",
            "secretKey": "sk",
            "pullTimeoutMs": "5000",
            "compression": "zstd",
            "tls.ca": None,
        }
    )

    assert found.credentials == SigningCredentials("ak", "sk")
    assert (found.pull_timeout_ms, found.compression, found.tls) == (5000, "zstd", None)


def test_pythons_names_mean_the_same() -> None:
    spelled = ClusterSettings.of({"access_key": "ak", "secret_key": "sk", "tls_server_name": "b"})

    assert spelled == ClusterSettings.of(
        {"accessKey": "ak", "secretKey": "sk", "tls.serverName": "b"}
    )


def test_settings_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("consumerGroup = readers\ntls.ca = none\n")

    found = ClusterSettings.of(path)

    assert found.consumer_group == "readers"
    assert found.tls == TlsSettings("none")


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"pullTimeoutMs": "soon"}, "pull_timeout_ms is 'soon', expected a number"),
        ({"pullTimeoutMs": 0}, "expected a number from 1"),
        ({"compression": "rar"}, "none, zlib, lz4 or zstd"),
        ({"pullTimeout": 1}, "did you mean pull_timeout_ms"),
        ({"accessKey": "ak"}, "secretKey is missing"),
        ({"secretKey": "sk"}, "accessKey is missing"),
    ],
)
def test_wrong_settings_are_named(given_: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ClusterSettings.of(given_)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing"):
        ClusterSettings.of(tmp_path / "nothing.conf")


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        TlsSettings(str(tmp_path / "missing.pem")).context()


def test_secrets_are_in_no_text() -> None:
    settings = ClusterSettings.of({"accessKey": "ak", "secretKey": "hush", "securityToken": "tok"})

    assert "hush" not in repr(settings)
    assert "tok" not in str(settings)
