"""The send plan: every message once, in order, and apart where brokers want it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.clients.cluster.send.broker_share import unit_request
from broker_core.clients.cluster.send.plan import plan_send_units
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.message_batch import MessageBatch
from broker_core.errors import (
    IllegalMessageError,
)
from broker_core.types import QueueRef
from tests.kit.remoting import GOLDEN, decode_frame

CAPTURED = GOLDEN / "rocketmq-5.5.0-json.json"
LIMIT = 4 << 20


def outgoing(
    bodies: Sequence[bytes],
    queue_ids: Sequence[int] | int = 0,
    properties: Sequence[bytes] | None = None,
    sys_flags: Sequence[int] | None = None,
) -> MessageBatch:
    count = len(bodies)
    queues = [queue_ids] * count if isinstance(queue_ids, int) else list(queue_ids)
    texts = [b"UNIQ_KEY\x01u%d\x02" % number for number in range(count)]
    return MessageBatch(
        topics=["orders"],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=np.array(queues, dtype=np.int32),
        bodies=pa.array(list(bodies), type=pa.binary()),
        properties=pa.array(list(properties or texts), type=pa.binary()),
        born_timestamps=5,
        sys_flags=0 if sys_flags is None else np.array(sys_flags, dtype=np.int32),
    )


def test_batch_is_written_as_a_real_broker_took_it() -> None:
    captured = json.loads(CAPTURED.read_text(encoding="utf-8"))["send batch"]
    taken = decode_frame(bytes.fromhex(captured["request"]))
    texts = [b"UNIQ_KEY\x01u-%d\x02TAGS\x01Tag%d\x02" % (n, n) for n in (2, 3, 4)]
    messages = outgoing([b"two", b"three", b"four"], properties=texts)
    messages = replace(messages, topics=["captured"], born_timestamps=1700000000001)

    (unit,) = plan_send_units(messages, LIMIT, LIMIT)
    request = unit_request(unit, QueueRef("captured", "broker-a", 0), "captured-group")

    assert (request.code, request.ext, request.body) == (taken.code, taken.ext, taken.body)
    assert "i" not in request.ext


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=60))
def test_units_hold_every_message_once_and_keep_the_order_of_a_write_queue(
    messages: list[tuple[int, int]],
) -> None:
    batch = outgoing([bytes(size) for _, size in messages], [number for number, _ in messages])

    units = plan_send_units(batch, 300, LIMIT)

    rows = [row for unit in units for row in unit.rows.tolist()]
    assert sorted(rows) == list(range(len(messages)))
    for number in range(4):
        in_queue = [
            row for unit in units if unit.write_queue == number for row in unit.rows.tolist()
        ]
        assert in_queue == sorted(in_queue)
    assert all(len(unit.body) <= 300 or len(unit.rows) == 1 for unit in units)


@pytest.mark.parametrize(
    "text", [b"DELAY\x013\x02", b"a\x01b\x02TIMER_DELAY_SEC\x015\x02", b"TRAN_MSG\x01true\x02"]
)
def test_what_brokers_refuse_in_a_batch_goes_alone(text: bytes) -> None:
    texts = [b"", b"", text, b"", b""]

    units = plan_send_units(outgoing([b"body"] * 5, properties=texts), LIMIT, LIMIT)

    assert [(unit.rows.tolist(), unit.properties is not None) for unit in units] == [
        ([0, 1], False),
        ([2], True),
        ([3, 4], False),
    ]


def test_names_that_only_look_alike_stay_in_the_batch() -> None:
    batch = outgoing([b"a", b"b"], properties=[b"MYDELAY\x013\x02", b"x\x01DELAY\x02"])

    (unit,) = plan_send_units(batch, LIMIT, LIMIT)

    assert len(unit.rows) == 2


def test_message_too_large_for_a_batch_goes_alone() -> None:
    (unit,) = plan_send_units(outgoing([bytes(LIMIT)]), LIMIT, LIMIT)

    assert unit.properties is not None
    assert len(unit.body) == LIMIT


def test_differently_packed_messages_do_not_share_a_request() -> None:
    zlib = compression_flags("zlib")
    bodies = [b"plain"] * 100 + [compress(b"packed", "zlib")]

    units = plan_send_units(outgoing(bodies, sys_flags=[0] * 100 + [zlib]), LIMIT, LIMIT)

    assert [(unit.sys_flag, len(unit.rows)) for unit in units] == [(0, 100), (zlib, 1)]


def test_mixture_is_packed_alike_rather_than_cut_to_pieces() -> None:
    zlib = compression_flags("zlib")
    bodies = [b"plain", compress(b"packed", "zlib")] * 10

    (unit,) = plan_send_units(outgoing(bodies, sys_flags=[0, zlib] * 10), LIMIT, LIMIT)

    assert unit.sys_flag == zlib
    assert compress(b"plain", "zlib") in unit.body


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (outgoing([b"a", b""]), "Message 1 .* has no body"),
        (outgoing([b"a", bytes(101)]), r"Message 1 .* 101 bytes, the limit is 100 \(maxMess"),
        (outgoing([b"a"], properties=[bytes(32_700)]), "Message 0 .* 32700 bytes of properties"),
    ],
)
def test_message_that_would_be_refused_stops_the_whole_batch(
    batch: MessageBatch, complaint: str
) -> None:
    with pytest.raises(IllegalMessageError, match=complaint):
        plan_send_units(batch, 100, 100)
