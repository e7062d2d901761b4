"""The columnar decoder gives what the scalar one gives, whatever lies in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.decode import decode, property_columns
from broker_core.codec.frames import FrameBatch
from broker_core.codec.property_names import KEYS, TAGS
from broker_core.codec.record import Record, decode_record, row_of, table_of
from broker_core.codec.schema import ALL_COLUMNS
from tests.kit.records import laid_out, mixtures, of_one_queue

pytestmark = pytest.mark.usefixtures("either_way")

COLUMNS = [*ALL_COLUMNS, "property:a", "property:DELAY", "property:" + "k" * 17]
GAPS = st.sampled_from([0, 1, 13])
ORIGINS = st.sampled_from([0, 1_073_741_824, 2**50])


def scalar_rows(frames: FrameBatch) -> list[dict[str, Any]]:
    return [scalar_row(decode_record(encoded)) for encoded in frames.records()]


def scalar_row(record: Record) -> dict[str, Any]:
    named = {name: record.property_map.get(name) for name in ("a", "DELAY", "k" * 17)}
    return {**row_of(record, "broker-a"), "properties": record.property_map, **named}


def columnar_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name in ("bornTimestamp", "storeTimestamp"):
        columns[name] = columns[name].cast(pa.int64())
    rows: list[dict[str, Any]] = pa.RecordBatch.from_pydict(columns).to_pylist()
    for row in rows:
        entries = row["properties"]
        row["properties"] = dict(entries)
        assert len(row["properties"]) == len(entries)
    return rows


@given(mixtures(), GAPS, ORIGINS)
def test_columns_of_a_mixture_are_the_scalar_fields(
    records: Sequence[Record], gap: int, origin: int
) -> None:
    frames = laid_out(records, gap=gap, origin=origin)

    assert columnar_rows(decode(frames, COLUMNS)) == scalar_rows(frames)


@given(mixtures(), ORIGINS)
def test_a_table_made_row_by_row_is_the_one_made_by_columns(
    records: Sequence[Record], origin: int
) -> None:
    frames = laid_out(records, origin=origin)
    singly = table_of([decode_record(encoded) for encoded in frames.records()], "broker-a")
    columns = decode(frames, ALL_COLUMNS)

    [rows] = singly.combine_chunks().to_batches()
    assert rows.schema == columns.schema
    assert columnar_rows(rows) == columnar_rows(columns)


@given(mixtures(), GAPS, ORIGINS)
def test_columns_of_one_queue_are_the_scalar_fields(
    records: Sequence[Record], gap: int, origin: int
) -> None:
    frames = of_one_queue(records, gap=gap, origin=origin)

    assert columnar_rows(decode(frames, COLUMNS)) == scalar_rows(frames)


@given(
    mixtures(max_rows=20), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), st.data()
)
def test_any_subset_of_columns_and_rows_is_that_part_of_the_whole(
    records: Sequence[Record], columns: list[str], data: st.DataObject
) -> None:
    frames = laid_out(records)
    rows = data.draw(st.lists(st.booleans(), min_size=len(frames), max_size=len(frames)))
    whole = decode(frames, COLUMNS)

    part = decode(frames.select(pa.array(rows, pa.bool_()).to_numpy(False)), columns)

    names = [column.removeprefix("property:") for column in columns]
    assert part.equals(whole.select(names).filter(pa.array(rows, pa.bool_())))


@given(mixtures(max_rows=20), st.randoms(use_true_random=False))
def test_rows_may_lie_in_any_order_and_repeat(records: Sequence[Record], random: Any) -> None:
    frames = laid_out(records)
    order = random.choices(range(len(frames)), k=2 * len(frames))

    shuffled = decode(frames.select(pa.array(order).to_numpy()), COLUMNS)

    assert shuffled.equals(decode(frames, COLUMNS).take(pa.array(order)))


@given(mixtures(), st.sampled_from([[TAGS], [TAGS, "a"], ["DELAY", KEYS, "名"]]))
def test_property_columns_are_the_parsed_properties(
    records: Sequence[Record], names: list[str]
) -> None:
    frames = laid_out(records)

    found = property_columns(frames, names)

    for name in names:
        assert found[name].to_pylist() == [record.property_map.get(name) for record in records]
