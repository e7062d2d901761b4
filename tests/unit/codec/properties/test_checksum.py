"""Property checksums of many records at once are those of each alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.encode import EncodedRecords
from broker_core.codec.properties.checksum import fill_checksums, reserve_checksums
from broker_core.codec.record import (
    Record,
    encode_record,
    property_crc_matches,
    with_property_crc,
)
from broker_core.errors import IllegalMessageError
from broker_core.store.io.segments import list_segments
from broker_core.types import LocalTransactionState
from tests.kit import stores
from tests.kit.records import records

pytestmark = pytest.mark.usefixtures("either_way")


def joined(encoded: list[bytes]) -> EncodedRecords:
    sizes = np.array([len(each) for each in encoded], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])[: len(sizes)]
    buffer = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
    return EncodedRecords(buffer, starts, sizes, 56)


def split(found: EncodedRecords) -> list[bytes]:
    ends = found.starts + found.sizes
    return [
        found.buffer[start:end].tobytes() for start, end in zip(found.starts, ends, strict=True)
    ]


@pytest.mark.property
@given(st.lists(records(), max_size=6))
def test_many_records_get_the_checksums_that_each_gets_alone(made: list[Record]) -> None:
    encoded = [encode_record(record) for record in made]

    found = reserve_checksums(joined(encoded))
    fill_checksums(found)

    assert split(found) == [with_property_crc(each) for each in encoded]


def test_an_old_checksum_is_replaced() -> None:
    plain = [
        encode_record(Record("t", 0, number, number, b"x" * number, properties))
        for number, properties in enumerate([b"", b"a\x01b", b"a\x01b\x02", b"__CRC32#\x01b\x02"])
    ]
    checked = [with_property_crc(each) for each in plain]

    found = reserve_checksums(joined(checked))
    fill_checksums(found)

    assert split(found) == checked


def test_the_end_of_another_property_is_not_taken_for_a_checksum() -> None:
    text = b"a\x01x__CRC32#\x010123456789\x02"
    plain = encode_record(Record("t", 0, 0, 0, b"x", text))

    found = reserve_checksums(joined([plain]))
    fill_checksums(found)

    assert split(found) == [with_property_crc(plain)]


def test_properties_that_become_too_long_are_refused() -> None:
    long = encode_record(Record("t", 0, 0, 0, b"x", b"a\x01" + b"x" * 32_750))

    with pytest.raises(IllegalMessageError, match=r"has 32773 bytes .* the limit is 32767"):
        reserve_checksums(joined([long]))


def test_a_store_writes_checksums_if_it_is_told_to(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", enabledAppendPropCRC=True) as broker:
        broker.create_topic("orders", queues=2)
        for number in range(3):
            broker.send("orders", b"%d" % number, tags="A", keys=[f"k{number}"])
        broker.send("orders", b"later", delay_level=18)
        half = broker.transactions.prepare("orders", b"half", group="g", queue_id=1)
        broker.transactions.end(half, LocalTransactionState.COMMIT)
        rows = broker.read("orders", 1, columns=["body", "physicalOffset", "storeSize"])
        assert rows["body"].to_pylist()[-1] == b"half"
        places = (
            rows.to_pylist()
            + broker.read("orders", 0, columns=["physicalOffset", "storeSize"]).to_pylist()
        )

    log = list_segments(tmp_path / "store" / "commitlog")[0].path.read_bytes()
    assert len(places) == 4
    for row in places:
        at = row["physicalOffset"]
        assert property_crc_matches(log[at : at + row["storeSize"]])
    assert log.count(b"__CRC32#") == log.count(b"\xda\xa3\x20\xa7")
