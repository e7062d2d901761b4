"""Security of the port: who is let in, what they may do, and that refusals change nothing."""

from __future__ import annotations

import json
import logging
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from broker_core import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    MessageNotFoundError,
    PermissionDeniedError,
    UnavailableError,
    open_broker,
)
from broker_core.api import Broker
from broker_core.clients.grpc.options import GrpcOptions
from broker_core.service import server
from broker_core.service.auth.credentials import hash_secret
from broker_core.service.main import BrokerProcess
from broker_core.store.check.store import check
from broker_core.wire.core.methods import METHODS, Method
from tests.contract.conftest import AnyBroker
from tests.contract.test_messages import outgoing
from tests.kit.served import served

TLS = Path(__file__).resolve().parents[3] / "fixtures" / "tls"
ADMIN = {"access_key": "admin", "secret_key": "hush"}
WRITER = {"token": "writer.hush"}
READER = {"token": "reader.hush"}
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
"""The first words of an HTTP/2 client: the preface, and settings without any."""


@pytest.fixture(scope="module")
def credentials_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    secret = hash_secret("hush")

    def user(name: str, topics: str, *rights: str) -> dict[str, Any]:
        return {"name": name, "secret": secret, "rules": [{"topics": topics, "rights": rights}]}

    users = [
        user("admin", "*", "admin"),
        user("writer", "orders", "publish"),
        user("reader", "orders", "subscribe"),
    ]
    path = tmp_path_factory.mktemp("credentials") / "credentials.json"
    path.write_text(json.dumps({"users": users}), "utf-8")
    return path


@pytest.fixture
def guarded(tmp_path: Path, credentials_file: Path) -> Iterator[BrokerProcess]:
    """A broker with credentials and two topics, a message in each."""
    settings = {"grpcCredentialsFile": str(credentials_file)}
    with served(tmp_path / "store", settings) as process:
        with open_as(process, ADMIN) as broker:
            for topic in ("orders", "secrets"):
                broker.create_topic(topic, queues=1)
                broker.send(topic, b"hello", keys=["k"])
        yield process


def open_as(process: BrokerProcess, who: dict[str, Any]) -> AnyBroker:
    return cast("AnyBroker", open_broker(process.address, mode="rw", retry_ms=0, **who))


# Credentials


def test_without_credentials_nothing_is_told(guarded: BrokerProcess) -> None:
    with pytest.raises(AuthenticationError, match="asks for credentials"):
        open_as(guarded, {})


