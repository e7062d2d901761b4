from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.properties.text import format_properties
from broker_core.codec.record import Record, encode_record
from broker_core.errors import FilterSyntaxError, RequestError
from broker_core.filter.bloom import BloomShape
from broker_core.filter.pipeline import FilterCount, MessageFilter, Pipeline, StageCount
from broker_core.filter.registered import RegisteredFilter
from broker_core.filter.sqlfilter import SqlFilter
from broker_core.filter.tag_expression import TagFilter
from broker_core.store.queue.consume_queue import ENTRY
from broker_core.store.queue.ext import ExtUnits, address_of
from broker_core.types import QueueRef

pytestmark = pytest.mark.usefixtures("either_way")

SHAPE = BloomShape.of()
REGISTERED = RegisteredFilter(
    topic="orders",
    group="g",
    expression="price > 5",
    expression_type="SQL92",
    born_ms=10,
    dead_ms=0,
    client_version=1,
    positions=SHAPE.positions("g", "orders"),
    m=SHAPE.m,
    saved_ms=100_000,
)
MATCHED = SHAPE.bitmap(REGISTERED.positions)


def frames(*messages: Mapping[str, str]) -> FrameBatch:
    """Records with these properties, as queue orders/0 from offset 0 on."""
    records: list[bytes] = []
    for offset, properties in enumerate(messages):
        at = sum(map(len, records))
        text = format_properties(properties)
        records.append(encode_record(Record("orders", 0, offset, at, b"body", text)))
    sizes = np.array(list(map(len, records)), np.int32)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    return FrameBatch(
        buffer=np.frombuffer(b"".join(records), np.uint8),
        starts=starts,
        sizes=sizes,
        offsets=np.arange(len(records)),
        queue=QueueRef("orders", "broker-a", 0),
        next_offset=len(records),
        origin=0,
    )


