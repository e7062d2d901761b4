"""Spans of a buffer, gathered into columns: fields of many records, without a loop.

Two tricks carry the columnar codec. A view of the buffer whose stride is one byte makes every
position an element, so that indexing it with positions gathers a fixed-width field. And an Arrow
binary array whose offsets alternate between spans and the gaps between them is free to make; one
`take` of the spans copies just them. The integers of many rows are read by the twin,
spans_kernels.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_COMPILED = (np.dtype(">i4"), np.dtype(">i8"))
_FIXED_MAX = 512
_INT32_MAX = 2**31 - 1


class Spans(NamedTuple):
    """Spans of one buffer, one a row: row i is data[starts[i] : starts[i] + lengths[i]].

    A length of 0 says that the row has nothing: no such property, a null, an empty text.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def ends(self) -> NDArray[np.int64]:
        """The position behind each span."""
        return self.starts + self.lengths

    def bytes_of(self, row: int) -> bytes:
        """Return the bytes of one span."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def take(self, rows: NDArray[np.intp]) -> Spans:
        """Return the spans of these rows, over the same data."""
        return Spans(self.data, self.starts[rows], self.lengths[rows])


def starts_of(sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the positions of records of these sizes that lie one after another."""
    starts = np.zeros(len(sizes), dtype=np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts


def sliding(buffer: NDArray[np.uint8], dtype: DTypeLike) -> NDArray[Any]:
    """Return `buffer` seen as overlapping items of `dtype`, one starting at each byte.

    Index it with positions (never `take` it: that would copy the whole view). A position whose
    item would end beyond the buffer is out of bounds and raises IndexError.
    """
    item = np.dtype(dtype)
    count = max(0, len(buffer) - item.itemsize + 1)
    return np.ndarray((count,), dtype=item, buffer=buffer, strides=(1,))


def integers(
    buffer: NDArray[np.uint8], positions: NDArray[np.int64], dtype: DTypeLike
) -> NDArray[Any]:
    """Return the integers at these positions, in native byte order."""
    is_worth = availability.is_worth(len(positions), may_load=False)
    if is_worth and np.dtype(dtype) in _COMPILED:
        read = _integers_compiled(buffer, positions, np.dtype(dtype))
        if read is not None:
            return read
    found = sliding(buffer, dtype)[positions]
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _integers_compiled(
    buffer: NDArray[np.uint8], positions: NDArray[np.int64], dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    """Read integers by the kernel; None if a position is out of bounds."""
    from broker_core.codec.spans_kernels import gather_ints, gather_longs

    gather = gather_ints if dtype.itemsize == 4 else gather_longs
    found = np.empty(len(positions), dtype=dtype.newbyteorder("="))
    is_read = gather(arguments.octets(buffer), arguments.longs(positions), found)
    return found if is_read else None


def is_one_number(column: NDArray[Any]) -> bool:
    """Tell whether a column is one number, broadcast to all rows."""
    return column.strides == (0,)


def fixed_width(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], width: int
) -> NDArray[np.uint8]:
    """Copy the `width` bytes at each start into a (rows, width) matrix."""
    found = sliding(buffer, np.dtype((np.void, width)))[starts]
    return found.view(np.uint8).reshape(len(starts), width)


def gather_spans(spans: Spans) -> pa.Array:
    """Copy spans out, as a binary array.

    All of them must be inside the data. Spans in increasing order that do not overlap, as fields of
    records are, are copied fast.
    """
    buffer, starts, lengths = spans
    count = len(starts)
    if count == 0:
        return pa.array([], type=pa.binary())
    width = int(lengths[0])
    # Spans of one length, such as unique ids: indexing beats `take`, and any order will do.
    if 0 < width <= _FIXED_MAX and bool((lengths == width).all()):
        data = fixed_width(buffer, starts, width)
        return pa.Array.from_buffers(
            pa.binary(), count, [None, regular_offsets(count, width), pa.py_buffer(data)]
        )
    ends = starts + lengths
    if not bool((ends[:-1] <= starts[1:]).all()):
        return _gather_any_order(spans)
    # Offsets count from the first span: positions in a mapped segment may be beyond 32 bits.
    base = int(starts[0])
    reach = int(ends[-1]) - base
    kind, offset_type = (
        (pa.binary(), np.int32) if reach <= _INT32_MAX else (pa.large_binary(), np.int64)
    )
    offsets = np.empty(2 * count, dtype=offset_type)
    offsets[0::2] = starts - base
    offsets[1::2] = ends - base
    view = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer[base:])]
    )
    found = view.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))
    return found if found.type == pa.binary() else found.cast(pa.binary())


def _gather_any_order(spans: Spans) -> pa.Array:
    """Copy out spans of any order, overlapping or not, byte by byte."""
    buffer, starts, lengths = spans
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer[positions])]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers).cast(pa.binary())


def is_ascii(data: NDArray[np.uint8]) -> bool:
    """Tell whether no byte has its high bit set."""
    whole = len(data) & ~7
    words = data[:whole].view(np.uint64)
    if len(words) and int(np.bitwise_or.reduce(words)) & 0x8080808080808080:
        return False
    return not bool((data[whole:] & 0x80).any())


def regular_offsets(count: int, width: int) -> pa.Buffer:
    """Return the Arrow offsets of `count` items of one width."""
    return pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))


def spans_of(texts: pa.Array) -> Spans:
    """Return the spans of a binary or string array, over its own buffer; nulls have length 0."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_large_binary(texts.type) or pa.types.is_large_string(texts.type):
        offset_type: DTypeLike = np.int64
    else:
        offset_type = np.int32
    _, offsets_buffer, data = texts.buffers()
    if len(texts) == 0 or offsets_buffer is None:
        return Spans(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    offsets = np.frombuffer(offsets_buffer, dtype=offset_type)[
        texts.offset : texts.offset + len(texts) + 1
    ].astype(np.int64)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    return Spans(content, offsets[:-1], lengths)


def strings(raw: pa.Array) -> pa.Array:
    """Return binary as UTF-8 text; bytes that are not UTF-8 become U+FFFD, as in Java."""
    _, offsets, data = raw.buffers()
    # Bytes that are all ASCII are text as they are; anything else Arrow has to validate.
    if data is None or is_ascii(np.frombuffer(data, dtype=np.uint8)):
        return pa.Array.from_buffers(
            pa.string(), len(raw), [None, offsets, data], offset=raw.offset
        )
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [item.decode("utf-8", "replace") for item in raw.to_pylist()]
        return pa.array(texts, type=pa.string())


def value_column(values: Spans) -> pa.Array:
    """Return a property's values as strings, null where the row has none."""
    text = strings(gather_spans(values))
    absent = values.lengths == 0
    if not absent.any():
        return text
    _, offsets, data = text.buffers()
    present = np.packbits(~absent, bitorder="little")
    return pa.Array.from_buffers(
        pa.string(), len(text), [pa.py_buffer(present), offsets, data], offset=text.offset
    )


def fixed_strings(text: NDArray[np.uint8]) -> pa.Array:
    """Return the rows of a matrix of ASCII characters as strings."""
    rows, width = text.shape
    return pa.Array.from_buffers(
        pa.string(), rows, [None, regular_offsets(rows, width), pa.py_buffer(text)]
    )


@lru_cache(maxsize=16)
def repeated(text: str, count: int) -> pa.Array:
    """Return a column with one text in every row; batches of one size share it."""
    return pa.repeat(pa.scalar(text), count)
