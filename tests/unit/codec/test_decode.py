"""What decoding promises beside equality with the scalar codec: types, refusals, limits."""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.compression import MAX_INFLATED_BYTES, compression_flags
from broker_core.codec.decode import body_column, decode, property_columns
from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.record import Record
from broker_core.codec.schema import ALL_COLUMNS, COLUMN_TYPES, DEFAULT_COLUMNS, schema_of
from broker_core.errors import CorruptRecordError, RequestError
from broker_core.types import QueueRef
from tests.kit.records import laid_out, of_one_queue

pytestmark = pytest.mark.usefixtures("either_way")

RECORD = Record("T", 0, 0, 0, b"body", format_properties({"TAGS": "A", "KEYS": "k"}))


def batch(rows: int = 3, **changes: object) -> FrameBatch:
    return replace(of_one_queue([RECORD] * rows, origin=4096), **changes)  # type: ignore[arg-type]  # test data


class TestColumns:
    def test_default_columns_are_the_ten_of_the_contract_in_order(self) -> None:
        assert decode(batch()).schema.names == [
            "topic",
            "brokerName",
            "queueId",
            "queueOffset",
            "msgId",
            "tags",
            "keys",
            "body",
            "bornTimestamp",
            "storeTimestamp",
        ]

    def test_columns_come_in_the_order_asked_for(self) -> None:
        found = decode(batch(), ["body", "property:TAGS", "topic"])

        assert found.schema.names == ["body", "TAGS", "topic"]

    def test_types_are_the_same_for_no_rows_and_many(self) -> None:
        none = decode(batch().slice(0, 0), ALL_COLUMNS)

        assert none.num_rows == 0
        assert none.schema == decode(batch(), ALL_COLUMNS).schema == schema_of(ALL_COLUMNS)

    def test_broker_name_is_the_caller_s(self) -> None:
        found = decode(batch(), ["brokerName"], broker_name="broker-b")

        assert found.column(0).to_pylist() == ["broker-b"] * 3

    def test_absent_properties_are_null(self) -> None:
        rows = [RECORD, replace(RECORD, properties=b"")]

        found = decode(laid_out(rows), ["tags", "keys", "property:none"])

        assert found.to_pylist()[1] == {"tags": None, "keys": None, "none": None}
        assert found.column("tags").to_pylist() == ["A", None]

    def test_message_id_is_the_unique_key_or_else_the_offset_id(self) -> None:
        rows = [RECORD, replace(RECORD, properties=format_properties({"UNIQ_KEY": "u"}))]

        found = decode(laid_out(rows), ["msgId", "offsetMsgId"])

        assert found.column("msgId").to_pylist() == [found.column("offsetMsgId")[0].as_py(), "u"]

    @pytest.mark.parametrize("column", ["nope", "property:", "Body", ""])
    def test_a_column_that_does_not_exist_is_refused_with_those_that_do(self, column: str) -> None:
        with pytest.raises(RequestError, match=r"Columns are topic, .* and property:NAME"):
            decode(batch(), ["body", column])

    def test_every_column_has_a_type_and_the_default_ones_come_first(self) -> None:
        assert tuple(COLUMN_TYPES)[:10] == DEFAULT_COLUMNS
        assert set(ALL_COLUMNS) == set(COLUMN_TYPES)

    def test_property_columns_of_no_rows_are_empty(self) -> None:
        assert property_columns(batch().slice(0, 0), ["a"]) == {"a": pa.array([], pa.string())}


