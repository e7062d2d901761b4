"""The compiled decoder and search give what their NumPy twins give, errors included."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec import layout
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.decode import decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.properties.search import find_values
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY
from broker_core.codec.record import Record
from broker_core.codec.schema import ALL_COLUMNS, COLUMN_TYPES, DEFAULT_COLUMNS
from broker_core.codec.spans import Spans
from broker_core.errors import CorruptRecordError
from broker_core.jit import availability
from tests.kit.records import PROPERTIES, laid_out, mixtures, of_one_queue, plain

pytest.importorskip("numba")

pytestmark = pytest.mark.property

Result = TypeVar("Result")

KERNELS, TWINS = 1, 1 << 60
"""From how many rows on kernels are asked."""

LONG_NAME = "k" * 17
VALUES = ["property:a", "property:DELAY", "property:名", "property:" + "k" * 16]
WIDE = ["topic", "queueId", "queueOffset", "storeTimestamp", "keys", "body"]
NUMBERS = [
    name
    for name, kind in COLUMN_TYPES.items()
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
]
COLUMN_SETS: list[Sequence[str]] = [
    DEFAULT_COLUMNS,
    WIDE,
    ["body", "queueOffset"],
    ["topic"],
    NUMBERS,
    ["tags", *VALUES, f"property:{LONG_NAME}", "tags", "storeTimestamp", "storeTimestamp"],
    ["property:UNIQ_KEY", "msgId", "offsetMsgId"],
    ALL_COLUMNS,
]
COLUMNS = st.sampled_from(COLUMN_SETS)
ORIGINS = st.sampled_from([None, 0, 2**50])
RECORD = Record(
    "TopicTest", 0, 0, 0, b"Hello RocketMQ", b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02"
)

# Texts that are nothing but separators, and letters of which names and values are made.
TANGLES = st.lists(
    st.sampled_from(
        [
            *(b"\x01", b"\x02", b"\x02", b"\x00", b"a", b"\xff", "名".encode(), b"TAGS\x01"),
            *(b"k" * 16, b"v" * 60, b"\x02a\x01x", b"\x02KEYS\x01" + b"w" * 70),
        ]
    ),
    max_size=12,
).map(b"".join)
TEXTS = st.one_of(PROPERTIES, TANGLES)


def with_kernels_from(rows: int, call: Callable[[], Result]) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(availability, "WORTH_ROWS", rows)
        return call()


def outcome(rows: int, frames: FrameBatch, columns: Sequence[str]) -> Any:
    """The batch, or all that a refusal says."""
    try:
        found = with_kernels_from(rows, lambda: decode(frames, columns))
    except CorruptRecordError as error:
        return str(error), error.path, error.physical_offset
    found.validate(full=True)
    return found


def check(frames: FrameBatch, columns: Sequence[str]) -> None:
    by_kernels, by_twins = (outcome(rows, frames, columns) for rows in (KERNELS, TWINS))

    assert type(by_kernels) is type(by_twins)
    assert by_kernels == by_twins


def is_plain(frames: FrameBatch, columns: Sequence[str] = DEFAULT_COLUMNS) -> bool:
    """Whether a kernel makes these columns, so that there is something to compare."""
    from broker_core.codec.decode_kernels import decode_plain

    found = decode_plain(
        frames,
        ["storeTimestamp"] if "storeTimestamp" in columns else [],
        [UNIQ_KEY],
        bodies="body" in columns,
        needed=UNIQ_KEY if "msgId" in columns else None,
    )
    return found is not None


@st.composite
def plain_batches(draw: st.DrawFn) -> FrameBatch:
    """Plain records of one queue with any properties; some of them may be compressed."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=5))
    kinds = [plain(record) for record in draw(mixtures(max_rows=5))]
    if draw(st.booleans()):
        kinds = [replace(record, sys_flag=0) for record in kinds]
    random = Random(draw(st.integers(0, 2**32)))
    rows = [
        replace(random.choice(kinds), properties=random.choice(texts))
        for _ in range(draw(st.integers(1, 40)))
    ]
    origin = draw(ORIGINS)
    frames = of_one_queue(rows, gap=draw(st.sampled_from([0, 13])), origin=origin or 0)
    return replace(frames, origin=origin, verify=draw(st.booleans()))


