"""`rocketmq-broker stats`: how much a store holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from broker_core.cli.output import print_json, print_rows
from broker_core.cli.parameters import json_option, optional_broker_option
from broker_core.clients.address import parse_address
from broker_core.clients.embedded import EmbeddedBroker
from broker_core.errors import UnsupportedError
from broker_core.store.index_file import list_index_files
from broker_core.store.lock import lock_holder


@click.command()
@click.argument("store", required=False)
@optional_broker_option
@json_option
def stats(store: str | None, address: str | None, config: Path | None, as_json: bool) -> None:
    """Show how many topics, queues, messages and bytes the store at STORE (or --broker) holds."""
    given = store or address
    if given is None:
        message = "give a STORE or --broker"
        raise click.UsageError(message)
    path = parse_address(given).path
    if path is None:
        message = f"stats counts a store's files, which {given} does not show; give a path."
        raise UnsupportedError(message)
    with EmbeddedBroker.open(given, path, config=config) as broker:
        found = _count(broker)
    if as_json:
        print_json(found)
    else:
        print_rows(("what", "value"), list(found.items()))


def _count(broker: EmbeddedBroker) -> dict[str, Any]:
    reader = broker.reader
    log_start, log_end = reader.log_range()
    ranges = [reader.queue_range(*queue) for queue in reader.queues()]
    holder = lock_holder(reader.root)
    return {
        "store": str(reader.root),
        "topics": len(broker.topics()),
        "queues": len(ranges),
        "messages": sum(maximum - minimum for minimum, maximum in ranges),
        "commitLogMinOffset": log_start,
        "commitLogMaxOffset": log_end,
        "commitLogFiles": len(reader.log.segments),
        "commitLogFileSize": reader.log.segments[0].size if reader.log.segments else 0,
        "indexFiles": len(list_index_files(reader.root / "index")),
        "lockedBy": str(holder) if holder else None,
        "needsRecovery": reader.recovery is not None,
    }