@pytest.mark.parametrize(
    "who",
    [
        {"token": "writer.wrong"},
        {"token": "nobody.hush"},
        {"access_key": "admin", "secret_key": "wrong"},
    ],
)
def test_wrong_credentials_are_refused_without_a_hint(
    guarded: BrokerProcess, who: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    with pytest.raises(AuthenticationError, match=r"^The credentials are wrong") as caught:
        open_as(guarded, who)
    assert "wrong" not in repr(GrpcOptions.of(who))
    assert not any(secret in caplog.text for secret in ("writer.wrong", "nobody.hush"))
    assert "hush" not in str(caught.value)


def test_rights_are_kept_topic_by_topic(guarded: BrokerProcess) -> None:
    with open_as(guarded, WRITER) as writer, open_as(guarded, READER) as reader:
        denied: list[Callable[[], object]] = [
            lambda: writer.send("secrets", b"x"),
            lambda: writer.append(outgoing(b"x", topic="secrets")),
            lambda: writer.read("orders"),
            lambda: writer.offsets("orders"),
            lambda: writer.query("orders", "k"),
            lambda: writer.create_topic("more"),
            lambda: writer.delete_topic("orders"),
            lambda: writer.delete_before(0),
            lambda: writer.commit_offset("g", "orders", 0, 0),
            lambda: reader.send("orders", b"x"),
            lambda: reader.append(outgoing(b"x")),
            lambda: reader.read("secrets"),
            lambda: reader.describe("secrets"),
            lambda: reader.add_queues("orders", 9),
            lambda: reader.transactions.prepare("orders", b"x", group="g"),
            reader.transactions.check_back,
        ]

        for ask in denied:
            with pytest.raises(PermissionDeniedError):
                ask()
        writer.send("orders", b"more")
        assert reader.read("orders").num_rows == 2
        assert reader.topics() == ["orders"]
    with open_as(guarded, ADMIN) as admin:
        assert admin.topics() == ["orders", "secrets"]
        assert admin.read("secrets").num_rows == 1


def test_a_message_of_a_topic_that_is_not_theirs_is_not_there(guarded: BrokerProcess) -> None:
    with open_as(guarded, ADMIN) as admin, open_as(guarded, READER) as reader:
        [row] = admin.read("secrets", columns=["msgId", "offsetMsgId"]).to_pylist()

        for message_id in row.values():
            with pytest.raises(MessageNotFoundError):
                reader.message(message_id)
            assert admin.message(message_id).num_rows == 1


def test_secrets_do_not_travel_in_plain_text_to_other_machines() -> None:
    with pytest.raises(AuthenticationError, match="plain text to another machine"):
        open_broker("grpc://192.0.2.1:8081", retry_ms=0, token="writer.hush")


# TLS


def tls_settings(**more: str) -> dict[str, str]:
    return {"grpcTlsCert": str(TLS / "broker.pem"), "grpcTlsKey": str(TLS / "broker.key"), **more}


def open_tls(process: BrokerProcess, **options: str) -> Broker:
    files: dict[str, Any] = {name: str(TLS / value) for name, value in options.items()}
    return open_broker(process.address, mode="rw", retry_ms=0, **files)


def test_a_broker_is_reached_by_its_certificate(tmp_path: Path) -> None:
    with served(tmp_path / "store", tls_settings()) as process:
        assert process.address.startswith("grpcs://")
        with open_tls(process, tls_ca="ca.pem") as broker:
            broker.create_topic("t")

            assert broker.topics() == ["t"]
        with open_broker(
            process.address.replace("127.0.0.1", "localhost"),
            tls_ca=str(TLS / "ca.pem"),
            tls_server_name="localhost",
        ) as named:
            assert named.topics() == ["t"]


@pytest.mark.parametrize("authority", ["other.pem", "client.pem"])
def test_a_broker_of_another_authority_is_not_trusted(tmp_path: Path, authority: str) -> None:
    with served(tmp_path / "store", tls_settings()) as process, pytest.raises(UnavailableError):
        open_tls(process, tls_ca=authority)


def test_an_expired_certificate_is_not_trusted(tmp_path: Path) -> None:
    expired = tls_settings(grpcTlsCert=str(TLS / "expired.pem"))
    with served(tmp_path / "store", expired) as process, pytest.raises(UnavailableError):
        open_tls(process, tls_ca="ca.pem")


def test_plain_text_is_no_way_in(tmp_path: Path) -> None:
    with served(tmp_path / "store", tls_settings()) as process, pytest.raises(UnavailableError):
        open_broker(process.address.replace("grpcs:", "grpc:"), retry_ms=0)


def test_tls_to_a_plain_port_fails(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process:
        address = process.address.replace("grpc:", "grpcs:")
        with pytest.raises(UnavailableError):
            open_broker(address, retry_ms=0, tls_ca=str(TLS / "ca.pem"))


def test_clients_show_a_certificate_if_they_must(tmp_path: Path) -> None:
    mutual = tls_settings(grpcTlsClientCa=str(TLS / "ca.pem"))
    with served(tmp_path / "store", mutual) as process:
        with open_tls(process, tls_ca="ca.pem", tls_cert="client.pem", tls_key="client.key") as one:
            assert one.topics() == []
        with pytest.raises(UnavailableError):
            open_tls(process, tls_ca="ca.pem")
        with pytest.raises(UnavailableError):
            open_tls(process, tls_ca="ca.pem", tls_cert="other.pem", tls_key="other.key")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"grpcTlsCert": "x.pem"}, "needs both"),
        ({"grpcTlsCert": "x.pem", "grpcTlsKey": "x.key"}, "Can't read x.key"),
        ({"grpcCredentialsFile": "none.json"}, "Can't read credentials"),
    ],
)
def test_files_that_are_not_there_are_named(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words), served(tmp_path / "store", settings):
        pass


# Requests that make no sense


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_requests_that_are_noise_are_refused_and_change_nothing(
    tmp_path: Path, method: Method
) -> None:
    noise = random.Random(method.name)
    raw = [noise.randbytes(noise.randrange(200)) for _ in range(20)] + [b"", b"\xff" * 64]
    with (
        served(tmp_path / "store") as process,
        open_broker(process.address, mode="rw") as broker,
    ):
        broker.create_topic("t", queues=1)
        broker.send("t", b"hello")
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
            call = getattr(channel, method.shape.value)(method.path)
            for request in raw:
                _provoke(call, method, request)

        assert "t" in broker.topics()
        assert broker.read("t").column("body").to_pylist() == [b"hello"]
    assert check(tmp_path / "store") == []


