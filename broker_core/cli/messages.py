"""Messages as commands print them: whole records for `dump`, decoded rows for `tail` and `query`.

A dumped record is a JSON object with the field names and values of Apache's client over the stored
record: `msgId` is the offset message id, `sysFlag` keeps its compressed bit, `bodyCRC` and
`storedBodyLength` are of the stored bytes, `bodyLength` and `bodySha256` of the decompressed body.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broker_core.cli.output import write_text
from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.codec.record import Record

_TIMES = ("bornTimestamp", "storeTimestamp")


def message_document(record: Record, size_bytes: int) -> dict[str, Any]:
    """Return the document of a record that takes `size_bytes` in the log."""
    properties = record.property_map
    body = record.plain_body
    return {
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": size_bytes,
        "msgId": record.offset_id,
        "uniqKey": properties.get(UNIQ_KEY),
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "properties": dict(sorted(properties.items())),
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "storedBodyLength": len(record.body),
        "bodyCRC": record.crc,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": record.born_host_text,
        "storeHost": record.store_host_text,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
    }


def shown_body(body: bytes, limit: int = 200) -> str:
    """Return a body as printable text, or in hex if it is no text, cut at a limit."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.hex()
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= limit else text[:limit] + "…"


def print_messages(messages: pa.Table | pa.RecordBatch, *, as_json: bool) -> None:
    """Print messages: JSON objects with all columns, or lines of offset, time, id, tag and body."""
    lines = _documents(messages) if as_json else _lines(messages)
    write_text("".join(line + "\n" for line in lines))


def _documents(messages: pa.Table | pa.RecordBatch) -> Iterable[str]:
    for row in _rows(messages):
        row["properties"] = dict(row["properties"])
        body: bytes = row.pop("body")
        try:
            row["body"] = body.decode()
        except UnicodeDecodeError:
            row["bodyBase64"] = base64.b64encode(body).decode("ascii")
        yield json.dumps(row, ensure_ascii=False)


def _rows(messages: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows with times in milliseconds, as RocketMQ counts them."""
    import pyarrow as pa

    schema = messages.schema
    for name in _TIMES:
        at = schema.get_field_index(name)
        millis = messages.column(at).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        messages = messages.set_column(at, name, millis)
    rows: list[dict[str, Any]] = messages.to_pylist()
    return rows


def _lines(messages: pa.Table | pa.RecordBatch) -> Iterable[str]:
    for row in messages.to_pylist():
        where = f"{row['topic']}/{row['queueId']}/{row['queueOffset']}"
        stored = row["storeTimestamp"].astimezone().isoformat(timespec="milliseconds")
        tags = row["tags"] or "-"
        yield f"{where}\t{stored}\t{row['msgId']}\t{tags}\t{shown_body(row['body'])}"
