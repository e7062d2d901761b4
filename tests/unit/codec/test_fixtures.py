"""Logs written by Apache RocketMQ, read by both codecs and compared with what its client saw."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.decode import decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import decode_record, encode_record
from broker_core.codec.scan import walk
from broker_core.codec.schema import ALL_COLUMNS
from tests.kit.fixtures import NAMES, SIZES, expected, extract

pytestmark = pytest.mark.usefixtures("either_way")


def segments(root: Path) -> Iterator[FrameBatch]:
    """The records of each commit-log file, until the first byte that starts none."""
    for path in sorted((root / "commitlog").iterdir()):
        buffer = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        found = walk(buffer, 0, len(buffer), origin=int(path.name), verify=True, name=path.name)
        yield FrameBatch(
            buffer=buffer,
            starts=found.starts,
            sizes=found.sizes,
            offsets=np.zeros(len(found.starts), dtype=np.int64),
            origin=int(path.name),
            name=path.name,
            verify=True,
        )


def in_millis(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())


@pytest.mark.parametrize("name", NAMES)
def test_every_message_the_client_saw_is_decoded_equal(name: str, tmp_path: Path) -> None:
    rows: dict[int, dict[str, Any]] = {}
    for frames in segments(extract(name, tmp_path)):
        table = pa.Table.from_batches([decode(frames, ALL_COLUMNS)])
        for column in ("bornTimestamp", "storeTimestamp"):
            at = table.schema.get_field_index(column)
            table = table.set_column(at, column, in_millis(table.column(column)))
        rows.update((row["physicalOffset"], row) for row in table.to_pylist())

    for topic, described in expected(name)["topics"].items():
        for queue_id, queue in described["queues"].items():
            for message in queue["messages"]:
                row = rows[message["commitLogOffset"]]
                del message["storedBodyLength"]  # no column: storeSize says as much
                assert as_document(row) == message
                assert (row["topic"], row["queueId"]) == (topic, int(queue_id))


def as_document(row: dict[str, Any]) -> dict[str, Any]:
    """A row under the names and in the forms of the client's document."""
    properties = dict(row["properties"])
    return {
        "queueOffset": row["queueOffset"],
        "commitLogOffset": row["physicalOffset"],
        "storeSize": row["storeSize"],
        "msgId": row["offsetMsgId"],
        "uniqKey": properties.get("UNIQ_KEY"),
        "tags": row["tags"],
        "keys": row["keys"],
        "properties": properties,
        "bodyLength": len(row["body"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "bodyCRC": row["bodyCrc"],
        "bornTimestamp": row["bornTimestamp"],
        "storeTimestamp": row["storeTimestamp"],
        "bornHost": row["bornHost"],
        "storeHost": row["storeHost"],
        "flag": row["flag"],
        "sysFlag": row["sysFlag"],
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTransactionOffset": row["preparedTransactionOffset"],
    }


@pytest.mark.parametrize("name", NAMES)
def test_scalar_and_columnar_codec_agree_on_every_record(name: str, tmp_path: Path) -> None:
    for frames in segments(extract(name, tmp_path)):
        records = [decode_record(encoded) for encoded in frames.records()]
        batch = decode(frames, ALL_COLUMNS)

        assert [encode_record(record) for record in records] == frames.records()
        assert batch.column("topic").to_pylist() == [record.topic for record in records]
        assert batch.column("msgId").to_pylist() == [record.msg_id for record in records]
        assert batch.column("body").to_pylist() == [record.plain_body for record in records]
        assert [dict(entries) for entries in batch.column("properties").to_pylist()] == [
            record.property_map for record in records
        ]


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_segment_ends_with_a_blank(name: str, tmp_path: Path) -> None:
    # The broker makes files ahead of need: the last one with a record is the unfinished one.
    begun = [frames for frames in segments(extract(name, tmp_path)) if len(frames)]

    for frames in begun[:-1]:
        end = int(frames.starts[-1] + frames.sizes[-1])
        found = walk(frames.buffer, end, len(frames.buffer), origin=0, verify=True)
        remaining = int.from_bytes(frames.buffer[end : end + 4].tobytes(), "big")
        assert found.stop_reason == "blank"
        assert end + remaining == len(frames.buffer) == SIZES["mappedFileSizeCommitLog"]
