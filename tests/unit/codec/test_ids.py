"""Message ids of both kinds."""

from __future__ import annotations

import os
import struct

import pytest

from broker_core.codec.hosts import host_text, pack_host
from broker_core.codec.ids import UniqueIds, offset_id, parse_offset_id

pytestmark = pytest.mark.usefixtures("either_way")

NOVEMBER_15 = 1_700_000_000_000


def made(ids: UniqueIds, count: int, now_ms: int = NOVEMBER_15) -> list[str]:
    return [row.tobytes().decode() for row in ids.make(count, now_ms)]


def ticks(text: str) -> int:
    """Time and counter of a unique id as the one number that they count."""
    time_ms, counter = struct.unpack(">IH", bytes.fromhex(text)[-6:])
    return int(time_ms) << 16 | int(counter)


class TestUniqueIds:
    def test_an_id_tells_address_process_and_time_since_the_month_began(self) -> None:
        (text,) = made(UniqueIds(address=0x0A000005), 1)

        raw = bytes.fromhex(text)
        assert text == text.upper()
        assert raw[:4] == bytes([10, 0, 0, 5])
        assert int.from_bytes(raw[4:6], "big") == os.getpid() & 0xFFFF
        assert 13.4 < (ticks(text) >> 16) / 86_400_000 < 14.6  # any time zone's 14 November

    def test_ids_never_repeat_however_many_one_millisecond_is_asked_for(self) -> None:
        ids = UniqueIds()

        texts = made(ids, 70_000) + made(ids, 70_000)

        assert len(set(texts)) == len(texts)
        assert [ticks(text) for text in texts] == list(
            range(ticks(texts[0]), ticks(texts[0]) + 140_000)
        )

    def test_ids_go_on_when_the_clock_goes_back(self) -> None:
        ids = UniqueIds()

        later = made(ids, 2)
        earlier = made(ids, 2, NOVEMBER_15 - 60_000)

        assert len({*later, *earlier}) == 4

    def test_one_id_is_as_one_of_many(self) -> None:
        ids = UniqueIds()

        texts = [ids.make_one(NOVEMBER_15), *made(ids, 2), ids.make_one(NOVEMBER_15 - 60_000)]
        later = ids.make_one(NOVEMBER_15 + 60_000)

        assert [ticks(text) - ticks(texts[0]) for text in texts] == [0, 1, 2, 3]
        assert {text[:20] for text in [*texts, later]} == {texts[0][:20]}
        assert later == made(ids, 1, NOVEMBER_15 + 60_000)[0][:-4] + "0000"

    def test_two_makers_differ(self) -> None:
        assert made(UniqueIds(), 1) != made(UniqueIds(), 1)


class TestOffsetId:
    @pytest.mark.parametrize("address", ["10.0.0.5", "fe80::1"])
    def test_an_offset_id_leads_back_to_host_and_offset(self, address: str) -> None:
        host = pack_host(address, 10911)

        assert parse_offset_id(offset_id(host, 2**40)) == (host, 2**40)
        assert parse_offset_id(offset_id(host, 2**40).lower()) == (host, 2**40)

    @pytest.mark.parametrize(
        "text",
        ["", "0A", "Z" * 32, "0A" * 17, "0A00000500002A9F" + "F" * 16, "0A 0" * 8, "é" * 32],
    )
    def test_other_texts_are_none(self, text: str) -> None:
        assert parse_offset_id(text) is None


def test_hosts_are_printed_as_rocketmq_s_tools_do() -> None:
    assert host_text(pack_host("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert host_text(pack_host("fe80::1", 10911)) == "[fe80:0:0:0:0:0:0:1]:10911"