def _provoke(call: Any, method: Method, request: bytes) -> None:
    """Ask, and take any answer or a status; but no bug of ours."""
    given: Any = iter([request]) if method.shape.value == "stream_unary" else request
    try:
        answer = call(given, timeout=5 if method.name != "Listen" else 0.1)
        for _ in answer if method.shape.value == "unary_stream" else ():
            break
    except grpc.RpcError as error:
        details = error.details() or ""
        assert "in a way that it should not" not in details, details


def test_a_message_over_the_limit_costs_a_status_and_no_more(tmp_path: Path) -> None:
    settings = {"maxMessageSize": "1000", "grpcMaxChunkBytes": "4096", "grpcMaxAppendBytes": "9999"}
    with (
        served(tmp_path / "store", settings) as process,
        open_broker(process.address, mode="rw", retry_ms=0) as broker,
    ):
        broker.create_topic("orders", queues=1)
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
            call = channel.unary_unary("/rocketmq.broker.v1.Broker/Append")
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(1 << 20))

        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(BrokerError, match="9999 is the broker's limit"):
            broker.append(outgoing(*[b"x" * 900] * 20))
        broker.append(outgoing(*[b"x" * 900] * 8))  # in chunks
        assert broker.read("orders").num_rows == 8


def test_connections_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    with served(tmp_path / "store", {"grpcMaxConnections": "2"}) as process:
        one = open_broker(process.address, retry_ms=0)
        two = open_broker(process.address, retry_ms=0)

        with pytest.raises(UnavailableError):
            open_broker(process.address, retry_ms=0, timeout_ms=2000)
        assert one.topics() == two.topics() == []
        one.close()
        two.close()


@pytest.mark.parametrize("words", [b"", HTTP2], ids=["silent", "without a call"])
def test_connections_that_nobody_uses_keep_no_client_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: bytes
) -> None:
    monkeypatch.setattr(server, "IDLE_MS", 300)
    with served(tmp_path / "store", {"grpcMaxConnections": "2"}) as process:
        idle = [socket.create_connection(("127.0.0.1", process.port), 30) for _ in range(2)]
        for each in idle:
            each.sendall(words)
            read_to_end(each)

        with open_broker(process.address) as broker:
            assert broker.topics() == []


def test_a_tls_connection_that_does_not_begin_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_MS", 200)
    with served(tmp_path / "store", tls_settings()) as process:
        read_to_end(socket.create_connection(("127.0.0.1", process.port), 30))


def test_a_client_does_not_notice_that_its_idle_connection_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_MS", 300)
    with (
        served(tmp_path / "store") as process,
        open_broker(process.address, mode="rw") as broker,
    ):
        broker.create_topic("orders", queues=1)
        for _ in range(3):
            broker.append(outgoing(b"x"))
            # Idle for as long as the client is from here on.
            read_to_end(socket.create_connection(("127.0.0.1", process.port), 30))
        assert broker.read("orders").num_rows == 3


def read_to_end(connection: socket.socket) -> None:
    """Read until the other end closes; fail if that takes too long."""
    with connection:
        while connection.recv(1 << 16):
            pass


def test_calls_beyond_the_limit_are_turned_away_and_tried_again(tmp_path: Path) -> None:
    with (
        served(tmp_path / "store", {"grpcMaxCalls": "1"}) as process,
        open_broker(process.address, mode="rw") as broker,
    ):
        broker.create_topic("orders", queues=1)
        broker.append(outgoing(*[b"x" * 1000] * 5000))
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
            listen = channel.unary_stream("/rocketmq.broker.v1.Broker/Listen")
            with pytest.raises(UnavailableError, match="RESOURCE_EXHAUSTED"):
                _open_until_refused(process.address, listen)

        assert broker.read("orders").num_rows == 5000


def _open_until_refused(address: str, listen: grpc.UnaryStreamMultiCallable) -> None:
    """Open brokers beside a slow call, which takes its place only a moment after it was begun.

    It may be turned away itself, as long as the place of the call before has not been given back.
    """
    slow = listen(b"\n\x01g")
    for _ in range(200):
        if slow.done():
            slow = listen(b"\n\x01g")
        open_broker(address, retry_ms=0).close()
