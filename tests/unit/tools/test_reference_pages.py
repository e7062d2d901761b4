from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.options.table import TABLE
from tools import reference_pages

CONTRACT = """
    subscribe topic subscribePattern assign startingOffsets endingOffsets startingTimestamp
    endingTimestamp startingOffsetsByTimestamp endingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy failOnDataLoss maxOffsetsPerTrigger minOffsetsPerTrigger
    maxTriggerDelay minPartitions maxRecordsPerPartition fetchOffset.numRetries
    fetchOffset.retryIntervalMs includeProperties broker tags sql columns consumerGroup
    commitOffsets maxBytesPerTrigger batchRows pullTimeoutMs filterPushdown skipCorrupt delivery
    txnName txnId onConflict allowGap compression compressionThreshold createTopic producerGroup
    flush maxMessageSize
    accessKey secretKey securityToken token tls.ca tls.cert tls.key tls.serverName
""".split()


def test_the_table_has_exactly_the_promised_options() -> None:
    assert sorted(TABLE) == sorted(CONTRACT)


def test_the_pages_in_docs_are_what_the_tables_say() -> None:
    assert reference_pages.outdated() == []


def test_a_page_that_was_edited_is_found(tmp_path: Path) -> None:
    reference_pages.write(tmp_path)
    (tmp_path / "options.md").write_text("old")

    assert reference_pages.outdated(tmp_path) == ["options.md"]


@pytest.mark.parametrize("option", TABLE.values(), ids=lambda each: each.name)
def test_every_option_is_described_on_the_page(option: object) -> None:
    assert isinstance(option, type(TABLE["broker"]))
    assert f"| `{option.name}` |" in reference_pages.options_page()
    assert option.doc.endswith(".")
