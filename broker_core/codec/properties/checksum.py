"""Property checksums: a CRC-32 of the whole record, as the last of its properties.

RocketMQ's `enabledAppendPropCRC`. Every record ends with 20 bytes more:

    __CRC32# 01 dddddddddd 02      ten digits, least significant first, filled up with 0

The checksum covers all bytes before them, sizes already grown. It depends on where the record lies
and when it was stored: `reserve_checksums` makes room in records that were just encoded,
`fill_checksums` writes it once offsets and store time are in. The twin for one record is
`with_property_crc` in record.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.encode import EncodedRecords, fixed_binary, writable
from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.property_names import NAME_VALUE_SEPARATOR, PROPERTY_CRC, PROPERTY_SEPARATOR
from broker_core.codec.spans import Spans, fixed_width, gather_spans
from broker_core.errors import IllegalMessageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIGITS = 10
_LEAD = (PROPERTY_CRC + NAME_VALUE_SEPARATOR).encode()
_END = PROPERTY_SEPARATOR.encode()
_ROOM = _LEAD + bytes(_DIGITS) + _END
_ZERO = ord("0")
ROOM_BYTES = len(_ROOM)


def reserve_checksums(records: EncodedRecords) -> EncodedRecords:
    """Return the records with room for a checksum each; an old checksum is taken out.

    IllegalMessageError for a record whose properties become too long.
    """
    if not len(records):
        return records
    (_, starts, lengths), ends_open = _without_checksums(records)
    grown = lengths + ends_open + ROOM_BYTES
    _check_lengths(grown)
    before = starts - 2 - records.starts  # the bytes before PROPERTIESLENGTH
    gaps = pa.array([b"", _END], type=pa.binary()).take(pa.array(ends_open.astype(np.int8)))
    joined = pc.binary_join_element_wise(
        gather_spans(Spans(records.buffer, records.starts, before)),
        fixed_binary(grown.astype(">i2").view(np.uint8), len(records), 2),
        gather_spans(Spans(records.buffer, starts, lengths)),
        gaps,
        pa.scalar(_ROOM, type=pa.binary()),
        pa.scalar(b"", type=pa.binary()),
    )
    sizes = (before + 2 + grown).astype(np.int32)
    begins = np.zeros(len(records), dtype=np.int64)
    np.cumsum(sizes[:-1], out=begins[1:])
    buffer = writable(joined)
    at = begins[:, None] + layout.TOTAL_SIZE + np.arange(4)
    buffer[at] = sizes.astype(">i4").view(np.uint8).reshape(-1, 4)
    return EncodedRecords(buffer, begins, sizes, records.store_timestamp_at)


def require_checksum_room(records: EncodedRecords) -> None:
    """Raise IllegalMessageError for a record whose properties leave no room for a checksum."""
    if len(records):
        (_, _, lengths), ends_open = _without_checksums(records)
        _check_lengths(lengths + ends_open + ROOM_BYTES)


def _without_checksums(records: EncodedRecords) -> tuple[Spans, NDArray[np.bool_]]:
    """Return the properties of records up to an old checksum, and which need a 0x02 behind them."""
    rows = np.zeros(len(records), dtype=np.int64)
    fields = locate(FrameBatch(records.buffer, records.starts, records.sizes, rows))
    _, starts, lengths = fields.properties
    lengths = lengths - np.where(_has_checksum(records.buffer, starts, lengths), ROOM_BYTES, 0)
    # Releases 4.9.1 to 5.1.4 left out the last 0x02: it is needed before another entry.
    ends_open = (lengths > 0) & (records.buffer[starts + lengths - 1] != _END[0])
    return Spans(records.buffer, starts, lengths), ends_open


def fill_checksums(records: EncodedRecords) -> None:
    """Write the checksums of records whose other bytes are final, into the room reserved."""
    if not len(records):
        return
    ends = records.starts + records.sizes
    rest = body_crcs(Spans(records.buffer, records.starts, records.sizes - np.int64(ROOM_BYTES)))
    digits = np.empty((len(records), _DIGITS), dtype=np.uint8)
    for number in range(_DIGITS):
        digits[:, number] = rest % 10 + _ZERO
        rest //= 10
    # Least significant digit first, as RocketMQ writes it.
    first = ends - len(_END) - _DIGITS
    records.buffer[first[:, None] + np.arange(_DIGITS)] = digits


def _has_checksum(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask of the texts whose last entry is a checksum."""
    at = starts + lengths - ROOM_BYTES
    is_long = at >= starts
    at = np.where(is_long, at, 0)  # any position will do for a text that is too short
    leads = fixed_width(buffer, at, len(_LEAD)) == np.frombuffer(_LEAD, dtype=np.uint8)
    is_entry = (at == starts) | (buffer[at - 1] == _END[0])
    return np.asarray(is_long & leads.all(axis=1) & is_entry)


def _check_lengths(lengths: NDArray[np.int64]) -> None:
    limit = layout.MAX_PROPERTIES_BYTES
    if int(lengths.max()) > limit:
        row = int((lengths > limit).argmax())
        message = (
            f"Message {row} of this batch has {int(lengths[row])} bytes of properties with their "
            f"checksum (enabledAppendPropCRC), the limit is {limit}. Nothing was written."
        )
        raise IllegalMessageError(message)
