"""`rocketmq-broker query`: find messages by key, by id, or by store time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker_core.cli.messages import print_messages
from broker_core.cli.parameters import (
    broker_option,
    chosen_topic,
    json_option,
    open_with_credentials,
    time_option,
    topic_argument,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.api import Broker


@click.command()
@topic_argument
@click.option("--key", help="Find by key or unique key; needs TOPIC.")
@click.option("--id", "message_id", help="Find by unique id or offset id.")
@time_option("--from", "start_ms", help_text="Only messages stored at or after TIME; needs TOPIC.")
@time_option("--to", "end_ms", help_text="Only messages stored before TIME; needs TOPIC.")
@click.option(
    "--limit", type=int, default=64, show_default=True, help="Limit of messages found by key."
)
@broker_option
@json_option
def query(  # noqa: PLR0913 - one argument an option
    *,
    topic: str | None,
    topic_option: str | None,
    key: str | None,
    message_id: str | None,
    start_ms: int | None,
    end_ms: int | None,
    limit: int,
    address: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Find messages of TOPIC by key, by time, or by both; or one message by its id."""
    by_time = start_ms is not None or end_ms is not None
    if (message_id is None) == (key is None and not by_time):
        message = "give --id, or --key, --from or --to"
        raise click.UsageError(message)
    name = "" if message_id is not None else chosen_topic(topic, topic_option)
    with open_with_credentials(address, config=config) as broker:
        if message_id is not None:
            found = broker.message(message_id)
        elif key is not None:
            found = _within(broker.query(name, key, limit), start_ms, end_ms)
        else:
            found = _stored_between(broker, name, start_ms, end_ms)
    print_messages(found, as_json=as_json)


def _within(found: pa.Table, start_ms: int | None, end_ms: int | None) -> pa.Table:
    import pyarrow as pa

    millis = found["storeTimestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    kept = [
        (start_ms is None or at >= start_ms) and (end_ms is None or at < end_ms)
        for at in millis.to_pylist()
    ]
    return found.filter(pa.array(kept, type=pa.bool_()))


def _stored_between(
    broker: Broker, topic: str, start_ms: int | None, end_ms: int | None
) -> pa.Table:
    import pyarrow as pa

    from broker_core.codec.schema import ALL_COLUMNS

    parts = []
    for queue, (minimum, maximum) in sorted(broker.offsets(topic).items()):
        at = (topic, queue.queue_id)
        name = queue.broker_name
        start = minimum if start_ms is None else broker.offset_at(*at, start_ms, broker_name=name)
        end = maximum if end_ms is None else broker.offset_at(*at, end_ms, broker_name=name)
        parts.append(broker.read(*at, start, max(start, end), columns=ALL_COLUMNS))
    return pa.concat_tables(parts)
