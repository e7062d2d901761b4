"""The fixed part of a record as a structured NumPy type: layout.py's positions, given names."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from broker_core.codec import layout

_FIELDS = {
    "size": (">i4", layout.TOTAL_SIZE),
    "magic": (">u4", layout.MAGIC),
    "bodyCrc": (">i4", layout.BODY_CRC),
    "queueId": (">i4", layout.QUEUE_ID),
    "flag": (">i4", layout.FLAG),
    "queueOffset": (">i8", layout.QUEUE_OFFSET),
    "physicalOffset": (">i8", layout.PHYSICAL_OFFSET),
    "sysFlag": (">i4", layout.SYS_FLAG),
    "bornTimestamp": (">i8", layout.BORN_TIMESTAMP),
    "bornHost": (np.uint8, layout.BORN_HOST),
    "storeTimestamp": (">i8", layout.STORE_TIMESTAMP),
    "storeHost": (np.uint8, layout.STORE_HOST),
    "reconsumeTimes": (">i4", layout.RECONSUME_TIMES),
    "preparedTransactionOffset": (">i8", layout.PREPARED_OFFSET),
    "bodyLength": (">i4", layout.BODY_LENGTH),
}


@lru_cache(maxsize=4)
def header_dtype(born_bytes: int, store_bytes: int) -> np.dtype[np.void]:
    """Everything before the body, in records whose hosts have these widths (8 or 20)."""
    widths = {"bornHost": born_bytes, "storeHost": store_bytes}
    kinds = [
        (kind, widths[name]) if name in widths else kind for name, (kind, _) in _FIELDS.items()
    ]
    offsets = [at + growth_before(at, born_bytes, store_bytes) for _, at in _FIELDS.values()]
    end = layout.BODY + growth_before(layout.BODY, born_bytes, store_bytes)
    return np.dtype({"names": list(_FIELDS), "formats": kinds, "offsets": offsets, "itemsize": end})


def growth_before(position: int, born_bytes: int, store_bytes: int) -> int:
    """How far hosts of these widths push back what lies at an IPv4/IPv4 position."""
    born = born_bytes - layout.HOST_V4 if position > layout.BORN_HOST else 0
    store = store_bytes - layout.HOST_V4 if position > layout.STORE_HOST else 0
    return born + store


HEAD = header_dtype(layout.HOST_V4, layout.HOST_V4)
"""The fixed part of an IPv4/IPv4 record."""
