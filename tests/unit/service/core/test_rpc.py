"""The boundary of calls: a born host is the peer's address, whatever a client says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.codec.hosts import pack_host
from broker_core.codec.record import Record, encode_record
from broker_core.service.core.rpc import NO_HOST, peer_host
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.methods import SERVICE
from tests.kit.raw_calls import head_of, raw_channel, sizes_of
from tests.kit.served import served

LIES = pack_host("8.8.8.8", 7)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:41234", "127.0.0.1"),
        ("ipv4:10.1.2.3:1", "10.1.2.3"),
        ("ipv6:[::ffff:10.1.2.3]:1", "10.1.2.3"),
        ("ipv6:%5B::ffff:10.1.2.3%5D:1", "10.1.2.3"),
        ("ipv6:[::1]:41234", "0.0.0.0"),
        ("ipv6:%5B2001:db8::7%5D:41234", "0.0.0.0"),
        ("ipv6:%5Bfe80::1%25eth0%5D:41234", "0.0.0.0"),
        ("unix:/run/broker.sock", "0.0.0.0"),
        ("unix:", "0.0.0.0"),
        ("", "0.0.0.0"),
        ("ipv4:999.1.1.1:5", "0.0.0.0"),
    ],
)
def test_every_peer_has_a_host_that_a_record_can_hold(peer: str, address: str) -> None:
    assert peer_host(peer) == pack_host(address, 0)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


LISTEN = ["127.0.0.1:0"] + ["[::1]:0"] * has_ipv6()


@pytest.mark.parametrize("listen", LISTEN)
def test_a_born_host_is_never_the_clients_word(tmp_path: Path, listen: str) -> None:
    record = encode_record(Record("t", 0, 0, 0, b"x", b"", born_host=LIES))
    settings = {"grpcListenAddress": listen}
    with served(tmp_path / "store", settings) as process, raw_channel(process) as raw:
        with open_broker(process.address, "rw") as broker:
            broker.create_topic("t", queues=1)
            head = head_of("Append", len(record))
            raw.unary_unary(f"/{SERVICE}/Append")(
                pack_records(head, sizes_of(len(record)), memoryview(record))
            )
        with process.pool.broker() as reader:
            assert reader.read("t").num_rows == 1
            stored = reader.reader.record_at(0)

    assert stored.born_host == (NO_HOST if "::1" in listen else pack_host("127.0.0.1", 0))
