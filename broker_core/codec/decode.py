"""Frame batch to Arrow: the NumPy and Arrow twin of decode_kernels.py.

Only the columns that are asked for are built (schema.py says which there are). The kernel runs for
batches of at least WORTH_ROWS plain records of one queue, unless a column is asked for that
it does not make; this one runs for all others, and for a batch with a record that does not check.
A few records are made rows by `table_of` in record.py.

The plain twin stays plain: special ways for records that are all alike (property layouts, tails of
one topic) were 0 to 1.3 ms quicker on the batches below 2,048 records that come here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.compression import InflateError, decompress
from broker_core.codec.fields import first_bad_topic, locate
from broker_core.codec.hosts import host_texts
from broker_core.codec.ids import hex_upper
from broker_core.codec.layout import SysFlag
from broker_core.codec.properties.search import find_values, segments_with_names, split_texts
from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY
from broker_core.codec.record import corrupt
from broker_core.codec.schema import (
    COLUMN_TYPES,
    DEFAULT_COLUMNS,
    PROPERTY_PREFIX,
    TIMESTAMP,
    schema_of,
)
from broker_core.codec.spans import (
    Spans,
    fixed_strings,
    gather_spans,
    repeated,
    strings,
    value_column,
)
from broker_core.errors import RequestError
from broker_core.jit import availability
from broker_core.types import DEFAULT_BROKER_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.decode_kernels import PlainColumns
    from broker_core.codec.fields import RecordFields
    from broker_core.codec.frames import FrameBatch

MAX_COLUMN_BYTES = 1 << 30
"""Most bytes of bodies in one batch; a binary column of Arrow ends at 2 GiB."""
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
_PROPERTY_OF = {"tags": TAGS, "keys": KEYS, "msgId": UNIQ_KEY}
_INTEGERS = frozenset(
    {
        "queueId",
        "queueOffset",
        "physicalOffset",
        "flag",
        "sysFlag",
        "reconsumeTimes",
        "bodyCrc",
        "preparedTransactionOffset",
    }
)
_TIMES = frozenset({"bornTimestamp", "storeTimestamp"})
_OF_THE_QUEUE = frozenset({"queueId", "queueOffset"})
_LOCATED_ONLY = frozenset({"properties", "offsetMsgId", "bornHost", "storeHost"})


class LargeBodiesError(RequestError):
    """Bodies that take too much together; those of the first `fitting` records do not."""

    def __init__(self, message: str, fitting: int) -> None:
        super().__init__(message)
        self.fitting = fitting


def decode(
    frames: FrameBatch,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    broker_name: str = DEFAULT_BROKER_NAME,
    max_body_bytes: int = MAX_COLUMN_BYTES,
) -> pa.RecordBatch:
    """Return a batch's records as rows; CorruptRecordError for the first that does not check.

    LargeBodiesError if bodies are asked for and together inflate to more than `max_body_bytes`.
    """
    schema = schema_of(columns)
    if not len(frames):
        nothing = [pa.nulls(0, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(nothing, schema=schema)
    decoder: _Columns | None = None
    if availability.is_worth(len(frames)):
        decoder = _compiled_columns(frames, broker_name, columns)
    if decoder is None:
        decoder = _LocatedColumns(frames, broker_name, columns, max_body_bytes)
    return pa.RecordBatch.from_arrays([decoder.column(name) for name in columns], schema=schema)


def property_columns(frames: FrameBatch, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the named properties as string columns, null where absent: what filters evaluate."""
    if not len(frames):
        return {name: pa.array([], type=pa.string()) for name in names}
    if availability.is_worth(len(frames)):
        from broker_core.codec.decode_kernels import decode_plain

        plain = decode_plain(frames, (), names, bodies=False)
        if plain is not None:
            return plain.values
    # Checked as `decode` checks them, bodies too if the batch asks for it: no filter may leave out
    # a damaged record unseen.
    found = find_values(locate(frames).properties, names)
    return {name: value_column(value) for name, value in zip(names, found, strict=True)}


