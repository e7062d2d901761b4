"""The commit-log record: the only statement of its layout.

All integers are big-endian two's complement; all text is UTF-8; times are epoch milliseconds.
B is the born host's length, S the store host's: 8 (IPv4 + port) or 20 (IPv6 + port), per record,
by two bits of SYSFLAG. Offsets in the right column are those of IPv4/IPv4.

    TOTALSIZE       i32   whole record, this field included             0
    MAGICCODE       i32   V1, V2 or BLANK                               4
    BODYCRC         i32   CRC-32 of the stored body & 0x7fffffff        8
    QUEUEID         i32                                                12
    FLAG            i32   the sender's, opaque                         16
    QUEUEOFFSET     i64   LogicalOffset                                20
    PHYSICALOFFSET  i64   the record's own position in the log         28
    SYSFLAG         i32   bits, see SysFlag                            36
    BORNTIMESTAMP   i64                                                40
    BORNHOST        B     address bytes, then port i32                 48
    STORETIMESTAMP  i64                                                48 + B
    STOREHOST       S                                                  56 + B
    RECONSUMETIMES  i32                                                56 + B + S
    PREPAREDOFFSET  i64   of a committed copy: its half message        60 + B + S
    BODYLENGTH      i32                                                68 + B + S
    BODY                                                               72 + B + S
    TOPICLENGTH     i8 (V1) or i16 (V2), signed
    TOPIC
    PROPERTIESLENGTH i16, signed
    PROPERTIES      name 0x01 value 0x02 ...

Written by append under the store's lock, in one write per segment; never changed afterwards. A
record never spans segments: the rest of a full segment is one BLANK (i32 remaining bytes, i32
magic). After a crash the first record that does not check ends the log. The layout is RocketMQ's;
it can't be changed, only extended as RocketMQ extends it.
"""

from __future__ import annotations

from enum import IntFlag
from functools import lru_cache

import numpy as np

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

BLANK_BYTES = 8
"""Every full segment ends with a blank of at least 8 bytes."""

TOTAL_SIZE = 0
MAGIC = 4
BODY_CRC = 8
QUEUE_ID = 12
FLAG = 16
QUEUE_OFFSET = 20
PHYSICAL_OFFSET = 28
SYS_FLAG = 36
BORN_TIMESTAMP = 40
BORN_HOST = 48
# From here on positions shift with the hosts' lengths; these are of IPv4/IPv4.
STORE_TIMESTAMP = 56
STORE_HOST = 64
RECONSUME_TIMES = 72
PREPARED_OFFSET = 76
BODY_LENGTH = 84
BODY = 88

HOST_V4 = 8
HOST_V6 = 20
HOST_GROWTH = HOST_V6 - HOST_V4

MIN_RECORD_BYTES = BODY + 1 + 2
"""An IPv4 V1 record without body, topic and properties."""

MAX_BODY_BYTES = 4 * 1024 * 1024
"""RocketMQ's default `maxMessageSize`."""
RECORD_HEADROOM_BYTES = 64 * 1024
"""A whole record may be larger than the largest body by this much."""
MAX_RECORD_BYTES = 512 * 1024 * 1024
"""No configuration reaches this; a larger TOTALSIZE is damage, not data."""
MAX_PROPERTIES_BYTES = 32767
MAX_TOPIC_V1 = 127
MAX_TOPIC_BYTES = 255

CRC_MASK = 0x7FFFFFFF


class SysFlag(IntFlag):
    """Bits of SYSFLAG."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8
HOSTS_V6_MASK = 0x30

# The fixed part as a NumPy dtype: the positions above, given the names of the columns.

_FIELDS = {
    "size": (">i4", TOTAL_SIZE),
    "magic": (">u4", MAGIC),
    "bodyCrc": (">i4", BODY_CRC),
    "queueId": (">i4", QUEUE_ID),
    "flag": (">i4", FLAG),
    "queueOffset": (">i8", QUEUE_OFFSET),
    "physicalOffset": (">i8", PHYSICAL_OFFSET),
    "sysFlag": (">i4", SYS_FLAG),
    "bornTimestamp": (">i8", BORN_TIMESTAMP),
    "bornHost": (np.uint8, BORN_HOST),
    "storeTimestamp": (">i8", STORE_TIMESTAMP),
    "storeHost": (np.uint8, STORE_HOST),
    "reconsumeTimes": (">i4", RECONSUME_TIMES),
    "preparedTransactionOffset": (">i8", PREPARED_OFFSET),
    "bodyLength": (">i4", BODY_LENGTH),
}


@lru_cache(maxsize=4)
def header_dtype(born_bytes: int, store_bytes: int) -> np.dtype[np.void]:
    """Return the dtype of all that lies before the body, for hosts of these widths (8 or 20)."""
    widths = {"bornHost": born_bytes, "storeHost": store_bytes}
    kinds = [
        (kind, widths[name]) if name in widths else kind for name, (kind, _) in _FIELDS.items()
    ]
    offsets = [at + growth_before(at, born_bytes, store_bytes) for _, at in _FIELDS.values()]
    end = BODY + growth_before(BODY, born_bytes, store_bytes)
    return np.dtype({"names": list(_FIELDS), "formats": kinds, "offsets": offsets, "itemsize": end})


def growth_before(position: int, born_bytes: int, store_bytes: int) -> int:
    """Return by how many bytes hosts of these widths move a field of an IPv4/IPv4 record back."""
    born = born_bytes - HOST_V4 if position > BORN_HOST else 0
    store = store_bytes - HOST_V4 if position > STORE_HOST else 0
    return born + store


HEAD = header_dtype(HOST_V4, HOST_V4)
"""The fixed part of an IPv4/IPv4 record."""
