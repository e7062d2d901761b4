"""Messages from any broker, printed one a line: what `tail` and `query` share."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broker_core.cli.message_document import shown_body
from broker_core.cli.output import write_text

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = ("bornTimestamp", "storeTimestamp")


def print_messages(messages: pa.Table | pa.RecordBatch, *, as_json: bool) -> None:
    """Print messages with all columns: JSON objects, or offset, id, tag and body for people."""
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
    """Rows with times in milliseconds, as RocketMQ counts them."""
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
        place = f"{row['topic']}/{row['queueId']}/{row['queueOffset']}"
        stored = row["storeTimestamp"].astimezone().isoformat(timespec="milliseconds")
        tags = row["tags"] or "-"
        yield f"{place}\t{stored}\t{row['msgId']}\t{tags}\t{shown_body(row['body'])}"