class _Columns(ABC):
    """A batch being decoded: the columns that follow from numbers, values and bodies."""

    def __init__(self, frames: FrameBatch, broker_name: str) -> None:
        self._frames = frames
        self._broker_name = broker_name

    def column(self, name: str) -> pa.Array:
        """Build one column that was asked for."""
        if name in _INTEGERS:
            return self._integer(name)
        if name in _TIMES:
            return self._timestamp(name)
        if name.startswith(PROPERTY_PREFIX):
            return self._property(name[len(PROPERTY_PREFIX) :])
        builders: dict[str, Callable[[], pa.Array]] = {
            "topic": self._topic,
            "brokerName": lambda: repeated(self._broker_name, len(self._frames)),
            "msgId": self._message_id,
            "tags": lambda: self._property(TAGS),
            "keys": lambda: self._property(KEYS),
            "body": self._bodies,
            "storeSize": lambda: pa.array(self._frames.sizes, type=pa.int32()),
        }
        return builders[name]()

    @abstractmethod
    def _numbers(self, name: str) -> NDArray[np.integer]:
        """Return one field of the fixed part."""

    @abstractmethod
    def _property(self, name: str) -> pa.Array:
        """Return the values of one property."""

    @abstractmethod
    def _bodies(self) -> pa.Array:
        """Return the bodies as they were sent."""

    @abstractmethod
    def _topic(self) -> pa.Array: ...

    @abstractmethod
    def _message_id(self) -> pa.Array: ...

    def _integer(self, name: str) -> pa.Array:
        # Both were compared with the batch's own when the records were checked.
        if name == "queueOffset" and self._frames.queue is not None:
            return pa.array(self._frames.offsets, type=pa.int64())
        if name == "queueId" and self._frames.queue is not None:
            number = pa.scalar(self._frames.queue.queue_id, type=pa.int32())
            return pa.repeat(number, len(self._frames))
        return pa.array(self._numbers(name), type=COLUMN_TYPES[name])

    def _timestamp(self, name: str) -> pa.Array:
        # Any eight bytes may be stored, but microseconds of some would not fit Arrow's timestamp.
        millis = self._numbers(name)
        if millis.min() < -_MAX_TIMESTAMP_MS or millis.max() > _MAX_TIMESTAMP_MS:
            is_outside = (millis < -_MAX_TIMESTAMP_MS) | (millis > _MAX_TIMESTAMP_MS)
            row = int(is_outside.argmax())
            what = (
                f"its {name} of {int(millis[row])} ms is beyond what a timestamp can hold (leave"
                f" {name} out of `columns` to read the rest)"
            )
            raise corrupt(self._frames, row, what)
        return pa.array(millis * 1000).view(TIMESTAMP)


def _compiled_columns(
    frames: FrameBatch, broker_name: str, columns: Sequence[str]
) -> _CompiledColumns | None:
    """Decode by the kernel; None if a column or a record is beyond it."""
    if frames.queue is None or not _LOCATED_ONLY.isdisjoint(columns):
        return None
    from broker_core.codec.decode_kernels import decode_plain

    found = decode_plain(
        frames,
        sorted((_INTEGERS | _TIMES).difference(_OF_THE_QUEUE).intersection(columns)),
        _property_names(columns),
        bodies="body" in columns,
        # Without a unique key the message id is made of the store host, which the kernel leaves.
        needed=UNIQ_KEY if "msgId" in columns else None,
    )
    return _CompiledColumns(frames, broker_name, found) if found is not None else None


class _CompiledColumns(_Columns):
    """A batch that the kernel has walked over."""

    def __init__(self, frames: FrameBatch, broker_name: str, found: PlainColumns) -> None:
        super().__init__(frames, broker_name)
        self._found = found

    def _numbers(self, name: str) -> NDArray[np.integer]:
        return self._found.numbers[name]

    def _property(self, name: str) -> pa.Array:
        return self._found.values[name]

    def _bodies(self) -> pa.Array:
        return self._found.bodies

    def _topic(self) -> pa.Array:
        assert self._frames.queue is not None
        return repeated(self._frames.queue.topic, len(self._frames))

    def _message_id(self) -> pa.Array:
        return self._property(UNIQ_KEY)


