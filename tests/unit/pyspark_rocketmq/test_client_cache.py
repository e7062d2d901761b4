from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker_core import errors as core
from broker_core import open_broker
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.clients.grpc.options import GrpcOptions
from pyspark_rocketmq.client_cache import cached_reader, cached_writer, client_settings, translate
from pyspark_rocketmq.options.options import ClientOptions
from pyspark_rocketmq.options.raw_options import RawOptions

GIVEN = {
    "accessKey": "me",
    "secretKey": "hush",
    "tls.ca": "/ca.pem",
    "tls.serverName": "there",
    "pullTimeoutMs": "7000",
    "consumerGroup": "readers",
}


def settings(broker: str, **more: str) -> dict[str, object]:
    return client_settings(ClientOptions.parse(RawOptions({"broker": broker, **GIVEN, **more})))


def test_a_cluster_s_client_understands_what_it_is_told() -> None:
    told = ClusterSettings.of(settings("rocketmq://ns:9876"))

    assert told.consumer_group == "readers"
    assert told.pull_timeout_ms == 7000
    assert told.credentials is not None
    assert told.tls is not None


def test_a_remote_core_s_client_understands_what_it_is_told() -> None:
    told = GrpcOptions.of(settings("grpcs://host:1", token="hush too"))

    assert told.retry_ms == 7000
    assert told.token == "hush too"
    assert told.secret_key == "hush"
    assert told.tls_server_name == "there"


@pytest.mark.parametrize(
    ("error", "condition", "is_retryable"),
    [
        (core.UnavailableError("busy"), "ROCKETMQ_BROKER.UNAVAILABLE", True),
        (core.StoreLockedError("locked"), "ROCKETMQ_BROKER.UNAVAILABLE", True),
        (core.UnsupportedError("no"), "ROCKETMQ_BROKER.UNSUPPORTED", False),
        (core.CorruptRecordError("bad"), "ROCKETMQ_BROKER.STORE_DAMAGED", False),
        (core.StoreNotFoundError("none"), "ROCKETMQ_BROKER.FAILED", False),
        (core.AuthenticationError("who"), "ROCKETMQ_BROKER.FAILED", False),
    ],
)
def test_a_broker_s_error_gets_a_condition_and_keeps_its_text(
    error: core.BrokerError, condition: str, is_retryable: bool
) -> None:
    translated = translate(error, "file:/store", "deliver messages", attempts=2)

    assert translated.condition == condition
    assert translated.retryable is is_retryable
    assert str(error) in str(translated)


def test_a_store_that_was_made_anew_is_opened_anew(tmp_path: Path) -> None:
    store = tmp_path / "store"
    client = ClientOptions.parse(RawOptions({"broker": f"file:{store}"}))

    for body in (b"old", b"new"):
        with open_broker(store, mode="rw", create=True) as broker:
            broker.create_topic("t", queues=1)
        cached_writer(client).send("t", body)
        assert cached_reader(client).read("t").column("body").to_pylist() == [body]
        shutil.rmtree(store)

    with pytest.raises(core.StoreNotFoundError):
        cached_reader(client)
    with pytest.raises(core.StoreNotFoundError):
        cached_writer(client)
