"""`rocketmq-broker dump STORE`: print everything in a store, as Apache's own client sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker_core.cli.messages import message_document, shown_body
from broker_core.cli.output import progress, write_text
from broker_core.cli.parameters import config_option, json_option, store_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker_core.broker.dump import DumpedQueue, DumpedTopic


@click.command()
@store_argument
@click.option("--topic", help="Only this topic.")
@config_option
@json_option
def dump(store: Path, topic: str | None, config: Path | None, as_json: bool) -> None:
    """Print all messages of the store at STORE.

    With --json prints one object, topic by topic, with the fields of Apache's client. Topics that
    were deleted but have records in the log are printed too. Topics with batch queues can't be
    read: they are left out and named on stderr, and the exit status is 1.
    """
    from broker_core.broker.broker import EmbeddedBroker
    from broker_core.broker.dump import Dump

    with (
        progress("Reading") as report,
        EmbeddedBroker.open(str(store), store, config=config, progress=report) as broker,
    ):
        whole = Dump(broker.reader, broker.catalog, report)
        topics = whole.topics(topic)
        for text in _json_texts(topics) if as_json else _text_lines(topics):
            write_text(text)
    for error in whole.refused:
        click.echo(f"rocketmq-broker: {error}", err=True)
    if whole.refused:
        click.get_current_context().exit(1)


def _json_texts(topics: Iterable[DumpedTopic]) -> Iterator[str]:
    """Yield the document text by text: a dump can be larger than memory."""
    yield "{"
    for number, topic in enumerate(topics):
        head = {
            "readQueueNums": topic.read_queues,
            "writeQueueNums": topic.write_queues,
            "perm": topic.perm,
        }
        comma = "," if number else ""
        yield f'{comma}\n  {json.dumps(topic.name)}: {json.dumps(head)[:-1]}, "queues": {{'
        for index, queue in enumerate(topic.queues):
            yield from _queue_texts(queue, is_first=index == 0)
        yield "}}"
    yield "\n}\n"


def _queue_texts(queue: DumpedQueue, *, is_first: bool) -> Iterator[str]:
    comma = "" if is_first else ","
    bounds = f'"minOffset": {queue.minimum}, "maxOffset": {queue.maximum}'
    yield f'{comma}\n    "{queue.queue_id}": {{{bounds}, "messages": ['
    for number, (record, size_bytes) in enumerate(queue.records):
        text = json.dumps(message_document(record, size_bytes), ensure_ascii=False)
        yield f"{',' if number else ''}\n      {text}"
    yield "]}"


def _text_lines(topics: Iterable[DumpedTopic]) -> Iterator[str]:
    for topic in topics:
        yield (
            f"{topic.name}: {topic.read_queues} read and {topic.write_queues} write queues, "
            f"perm {topic.perm}\n"
        )
        for queue in topic.queues:
            yield f"  queue {queue.queue_id}: {queue.minimum} to {queue.maximum}\n"
            for record, _ in queue.records:
                tags = record.property_map.get("TAGS", "-")
                body = shown_body(record.plain_body)
                yield f"    {record.queue_offset}\t{record.msg_id}\t{tags}\t{body}\n"