def damaged(frames: FrameBatch, changes: dict[int, int]) -> FrameBatch:
    """The same batch with some bytes of its buffer changed by exclusive or."""
    buffer = frames.buffer.copy()
    for place, mask in changes.items():
        buffer[place % len(buffer)] ^= mask
    return replace(frames, buffer=buffer)


# ----------------------------------------------------------------------------------------- decoding


def test_there_are_kernels_where_numba_is() -> None:
    assert availability.is_available()


@given(plain_batches(), COLUMNS)
def test_plain_records_are_decoded_alike(frames: FrameBatch, columns: Sequence[str]) -> None:
    check(frames, columns)


@given(mixtures(max_rows=20), COLUMNS, st.booleans(), st.booleans())
def test_any_records_are_decoded_alike(
    made: Sequence[Record], columns: Sequence[str], is_queue: bool, verify: bool
) -> None:
    frames = of_one_queue(made) if is_queue else laid_out(made)

    check(replace(frames, verify=verify), columns)


@given(
    plain_batches(),
    COLUMNS,
    st.dictionaries(st.integers(0, 2**16), st.integers(1, 255), min_size=1, max_size=3),
)
def test_damaged_records_are_read_or_refused_alike(
    frames: FrameBatch, columns: Sequence[str], changes: dict[int, int]
) -> None:
    check(damaged(frames, changes), columns)


@pytest.mark.parametrize("columns", [DEFAULT_COLUMNS, NUMBERS, ["body"]])
def test_every_flipped_byte_is_read_or_refused_alike(columns: Sequence[str]) -> None:
    frames = replace(of_one_queue([RECORD] * 2, origin=4096), verify=True)

    for place in range(int(frames.sizes[0])):
        for mask in (0x01, 0x80, 0xFF):
            check(damaged(frames, {place: mask}), columns)


@given(
    plain_batches(),
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))),
    st.integers(0, 40),
)
def test_places_and_sizes_that_lie_are_refused_alike(
    honest: FrameBatch, lies: list[tuple[int, int]], at: int
) -> None:
    at = min(at, len(honest))
    frames = replace(
        honest,
        starts=np.insert(honest.starts, at, [start for start, _ in lies]),
        sizes=np.insert(honest.sizes, at, [size for _, size in lies]),
        offsets=np.insert(honest.offsets, at, [0] * len(lies)),
    )

    check(frames, WIDE)


@given(plain_batches(), st.integers(-3, 120))
def test_a_buffer_that_ends_early_is_refused_alike(frames: FrameBatch, missing: int) -> None:
    check(replace(frames, buffer=frames.buffer[: len(frames.buffer) - max(0, missing)]), WIDE)


@given(plain_batches(), COLUMNS, st.randoms(use_true_random=False))
def test_rows_may_lie_in_any_order_and_repeat(
    frames: FrameBatch, columns: Sequence[str], random: Any
) -> None:
    order = random.choices(range(len(frames)), k=2 * len(frames))

    check(frames.select(np.array(order, dtype=np.intp)), columns)


def test_arrays_may_have_any_stride_and_type(tmp_path: Path) -> None:
    frames = of_one_queue([RECORD] * 30, gap=1)
    path = tmp_path / "log"
    frames.buffer.tofile(path)
    odd = replace(
        frames,
        buffer=np.memmap(path, dtype=np.uint8, mode="r"),
        starts=frames.starts.astype(np.int32)[::3],  # type: ignore[arg-type]  # test data
        sizes=frames.sizes.astype(np.int64)[::3],  # type: ignore[arg-type]  # test data
        offsets=frames.offsets[::3],
    )

    assert is_plain(odd)
    check(odd, DEFAULT_COLUMNS)


