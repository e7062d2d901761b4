"""What a server does with filters and checksums is what an embedded broker does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.codec.record import property_crc_matches
from broker_core.store.check.store import check
from broker_core.store.io.segments import list_segments
from tests.kit import fixtures
from tests.kit.served import served


def test_a_server_uses_bitmaps_and_logs_what_each_stage_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    caplog.set_level(logging.INFO, "broker_core.service.core.read")
    config = {name: str(size) for name, size in fixtures.SIZES.items()}

    with served(root, config) as process, open_broker(process.address) as broker:
        rows = broker.read("Filtered", 0, sql="price > 50.5").num_rows
        everything = broker.read("Filtered", 0).num_rows

    with open_broker(root) as broker:
        assert broker.read("Filtered", 0, sql="price > 50.5").num_rows == rows
    (line,) = [each.getMessage() for each in caplog.records if "event=filtered" in each.message]
    assert f"bitmap_examined={everything} " in line
    assert " sql_examined=" in line


@pytest.mark.parametrize("pooled", ["true", "false"])
def test_a_server_writes_property_checksums(tmp_path: Path, pooled: str) -> None:
    config = {"enabledAppendPropCRC": "true", "transientStorePoolEnable": pooled}
    with (
        served(tmp_path / "store", config) as process,
        open_broker(process.address, mode="rw") as broker,
    ):
        broker.create_topic("orders", queues=1)
        for number in range(5):
            broker.send("orders", b"%d" % number, tags="A")

    with open_broker(tmp_path / "store") as broker:
        rows = broker.read("orders", columns=["body", "physicalOffset", "storeSize"]).to_pylist()
    log = list_segments(tmp_path / "store" / "commitlog")[0].path.read_bytes()
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(5)]
    for row in rows:
        at = row["physicalOffset"]
        assert property_crc_matches(log[at : at + row["storeSize"]])
    assert check(tmp_path / "store") == []
