"""Clusters that want to know who asks, over connections that nobody else reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker_core import open_broker
from broker_core.clients.cluster.net.connection import RemotingConnection
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.errors import (
    AuthenticationError,
    BrokerError,
    PermissionDeniedError,
    UnavailableError,
)
from broker_core.wire.remoting.command import Request
from broker_core.wire.remoting.route import parse_endpoint
from broker_core.wire.remoting.status import require_success
from tests.interop.cluster.opening import await_count, opened
from tests.interop.kit.servers import Broker, NameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TLS = Path(__file__).with_name("tls")
SERVER_OPTIONS = {
    "tls.server.mode": "enforcing",
    "tls.test.mode.enable": "false",
    "tls.server.certPath": TLS / "server.pem",
    "tls.server.keyPath": TLS / "server.key",
    "tls.enable": "true",  # A broker is a client of its name servers.
    "tls.client.authServer": "false",
}
TRUSTING: dict[str, Any] = {"tls.ca": str(TLS / "ca.pem"), "tls.serverName": "broker.test"}
ANYONE: dict[str, Any] = {"tls.ca": "none"}
SYSTEM: dict[str, Any] = {"tls.ca": "system"}
OWNER: dict[str, Any] = {"accessKey": "owner", "secretKey": "owner-secret"}
GUEST: dict[str, Any] = {"accessKey": "guest", "secretKey": "guest-secret"}

_PROVIDERS = "org.apache.rocketmq.auth"
AUTH = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps({"username": "owner", "password": "owner-secret"}),
    "innerClientAuthenticationCredentials": json.dumps(OWNER),
}
CREATE_USER = 3001


def test_keys_and_certificates_are_asked_for_and_checked(
    monkeypatch: pytest.MonkeyPatch, apache: None, tmp_path: Path
) -> None:
    options = " ".join(f"-D{name}={value}" for name, value in SERVER_OPTIONS.items())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    settings = {**AUTH, "authConfigPath": tmp_path / "auth"}

    with (
        NameServer(tmp_path) as name_server,
        Broker(tmp_path / "store", name_server, tmp_path, settings) as broker,
        opened(name_server.address, **OWNER, **TRUSTING) as ours,
    ):
        address = f"rocketmq://{name_server.address}"
        ours.create_topic("Guarded", 1)
        ours.send("Guarded", b"secret")
        await_count(ours, "Guarded", 1)
        read = ours.read("Guarded").column("body").to_pylist()

        wrong = open_broker(address, "rw", **{**OWNER, "secretKey": "wrong"}, **TRUSTING)
        with pytest.raises(AuthenticationError, match="Check accessKey and secretKey") as caught:
            wrong.send("Guarded", b"x")
        assert "wrong" not in str(caught.value)
        with pytest.raises(BrokerError) as caught_nobody:
            open_broker(address, "rw", **TRUSTING).read("Guarded")
        assert isinstance(caught_nobody.value, AuthenticationError | PermissionDeniedError)

        _create_user(broker, "guest", "guest-secret")
        guest = open_broker(address, "rw", **GUEST, **TRUSTING)
        with pytest.raises(PermissionDeniedError):
            guest.read("Guarded")

        anyone = open_broker(address, **OWNER, **ANYONE)
        assert len(anyone.read("Guarded")) == 1
        with pytest.raises(UnavailableError, match=r"certificate of .* is not trusted"):
            open_broker(address, **OWNER, **{**TRUSTING, "tls.serverName": "other.test"}).topics()
        with pytest.raises(UnavailableError, match=r"certificate of .* is not trusted"):
            open_broker(address, **OWNER, **SYSTEM).topics()
        with pytest.raises(UnavailableError):
            open_broker(address, **OWNER).topics()
        broker.kill()
        name_server.kill()

    assert read == [b"secret"]


def _create_user(broker: Broker, name: str, password: str) -> None:
    """Make a user without any rights, as an operator would."""
    settings = ClusterSettings.of({**OWNER, **TRUSTING})
    user = {"username": name, "password": password, "userType": "Normal", "userStatus": "enable"}
    request = Request(CREATE_USER, {"username": name}, json.dumps(user).encode())
    answer = RemotingConnection(parse_endpoint(broker.address), settings).call(request)
    require_success(answer, broker.address)


ACL_4 = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: readerkey
    secretKey: readersecret
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
  - accessKey: ownerkey
    secretKey: ownersecret
    whiteRemoteAddress:
    admin: true
"""


def test_keys_of_release_4_are_checked(
    monkeypatch: pytest.MonkeyPatch, name_server: NameServer, tmp_path: Path
) -> None:
    owner: dict[str, Any] = {"accessKey": "ownerkey", "secretKey": "ownersecret"}
    reader: dict[str, Any] = {"accessKey": "readerkey", "secretKey": "readersecret"}
    (tmp_path / "accounts.yml").write_text(ACL_4)
    # Looked up in the broker's home, which lies beside it.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Drocketmq.acl.plain.file=../accounts.yml")
    settings = {"aclEnable": "true"}

    with (
        Broker(tmp_path / "store", name_server, tmp_path, settings, version="4.9.7") as broker,
        opened(name_server.address, **owner) as ours,
    ):
        address = f"rocketmq://{name_server.address}"
        ours.create_topic("Guarded", 1)
        ours.send("Guarded", b"secret")
        await_count(ours, "Guarded", 1)

        assert len(open_broker(address, **reader).read("Guarded")) == 1
        with pytest.raises(PermissionDeniedError):
            open_broker(address, "rw", **reader).send("Guarded", b"x")
        with pytest.raises(AuthenticationError):
            open_broker(address, **{**reader, "secretKey": "wrong"}).read("Guarded")
        with pytest.raises(AuthenticationError):
            open_broker(address).read("Guarded")
        broker.kill()
