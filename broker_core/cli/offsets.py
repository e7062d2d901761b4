"""`rocketmq-broker offsets`: offsets of queues, of a consumer group, and of a time."""

from __future__ import annotations

from pathlib import Path

import click

from broker_core.cli.output import print_json, print_rows
from broker_core.cli.parameters import (
    broker_option,
    chosen_topic,
    json_option,
    open_with_credentials,
    time_option,
    topic_argument,
)
from broker_core.cli.topics import queue_rows
from broker_core.types import QueueRef


@click.command()
@topic_argument
@click.option("--group", help="Also show a consumer group's offsets and lag.")
@time_option("--at", "at_ms", help_text="Also show the first offset stored at or after TIME.")
@broker_option
@json_option
def offsets(
    *,
    topic: str | None,
    topic_option: str | None,
    group: str | None,
    at_ms: int | None,
    address: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show min and max offset of every queue of TOPIC."""
    name = chosen_topic(topic, topic_option)
    with open_with_credentials(address, config=config) as broker:
        rows = queue_rows(broker, name)
        committed = broker.consumer_offsets(group, name) if group else {}
        for row in rows:
            queue = QueueRef(name, row["brokerName"], row["queueId"])
            if group:
                offset = committed.get(queue)
                row["groupOffset"] = offset
                row["lag"] = None if offset is None else row["maxOffset"] - offset
            if at_ms is not None:
                row["offsetAtTime"] = broker.offset_at(
                    name, queue.queue_id, at_ms, broker_name=queue.broker_name
                )
    if as_json:
        print_json(rows)
    else:
        columns = list(rows[0]) if rows else ["brokerName", "queueId", "minOffset", "maxOffset"]
        print_rows(columns, [list(row.values()) for row in rows])
