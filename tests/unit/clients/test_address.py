from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.clients.address import BrokerKind, parse_address
from broker_core.errors import AddressError, RequestError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:/abs/store", "/abs/store"),
        ("file:///abs/store", "/abs/store"),
        ("file://localhost/abs/store", "/abs/store"),
        ("file:rel/store", "rel/store"),
        ("FILE:/abs/store", "/abs/store"),
        ("file:/with%20space", "/with space"),
        ("/abs/store", "/abs/store"),
        ("rel/store", "rel/store"),
        ("store", "store"),
        ("odd:name/store", "odd:name/store"),
    ],
)
def test_paths_are_embedded_stores(text: str, path: str) -> None:
    address = parse_address(text)

    assert (address.kind, address.path) == (BrokerKind.EMBEDDED, Path(path))


@pytest.mark.parametrize(
    ("text", "kind", "hosts"),
    [
        ("grpc://host:8081", BrokerKind.REMOTE, ("host:8081",)),
        ("grpcs://h.example:443/", BrokerKind.REMOTE_TLS, ("h.example:443",)),
        ("grpc://[::1]:8081", BrokerKind.REMOTE, ("[::1]:8081",)),
        ("rocketmq://ns1:9876,ns2:9876", BrokerKind.CLUSTER, ("ns1:9876", "ns2:9876")),
        ("rocketmq://ns1:9876;ns2:9876", BrokerKind.CLUSTER, ("ns1:9876", "ns2:9876")),
    ],
)
def test_urls_name_hosts(text: str, kind: BrokerKind, hosts: tuple[str, ...]) -> None:
    address = parse_address(text)

    assert (address.kind, address.hosts) == (kind, hosts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "file:",
        "file://otherhost/path",
        "http://host:80",
        "kafka://host:9092",
        "grpc://host",
        "grpc://host:port",
        "grpc://host:99999",
        "grpc://",
        "grpc://a:1,b:2",
        "rocketmq://ns1:9876,",
    ],
)
def test_other_addresses_are_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(AddressError, match=r"expected|has one host"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "grpc://user:hunter2@host:8081",
        "rocketmq://user:hunter2@ns1:9876",
        "rocketmq://ns1:9876,user:hunter2@ns2:9876",
        "file://user:hunter2@host/path",
        "http://user:hunter2@host",
        "user:hunter2@host:9876",
    ],
)
def test_credentials_in_an_address_are_refused_and_never_printed(text: str) -> None:
    with pytest.raises(AddressError, match="credentials") as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize(
    ("mode", "create", "message"), [("w", False, "mode='w'"), ("r", True, "create=True")]
)
def test_a_mode_that_is_none_is_refused(
    tmp_path: Path, mode: str, create: bool, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        open_broker(tmp_path, mode=mode, create=create)  # type: ignore[arg-type]  # wrong on purpose
    assert list(tmp_path.iterdir()) == []
