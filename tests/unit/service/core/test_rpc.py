"""The boundary of calls: a born host is the peer's address, whatever a client says."""

from __future__ import annotations

import socket
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import grpc
import pytest
from google.protobuf.message import Message

from broker_core import open_broker
from broker_core.codec.hosts import pack_host
from broker_core.codec.record import Record, encode_record
from broker_core.errors import RequestError
from broker_core.filter.tag_expression import MAX_TEXT
from broker_core.service.auth.user_rights import ANYONE
from broker_core.service.call_limits import CallLimits
from broker_core.service.core import rpc
from broker_core.service.core.rpc import MOST_CONTROL_BYTES, NO_HOST, Call, peer_host
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.methods import METHODS, RAW, SERVICE, Method
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


CONTROL = [each for each in METHODS if each.request is not RAW]
MEGABYTES = {methods.AWAIT, methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.PREPARE_MESSAGE}
UNKNOWN_FIELD = b"\x82\x7d\x00"
"""Field 2000, an empty text."""


@pytest.mark.parametrize("method", CONTROL, ids=lambda method: method.name)
def test_a_request_keeps_no_more_than_what_it_says(method: Method) -> None:
    """A call may last, and keeps its request: however large that was, and of what."""
    large = UNKNOWN_FIELD * (MOST_CONTROL_BYTES // len(UNKNOWN_FIELD))
    parsed = rpc._parsed(method, iter([large]))
    assert parsed.SerializeToString() == b""

    larger = large + UNKNOWN_FIELD
    if method in MEGABYTES:
        assert rpc._parsed(method, iter([larger])) == parsed
    else:
        with pytest.raises(RequestError, match=f"{len(larger)} bytes, and {MOST_CONTROL_BYTES}"):
            rpc._parsed(method, iter([larger]))


QUEUES = [pb.QueueOffset(queue_id=each, offset=1 << 62) for each in range(1 << 16)]
RECEIPT = pb.Receipt(
    batch=pb.Batch(owner="query:" + "x" * 36, number=1 << 40),
    attempt="a" * 36,
    prepared=[pb.Prepared(start=1 << 40, end=1 << 41)],
)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (methods.PULL, pb.Pull(filter=pb.Filter(sql="\N{PILE OF POO}" * MAX_TEXT))),
        (methods.AWAIT, pb.Await(queues=QUEUES)),
        (methods.COMMIT_BATCH, pb.Decide(receipts=[RECEIPT] * 20_000)),
        (methods.PREPARE_MESSAGE, pb.PrepareMessage(body=bytes(4 << 20))),
    ],
    ids=["filter", "queues", "receipts", "body"],
)
def test_the_largest_requests_of_honest_clients_come_in(method: Method, request_: Message) -> None:
    assert rpc._parsed(method, iter([request_.SerializeToString()])) == request_


def test_a_part_of_a_request_is_not_kept_while_the_next_is_waited_for() -> None:
    class Part:
        """Stands in for bytes, which have no weak references."""

    context = cast("grpc.ServicerContext", SimpleNamespace(cancel=lambda: None))
    call = Call(context, ANYONE, lambda _: ANYONE, CallLimits(4))
    received = call.received(Part() for _ in range(2))
    part = weakref.ref(next(received))

    assert part() is None