def entries(*codes: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Entries with these tags codes, of records of 100 bytes."""
    return np.array([(100 * row, 100, code) for row, code in enumerate(codes)], ENTRY)


class Units:
    """An extension that holds these units, one for each entry, and counts how often it is asked."""

    def __init__(self, codes: Sequence[int], bitmaps: Sequence[bytes]) -> None:
        self.asked = 0
        width = max(map(len, bitmaps))
        self._units = ExtUnits(
            is_known=np.ones(len(codes), np.bool_),
            tags_codes=np.array(codes, np.int64),
            store_timestamps=np.full(len(codes), 50, np.int64),
            bitmap_lengths=np.array([len(bitmap) for bitmap in bitmaps], np.int16),
            bitmaps=np.array([list(bitmap.ljust(width, b"\0")) for bitmap in bitmaps], np.uint8),
        )

    def read(self, tags_codes: np.ndarray[tuple[int], np.dtype[np.int64]], /) -> ExtUnits:
        assert len(tags_codes) == len(self._units.tags_codes)
        self.asked += 1
        return self._units


def pipeline(tags: str | None = None, sql: str | None = None, **more: RegisteredFilter) -> Pipeline:
    message_filter = MessageFilter.of(tags, sql)
    assert message_filter is not None
    return Pipeline(message_filter, **more)


@pytest.mark.parametrize("tags", [None, "", "*"])
def test_no_filter_is_needed_for_everything(tags: str | None) -> None:
    assert MessageFilter.of(tags) is None


def test_tags_and_sql_together_are_refused() -> None:
    with pytest.raises(RequestError, match="not both"):
        MessageFilter.of("A", "price > 5")


@pytest.mark.parametrize("sql", ["", " ", "price >"])
def test_text_that_is_no_filter_is_refused(sql: str) -> None:
    with pytest.raises(FilterSyntaxError):
        MessageFilter.of(sql=sql)


def test_properties_are_those_that_the_filters_read() -> None:
    both = MessageFilter(TagFilter("A"), SqlFilter("price > 5 AND TAGS <> 'x'"))

    assert both.properties == ("TAGS", "price")
    assert MessageFilter(tags=TagFilter("A")).properties == ("TAGS",)
    assert MessageFilter(sql=SqlFilter("price > 5")).properties == ("price",)


def test_entries_are_chosen_by_tag_hash_without_reading_records() -> None:
    work = pipeline("Aa")
    found = work.select_entries(entries(*map(java_hash, ("Aa", "BB", "C", ""))))

    assert found.tolist() == [0, 1]
    assert work.count.tag_hash == StageCount(examined=4, dropped=2, size_bytes=80)


def test_records_are_chosen_by_exact_tag() -> None:
    work = pipeline("Aa")

    left = work.select_frames(frames({"TAGS": "Aa"}, {"TAGS": "BB"}, {}))

    assert left.offsets.tolist() == [0]
    assert left.next_offset == 3
    assert (work.count.tag_text.examined, work.count.tag_text.dropped) == (3, 2)


def test_records_are_chosen_by_properties() -> None:
    work = pipeline(sql="price > 5")

    left = work.select_frames(frames({"price": "7"}, {"price": "3"}, {"price": "x"}, {}))

    assert left.offsets.tolist() == [0]
    assert (work.count.sql.examined, work.count.sql.dropped) == (4, 3)
    assert work.count.sql.size_bytes > 0


def test_both_filters_must_pass_where_both_are_set() -> None:
    work = Pipeline(MessageFilter(TagFilter("A"), SqlFilter("price > 5")))
    batch = frames({"TAGS": "A", "price": "7"}, {"TAGS": "B", "price": "7"}, {"TAGS": "A"})

    assert work.select_frames(batch).offsets.tolist() == [0]
    assert (work.count.sql.dropped, work.count.tag_text.dropped) == (1, 1)


def test_batch_of_which_all_or_nothing_is_wanted_stays_in_place() -> None:
    batch = frames({"price": "7"}, {"price": "8"})

    assert pipeline(sql="price > 5").select_frames(batch) is batch
    assert pipeline(sql="price > 5").select_frames(batch.slice(0, 0)).next_offset == 2


def test_sql_filter_takes_all_entries_and_asks_no_extension_without_registration() -> None:
    units = Units([0], [MATCHED])

    work = pipeline(sql="price > 5")

    assert not work.selects_entries
    assert work.select_entries(entries(address_of(0)), units).tolist() == [0]
    assert units.asked == 0


def test_extension_is_not_asked_where_no_entry_leads_to_it() -> None:
    units = Units([0], [MATCHED])

    pipeline("A").select_entries(entries(java_hash("A")), units)

    assert units.asked == 0


def test_tag_hash_is_taken_from_the_extension() -> None:
    units = Units([java_hash("A"), java_hash("B"), address_of(68)], [b"", b"", b""])
    fields = entries(address_of(0), address_of(34), address_of(68))

    assert pipeline("A").select_entries(fields, units).tolist() == [0, 2]


def test_entries_that_the_bitmap_rejects_are_dropped() -> None:
    work = pipeline(sql="price > 5", registration=REGISTERED)
    units = Units([0, 0, 0], [MATCHED, bytes(14), b""])
    fields = entries(address_of(0), address_of(34), address_of(68))

    assert work.select_entries(fields, units).tolist() == [0, 2]
    assert work.count.bitmap == StageCount(examined=3, dropped=1, size_bytes=3 * 20 + 28)


def test_registration_of_another_filter_is_ignored() -> None:
    other = dataclasses.replace(REGISTERED, expression="price > 6")
    units = Units([0], [bytes(14)])

    work = pipeline(sql="price > 5", registration=other)

    assert work.select_entries(entries(address_of(0)), units).tolist() == [0]


@pytest.mark.parametrize("tags", ["A", "A || B", "A || B || C || D || E || F || G || H || I || J"])
def test_any_number_of_tags_can_be_asked_for(tags: str) -> None:
    named = tags.split(" || ")
    found = pipeline(tags).select_entries(entries(*map(java_hash, "ABCDEFGHIJKL")))

    assert found.tolist() == list(range(len(named)))


def test_filter_that_names_no_tag_wants_no_entry() -> None:
    assert pipeline(" ").select_entries(entries(0, java_hash("A"))).tolist() == []


def test_everything_is_wanted_by_a_filter_for_everything() -> None:
    work = Pipeline(MessageFilter(tags=TagFilter("*")))

    assert work.select_entries(entries(0, java_hash("A"))).tolist() == [0, 1]


def test_tag_field_counts_by_its_low_half() -> None:
    high = 7 << 32
    found = pipeline("A").select_entries(entries(high | java_hash("A"), high, java_hash("A")))

    assert found.tolist() == [0, 2]


@pytest.mark.parametrize("size", [0, -1, 0x7FFFFFFF])
@pytest.mark.parametrize("code", [java_hash("B"), address_of(0)], ids=["hash", "address"])
def test_damaged_entry_is_kept_whatever_its_tag(size: int, code: int) -> None:
    found = entries(java_hash("B"), code, java_hash("A"))
    found["size"][1] = size

    assert pipeline("A").select_entries(found).tolist() == [1, 2]


@pytest.mark.parametrize("limit", ["rows", "bytes"])
def test_a_filter_of_many_operations_pauses_after_a_bounded_part_of_a_batch(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """It does so also where nothing passes: the caller may have gone."""
    sql = SqlFilter(" OR ".join(f"b CONTAINS 'x{number}y'" for number in range(100)))
    whole = frames(*[{"b": "x7y" if row == 33 else "no"} for row in range(100)])
    row_bytes = int(whole.sizes[0])
    rows, most_bytes = (10, 1 << 30) if limit == "rows" else (1000, 10 * row_bytes)
    monkeypatch.setattr(
        "broker_core.filter.pipeline._WORK",
        (rows * sql.operations, (most_bytes + 1) * sql.operations),
    )
    pipeline = Pipeline(MessageFilter(sql=sql))

    taken = [
        (pipeline.count.sql.examined, batch.offsets.tolist(), batch.next_offset)
        for batch in pipeline.survivors([whole, whole], 1000, 1 << 20)
    ]

    examined = [0, *(each[0] for each in taken)]
    assert sql.operations == 299
    assert max(np.diff(examined)) <= 20
    assert [offset for each in taken for offset in each[1]] == [33, 33]
    assert taken[-1] == (200, [], 100)


def test_counts_add_up_and_read_as_one_line() -> None:
    first = FilterCount(tag_hash=StageCount(100, 90, 2000), tag_text=StageCount(10, 1, 52))
    second = FilterCount(tag_hash=StageCount(1, 1, 20))

    total = first + second

    assert total.stages() == {
        "tag_hash": StageCount(101, 91, 2020),
        "tag_text": StageCount(10, 1, 52),
    }
    assert str(total) == (
        "tag_hash_examined=101 tag_hash_dropped=91 tag_hash_bytes=2020"
        " tag_text_examined=10 tag_text_dropped=1 tag_text_bytes=52"
    )
    assert str(FilterCount()) == ""