class TestRefusals:
    def test_a_record_of_another_queue_is_named_with_both(self) -> None:
        frames = batch(queue=QueueRef("T", "broker-a", 2))

        with pytest.raises(CorruptRecordError, match=r"T/broker-a/2, offset 0.* message 0 of T/3"):
            decode(frames)

    def test_a_record_of_another_topic_is_refused(self) -> None:
        with pytest.raises(CorruptRecordError, match="of T/3"):
            decode(batch(queue=QueueRef("U", "broker-a", 3)))

    @pytest.mark.parametrize("size", [128, 255, 300])
    def test_a_topic_too_long_for_a_v1_record_is_refused(self, size: int) -> None:
        frames = batch(queue=QueueRef("T" * size, "broker-a", 3))

        with pytest.raises(CorruptRecordError, match="of T/3"):
            decode(frames)

    def test_another_offset_than_the_queue_s_is_refused(self) -> None:
        with pytest.raises(CorruptRecordError, match="message 0 of T/3"):
            decode(batch(offsets=np.arange(1, 4)))

    def test_another_size_than_the_queue_s_is_refused_with_both(self) -> None:
        sizes = batch().sizes - np.array([0, 1, 0], dtype=np.int32)

        with pytest.raises(CorruptRecordError, match=r"size is 110, the consume queue says 109"):
            decode(batch(sizes=sizes))

    def test_a_record_found_elsewhere_than_it_says_is_refused(self) -> None:
        with pytest.raises(CorruptRecordError, match="it says that it lies at 4096") as refusal:
            decode(batch(origin=8192))

        assert refusal.value.physical_offset == 8192

    def test_a_bad_body_is_refused_when_checksums_are_asked_for(self) -> None:
        buffer = batch().buffer.copy()
        buffer[110 + 88] ^= 1

        assert decode(batch(buffer=buffer)).num_rows == 3
        with pytest.raises(CorruptRecordError, match="body checksum is 0x") as refusal:
            decode(batch(buffer=buffer, verify=True))

        assert refusal.value.physical_offset == 4096 + 110
        assert refusal.value.path == "a test"

    def test_a_topic_that_is_no_text_is_refused(self) -> None:
        buffer = laid_out([RECORD]).buffer.copy()
        buffer[88 + 4 + 1] = 0xFF

        with pytest.raises(CorruptRecordError, match="not UTF-8"):
            decode(replace(laid_out([RECORD]), buffer=buffer), ["topic"])

    @pytest.mark.parametrize("millis", [2**62, -(2**63), 2**63 - 1])
    def test_a_time_beyond_a_timestamp_is_refused_but_the_rest_is_readable(
        self, millis: int
    ) -> None:
        frames = laid_out([RECORD, replace(RECORD, born_timestamp=millis)])

        with pytest.raises(CorruptRecordError, match=rf"bornTimestamp of {millis} ms"):
            decode(frames)
        assert decode(frames, ["body", "storeTimestamp"]).num_rows == 2


class TestBodies:
    def test_a_body_that_inflates_beyond_the_limit_is_refused_within_bounded_memory(self) -> None:
        bomb = zlib.compress(bytes(MAX_INFLATED_BYTES + 1), 1)
        frames = laid_out([replace(RECORD, body=bomb, sys_flag=compression_flags("zlib"))])

        tracemalloc.start()
        with pytest.raises(CorruptRecordError, match=f"more than {MAX_INFLATED_BYTES} bytes"):
            decode(frames, ["body"])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert peak < 3 * MAX_INFLATED_BYTES

    def test_bodies_that_are_too_much_together_ask_for_smaller_batches(self) -> None:
        packed = replace(
            RECORD, body=zlib.compress(bytes(4000)), sys_flag=compression_flags("zlib")
        )

        assert len(body_column(locate(laid_out([packed] * 2)), max_bytes=10_000)) == 2
        with pytest.raises(RequestError, match=r"3 records take more than 10000 bytes.*batchRows"):
            body_column(locate(laid_out([packed] * 3)), max_bytes=10_000)

    @pytest.mark.parametrize("kind", [4, 5, 6, 7])
    def test_an_unknown_compression_type_is_refused(self, kind: int) -> None:
        frames = laid_out([replace(RECORD, sys_flag=1 | kind << 8)])

        with pytest.raises(CorruptRecordError, match=f"compression type {kind} is unknown"):
            decode(frames, ["body"])

    def test_plain_rows_are_untouched_between_compressed_ones(self) -> None:
        packed = replace(RECORD, body=zlib.compress(b"sent"), sys_flag=0x1)

        found = decode(laid_out([RECORD, packed, RECORD, packed]), ["body"])

        assert found.column(0).to_pylist() == [b"body", b"sent", b"body", b"sent"]
