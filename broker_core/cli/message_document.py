"""One message as the JSON object that `dump`, `tail` and `query` print.

Field names and values are those of Apache's client over the stored record: `msgId` is the offset
message id, `sysFlag` keeps its compressed bit, `bodyCRC` and `storedBodyLength` are of the stored
bytes, `bodyLength` and `bodySha256` of the decompressed body.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    from broker_core.codec.record import Record


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
    """Return a body for people: as text if it is text, else in hex, cut at a limit."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body.hex()
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= limit else text[:limit] + "…"