class _LocatedColumns(_Columns):
    """A batch of any records: fields located once, properties searched once."""

    def __init__(
        self, frames: FrameBatch, broker_name: str, columns: Sequence[str], max_body_bytes: int
    ) -> None:
        super().__init__(frames, broker_name)
        self._max_body_bytes = max_body_bytes
        names = _property_names(columns)
        self._fields = locate(frames)
        found = find_values(self._fields.properties, names)
        self._values = dict(zip(names, found, strict=True))

    def column(self, name: str) -> pa.Array:
        if name not in _LOCATED_ONLY:
            return super().column(name)
        if name == "properties":
            return self._properties()
        return self._offset_id() if name == "offsetMsgId" else self._host(name)

    def _numbers(self, name: str) -> NDArray[np.integer]:
        return self._fields.integer(name)

    def _property(self, name: str) -> pa.Array:
        return value_column(self._values[name])

    def _bodies(self) -> pa.Array:
        return body_column(self._fields, self._max_body_bytes)

    def _topic(self) -> pa.Array:
        if self._fields.topic is not None:
            return repeated(self._fields.topic, len(self._frames))
        bad = first_bad_topic(self._fields)
        if bad is not None:
            raise corrupt(self._frames, bad)
        return strings(gather_spans(self._fields.topics))

    def _message_id(self) -> pa.Array:
        unique = self._property(UNIQ_KEY)
        return unique if not unique.null_count else pc.coalesce(unique, self._offset_id())

    def _offset_id(self) -> pa.Array:
        physical = self._fields.integer("physicalOffset").astype(">i8").view(np.uint8)
        tails = physical.reshape(-1, 8)
        # Ids of one length are one matrix: IPv4 and IPv6 hosts are made text apart.
        groups = self._fields.hosts("storeHost")
        texts = [hex_upper(np.hstack([hosts, tails[rows]])) for rows, hosts in groups]
        return _regroup([rows for rows, _ in groups], [fixed_strings(text) for text in texts])

    def _host(self, name: str) -> pa.Array:
        groups = self._fields.hosts(name)
        texts = [pa.array(host_texts(hosts), type=pa.string()) for _, hosts in groups]
        return _regroup([rows for rows, _ in groups], texts)

    def _properties(self) -> pa.Array:
        found = split_texts(self._fields.properties)
        hits, splits = segments_with_names(found)
        rows, begins, ends = found.rows[hits], found.begins[hits], found.ends[hits]
        names = strings(gather_spans(Spans(found.text, begins, splits - begins)))
        values = strings(gather_spans(Spans(found.text, splits + 1, ends - splits - 1)))
        keep = _last_of_each(rows, names)
        if keep is not None:
            names, values, rows = names.filter(keep), values.filter(keep), rows[keep]
        offsets = np.zeros(len(self._frames) + 1, dtype=np.int32)
        np.cumsum(np.bincount(rows, minlength=len(self._frames)), out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _property_names(columns: Sequence[str]) -> list[str]:
    """Return the properties that columns are made of, each once."""
    names = (
        column[len(PROPERTY_PREFIX) :]
        if column.startswith(PROPERTY_PREFIX)
        else _PROPERTY_OF.get(column)
        for column in columns
    )
    return list(dict.fromkeys(name for name in names if name))


def _regroup(rows: list[NDArray[np.intp]], parts: list[pa.Array]) -> pa.Array:
    """Join parts that hold these rows, in row order."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(rows), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order))


def _last_of_each(rows: NDArray[np.int64], names: pa.Array) -> NDArray[np.bool_] | None:
    """Tell which entries stay when a row repeats a name (the last does); None if none repeats."""
    # One number for each pair of row and name: distinct numbers are counted faster than pairs.
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    entries = rows * (int(codes.max(initial=0)) + 1) + codes
    if pc.count_distinct(pa.array(entries)).as_py() == len(entries):
        return None
    _, last = np.unique(entries[::-1], return_index=True)
    keep = np.zeros(len(entries), dtype=np.bool_)
    keep[len(entries) - 1 - last] = True
    return keep


def body_column(fields: RecordFields, max_bytes: int = MAX_COLUMN_BYTES) -> pa.Array:
    """Return the bodies as they were sent, the compressed ones inflated.

    CorruptRecordError for one that can't be inflated, LargeBodiesError if all of them together take
    more than `max_bytes`, stored or inflated.
    """
    filled = np.cumsum(fields.bodies.lengths, dtype=np.int64)
    if int(filled[-1]) > max_bytes:
        fitting = int(np.searchsorted(filled, max_bytes, side="right"))
        raise _too_large(fields, max_bytes, fitting)
    stored = gather_spans(fields.bodies)
    packed = np.flatnonzero(fields.sys_flags & SysFlag.COMPRESSED)
    if not len(packed):
        return stored
    plain = _inflated(fields, stored.take(pa.array(packed)), packed, max_bytes)
    if len(packed) == len(stored):
        return plain
    mask = np.zeros(len(stored), dtype=np.bool_)
    mask[packed] = True
    return pc.replace_with_mask(stored, pa.array(mask), plain)


def _inflated(
    fields: RecordFields, stored: pa.Array, rows: NDArray[np.intp], max_bytes: int
) -> pa.Array:
    plain = []
    size = 0
    flags = fields.sys_flags[rows].tolist()
    for row, body, flag in zip(rows.tolist(), stored.to_pylist(), flags, strict=True):
        try:
            plain.append(decompress(body, flag))
        except InflateError as error:
            raise corrupt(fields.frames, row, f"its body can't be inflated: {error}") from error
        # Checked on the way: a few small bodies may inflate to more than there is memory.
        size += len(plain[-1])
        if size > max_bytes:
            raise _too_large(fields, max_bytes, row)
    return pa.array(plain, type=pa.binary())


def _too_large(fields: RecordFields, max_bytes: int, fitting: int) -> LargeBodiesError:
    message = (
        f"The bodies of {len(fields.frames)} records take more than {max_bytes} bytes."
        " Read fewer records at once (batchRows)."
    )
    return LargeBodiesError(message, fitting)
