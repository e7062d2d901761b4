"""Pulling columns from a served store: what decoding its records would give."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core import RequestError, open_broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.codec.decode import decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.schema import ALL_COLUMNS
from broker_core.filter.pipeline import MessageFilter
from broker_core.service.core import read
from broker_core.types import LogicalOffset, OffsetRange
from broker_core.wire.core.frames import pack_columns, pack_frames
from tests.kit.served import served

COUNT = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GrpcBroker]:
    settings = {"grpcMaxChunkBytes": "8192"}
    with (
        served(tmp_path / "store", settings) as process,
        open_broker(process.address, mode="rw") as opened,
    ):
        assert isinstance(opened, GrpcBroker)
        opened.create_topic("t", queues=1)
        for number in range(COUNT):
            tag = "even" if number % 2 == 0 else "odd"
            opened.send("t", b"body %d" % number, tags=tag, keys=[f"k{number}"])
        yield opened


def everything(broker: GrpcBroker) -> OffsetRange:
    [(queue, (first, last))] = broker.offsets("t").items()
    return OffsetRange(queue, first, last)


@pytest.mark.parametrize("tags", [None, "even"])
@pytest.mark.parametrize(
    "columns",
    [
        ("body", "queueOffset"),
        ("queueOffset",),
        ("topic", "brokerName", "queueId"),
        ("queueId", "property:topic", "queueOffset", "keys"),
        ALL_COLUMNS,
    ],
    ids=lambda columns: "all" if columns is ALL_COLUMNS else ",".join(columns),
)
def test_columns_are_those_of_the_records(
    broker: GrpcBroker, columns: tuple[str, ...], tags: str | None
) -> None:
    wanted, wish = everything(broker), MessageFilter.of(tags=tags)

    found = list(broker.pull_columns(wanted, columns, message_filter=wish))

    expected = [
        decode(frames, columns, wanted.queue.broker_name)
        for frames in broker.pull(wanted, message_filter=wish)
    ]
    assert found[-1].next_offset == COUNT
    assert pa.Table.from_batches([each.rows for each in found]).equals(
        pa.Table.from_batches(expected)
    )


def test_columns_come_in_chunks(broker: GrpcBroker) -> None:
    found = list(broker.pull_columns(everything(broker), ALL_COLUMNS))

    assert len(found) > 1
    assert [each.next_offset for each in found] == list(
        accumulate(each.rows.num_rows for each in found)
    )


def test_what_is_known_of_a_queue_does_not_travel(
    broker: GrpcBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def seen(frames: FrameBatch, columns: tuple[str, ...], chunk_bytes: int) -> Iterator[bytes]:
        asked.append(columns)
        return pack_columns(frames, columns, chunk_bytes)

    monkeypatch.setattr(read, "pack_columns", seen)
    columns = ["topic", "body", "brokerName", "queueOffset", "queueId"]

    list(broker.pull_columns(everything(broker), columns))
    assert set(asked) == {("body",)}

    asked.clear()
    list(broker.pull_columns(everything(broker), columns, message_filter=MessageFilter.of("odd")))
    assert set(asked) == {("body", "queueOffset")}


def test_a_broker_that_sends_records_is_understood(
    broker: GrpcBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(frames: FrameBatch, columns: object, chunk_bytes: object) -> Iterator[bytes]:
        del columns, chunk_bytes
        yield pack_frames(frames)

    monkeypatch.setattr(read, "pack_columns", as_before)

    found = list(broker.pull_columns(everything(broker), ["queueOffset"]))

    offsets = [offset for each in found for offset in each.rows.column(0).to_pylist()]
    assert offsets == list(range(COUNT))


def test_a_column_that_does_not_exist_is_refused_by_the_broker(broker: GrpcBroker) -> None:
    with pytest.raises(RequestError, match="There is no column 'boddy'"):
        list(broker.pull_columns(everything(broker), ["boddy"]))


def test_a_part_of_a_queue_can_be_asked_for(broker: GrpcBroker) -> None:
    queue = everything(broker).queue

    [found] = broker.pull_columns(
        OffsetRange(queue, LogicalOffset(7), LogicalOffset(9)), ["queueOffset", "keys"]
    )

    assert found.rows.to_pydict() == {"queueOffset": [7, 8], "keys": ["k7", "k8"]}
    assert found.next_offset == 9
