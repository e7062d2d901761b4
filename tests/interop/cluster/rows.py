"""Rows of ours in the words of the fixtures' expected documents."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from broker_core.api import Broker
from broker_core.codec.decode import decode
from broker_core.codec.property_names import UNIQ_KEY
from broker_core.codec.record import decode_record
from broker_core.codec.schema import ALL_COLUMNS
from broker_core.types import OffsetRange


def queues_of(broker: Broker, topic: str) -> dict[str, Any]:
    """All queues of a topic that ever held a message, read to the last, as a document has them."""
    return {
        str(queue.queue_id): {
            "minOffset": low,
            "maxOffset": high,
            "messages": messages_of(broker, OffsetRange(queue, low, high)),
        }
        for queue, (low, high) in broker.offsets(topic).items()
        if high
    }


def messages_of(broker: Broker, wanted: OffsetRange) -> list[dict[str, Any]]:
    """The messages of a range, each decoded by column, with what only the record tells beside."""
    found: list[dict[str, Any]] = []
    for frames in broker.pull(wanted, verify=True):
        rows = decode(frames, ALL_COLUMNS, wanted.queue.broker_name).to_pylist()
        for row, raw in zip(rows, frames.records(), strict=True):
            assert row["topic"] == wanted.queue.topic
            assert row["queueId"] == wanted.queue.queue_id
            found.append(_message(row, len(decode_record(raw).body)))
    return found


def whole(broker: Broker, topic: str) -> dict[tuple[str, int], list[int]]:
    """The offsets that a reader gets of each queue from its first to its last message."""
    return {
        (queue.broker_name, queue.queue_id): offsets_of(broker, OffsetRange(queue, low, high))
        for queue, (low, high) in broker.offsets(topic).items()
    }


def offsets_of(broker: Broker, wanted: OffsetRange) -> list[int]:
    """The offsets of a range that come back."""
    return [offset for frames in broker.pull(wanted) for offset in frames.offsets.tolist()]


def _message(row: dict[str, Any], stored_body_bytes: int) -> dict[str, Any]:
    properties = dict(row["properties"])
    return {
        "queueOffset": row["queueOffset"],
        "commitLogOffset": row["physicalOffset"],
        "storeSize": row["storeSize"],
        "msgId": row["offsetMsgId"],
        "uniqKey": properties.get(UNIQ_KEY),
        "tags": row["tags"],
        "keys": row["keys"],
        "properties": properties,
        "bodyLength": len(row["body"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "storedBodyLength": stored_body_bytes,
        "bodyCRC": row["bodyCrc"],
        "bornTimestamp": _millis(row["bornTimestamp"]),
        "storeTimestamp": _millis(row["storeTimestamp"]),
        "bornHost": row["bornHost"],
        "storeHost": row["storeHost"],
        "flag": row["flag"],
        "sysFlag": row["sysFlag"],
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTransactionOffset": row["preparedTransactionOffset"],
    }


def _millis(moment: Any) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value) // 1000
