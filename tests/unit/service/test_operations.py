"""What operators see: health, metrics, and that the broker's own services do their work."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from broker_core import ConfigError, open_broker
from broker_core.service import metrics
from broker_core.service.health import HEALTH_SERVICE
from broker_core.service.main import BrokerProcess
from broker_core.service.metrics import Histogram, Metrics, MetricsPort
from broker_core.service.settings import ServiceSettings
from broker_core.store.check.store import check
from tests.contract.test_messages import outgoing
from tests.kit.raw_calls import wait_until
from tests.kit.served import served
from tests.kit.transactions import ManualClock


def asked_about(service: str) -> bytes:
    return bytes((0x0A, len(service))) + service.encode() if service else b""


@pytest.mark.parametrize("service", ["", "rocketmq.broker.v1.Broker"])
def test_a_serving_broker_says_so(tmp_path: Path, service: str) -> None:
    with (
        served(tmp_path / "store") as process,
        grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel,
    ):
        call = channel.unary_unary(f"/{HEALTH_SERVICE}/Check")

        assert call(asked_about(service)) == b"\x08\x01"


@pytest.mark.parametrize("request_bytes", [asked_about("other"), b"\xff\xff", b"\x0a\x05x"])
def test_a_service_that_is_not_here_is_not_found(tmp_path: Path, request_bytes: bytes) -> None:
    with (
        served(tmp_path / "store") as process,
        grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{HEALTH_SERVICE}/Check")(request_bytes)

        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_those_who_watch_are_told_when_it_stops(tmp_path: Path) -> None:
    with (
        served(tmp_path / "store") as process,
        grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel,
    ):
        watched = channel.unary_stream(f"/{HEALTH_SERVICE}/Watch")(b"")
        first = next(watched)

        process.pool.begin_stop()

        assert (first, next(watched)) == (b"\x08\x01", b"\x08\x02")


def test_metrics_tell_what_happened(tmp_path: Path) -> None:
    with served(tmp_path / "store", {"metricsListenAddress": "127.0.0.1:0"}) as process:
        with open_broker(process.address, mode="rw", retry_ms=0) as broker:
            broker.create_topic("orders", queues=1)
            broker.append(outgoing(b"a", b"b"))
            with pytest.raises(Exception, match="nope"):
                broker.offsets("nope")
        url = f"http://127.0.0.1:{process.metrics_port}/metrics"
        with urllib.request.urlopen(url) as answer:
            lines = answer.read().decode().splitlines()

        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("metrics", "other"))

    assert 'rocketmq_calls_total{method="CreateTopic",status="OK"} 1' in lines
    assert 'rocketmq_calls_total{method="Offsets",status="NOT_FOUND"} 1' in lines
    assert 'rocketmq_call_seconds_count{method="Append"} 1' in lines
    assert "rocketmq_append_requests_total 1" in lines
    assert "rocketmq_append_groups_total 1" in lines
    assert any(line.startswith("rocketmq_log_bytes 2") for line in lines)


def test_metrics_are_told_beside_any_number_of_silent_connections() -> None:
    port = MetricsPort(Metrics(), "127.0.0.1:0")
    before = threading.active_count()
    try:
        silent = [
            socket.create_connection(("127.0.0.1", port.port), 30)
            for _ in range(3 * metrics.MOST_CONNECTIONS)
        ]
        for each in silent:
            with suppress(OSError):  # closed by the server
                each.sendall(b"GET /metrics HT")
        with urllib.request.urlopen(f"http://127.0.0.1:{port.port}/metrics") as answer:
            assert b"rocketmq_calls_total" in answer.read()

        most = before + metrics.MOST_CONNECTIONS
        wait_until(lambda: threading.active_count() <= most, "the end of the oldest")
        for each in silent[: 2 * metrics.MOST_CONNECTIONS]:
            with each, suppress(ConnectionResetError):
                assert each.recv(1) == b""
        for each in silent:
            each.close()
    finally:
        port.stop()


def test_a_metrics_connection_without_a_request_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "STEP_S", 0.1)
    port = MetricsPort(Metrics(), "127.0.0.1:0")
    try:
        with socket.create_connection(("127.0.0.1", port.port), 30) as silent:
            silent.sendall(b"GET /metrics HT")
            assert silent.recv(1) == b""
    finally:
        port.stop()


def test_a_histogram_adds_up() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.003, 0.003, 99.0):
        histogram.add(seconds)

    lines = list(histogram.lines("x"))

    assert lines[0] == 'x_bucket{le="0.0005"} 1'
    assert 'x_bucket{le="0.005"} 3' in lines
    assert lines[-3:] == ['x_bucket{le="+Inf"} 4', "x_sum 99.006100", "x_count 4"]


def test_a_port_for_metrics_that_is_taken_is_refused(tmp_path: Path) -> None:
    with served(tmp_path / "one", {"metricsListenAddress": "127.0.0.1:0"}) as first:
        taken = {"metricsListenAddress": f"127.0.0.1:{first.metrics_port}"}

        with (
            pytest.raises(ConfigError, match="Can't listen for metrics"),
            served(tmp_path / "two", taken),
        ):
            pass
    assert not (tmp_path / "two" / "abort").exists()


def test_services_work_by_the_clock(tmp_path: Path) -> None:
    settings = ServiceSettings.of({"grpcListenAddress": "127.0.0.1:0"}, "test")
    clock = ManualClock()
    process = BrokerProcess(tmp_path / "store", settings, create=True, clock_ms=clock)
    with process.pool.broker() as broker:
        broker.create_topic("t", queues=1)
        broker.send("t", b"now")
        broker.send("t", b"later", delay_level=1)
    unflushed = process.pool.writer.durable_lag_bytes

    clock.advance(1000)
    process.background.run_due()

    with process.pool.broker() as broker:
        assert broker.read("t").column("body").to_pylist() == [b"now", b"later"]
    assert unflushed > 0
    clock.advance(1000)
    process.background.run_due()
    assert process.pool.writer.durable_lag_bytes == 0
    process.stop()
    assert check(tmp_path / "store") == []