@given(plain_batches())
def test_plain_records_are_the_kernel_s(frames: FrameBatch) -> None:
    is_packed = [
        record[layout.SYS_FLAG + 3] & layout.SysFlag.COMPRESSED for record in frames.records()
    ]
    names = [parse_properties(_properties(record)).keys() for record in frames.records()]

    assert is_plain(frames, ["storeTimestamp"])
    assert is_plain(frames, ["body"]) == (not any(is_packed))
    assert is_plain(frames, ["msgId"]) == all(UNIQ_KEY in found for found in names)


def _properties(record: bytes) -> bytes:
    at = layout.BODY + int.from_bytes(record[layout.BODY_LENGTH : layout.BODY], "big")
    return record[at + 1 + record[at] + 2 :]


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, version=layout.MAGIC_V2),
        replace(RECORD, born_host=bytes(20)),
        replace(RECORD, store_host=bytes(20)),
        replace(RECORD, body=compress(b"x", "zlib"), sys_flag=compression_flags("zlib")),
        replace(RECORD, properties=b""),
        replace(RECORD, body=bytes(2 * 4096)),
    ],
    ids=["V2", "born IPv6", "store IPv6", "compressed", "no unique key", "large"],
)
def test_other_records_are_left_to_the_twin(other: Record) -> None:
    frames = of_one_queue([other, RECORD])  # all get the version of the first

    assert is_plain(of_one_queue([RECORD] * 2))
    assert not is_plain(frames)
    check(frames, DEFAULT_COLUMNS)


def test_a_topic_may_be_as_long_as_v1_allows_or_empty() -> None:
    for size in (0, 1, 6, 7, 8, 15, 126, 127):
        frames = of_one_queue([replace(RECORD, topic="t" * size)] * 3)

        assert is_plain(frames)
        check(frames, DEFAULT_COLUMNS)


def test_columns_hold_little_more_memory_than_they_fill() -> None:
    frames = of_one_queue([replace(RECORD, body=bytes(1000))] * 500)
    assert is_plain(frames)

    with_kernels_from(KERNELS, lambda: decode(frames))  # makes the room that values are gathered in
    tracemalloc.start()
    try:
        found = with_kernels_from(KERNELS, lambda: decode(frames))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found.nbytes < held + found.nbytes // 4  # else it is not what is measured
    assert held < 1.5 * found.nbytes


# ---------------------------------------------------------------------------------------- searching

NAMES = ["a", TAGS, KEYS, "k" * 7, "k" * 8, "k" * 16, LONG_NAME, "名", "a\x01a", "a\x02", ""]


@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
    st.integers(1, 70),
    st.integers(0, 70),
)
def test_values_are_found_at_the_same_places(
    rows: list[bytes], names: list[str], before: int, behind: int
) -> None:
    # Texts lie one behind the other, with what could be mistaken for a property on both sides.
    parts = [(b"a\x01T\x02" * before)[-before:]]
    for row in rows:
        parts += [row, b"\x02k"]
    buffer = np.frombuffer(b"".join(parts[:-1]) + (b"a\x01T\x02" * behind)[:behind], dtype=np.uint8)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    starts = before + np.cumsum(lengths + 2) - lengths - 2

    by_kernel, by_twin = (
        with_kernels_from(worth, lambda: find_values(Spans(buffer, starts, lengths), names))
        for worth in (KERNELS, TWINS)
    )

    for found, expected in zip(by_kernel, by_twin, strict=True):
        assert found.starts.tolist() == expected.starts.tolist()
        assert found.lengths.tolist() == expected.lengths.tolist()


@given(TANGLES, st.sampled_from(NAMES), st.integers(0, 64))
def test_a_value_is_found_where_parsing_finds_it(text: bytes, name: str, behind: int) -> None:
    buffer = np.frombuffer(b"\x02" * 64 + text + b"\x02" * behind, dtype=np.uint8)
    starts, lengths = np.array([64]), np.array([len(text)])

    (found,) = with_kernels_from(
        KERNELS, lambda: find_values(Spans(buffer, starts, lengths), [name])
    )

    start, length = int(found.starts[0]), int(found.lengths[0])
    value = buffer[start : start + length].tobytes().decode("utf-8", "replace")
    assert value == parse_properties(text).get(name, "")
    assert value or (start, length) == (64, 0)
