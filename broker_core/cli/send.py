"""`rocketmq-broker send`: append one message."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from broker_core.cli.output import print_json
from broker_core.cli.parameters import (
    broker_option,
    chosen_topic,
    json_option,
    open_with_credentials,
    parse_properties,
    topic_argument,
)


@click.command()
@topic_argument
@click.argument("body", required=False)
@click.option("--body", "body_option", help="Another way to give BODY.")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Send the content of a file.",
)
@click.option("--tags", help="The message's tag.")
@click.option(
    "--key", "--keys", "keys", multiple=True, help="A key to find the message by; may be repeated."
)
@click.option(
    "--property",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the message; may be repeated.",
)
@click.option(
    "--queue", "--queue-id", "queue_id", type=int, help="The queue; by default queues take turns."
)
@click.option("--sharding-key", help="Messages with one sharding key go to one queue.")
@click.option(
    "--delay-level", type=int, default=0, help="Deliver later: level 1 (1 s) to 18 (2 h)."
)
@broker_option
@json_option
def send(  # noqa: PLR0913 - one argument an option
    *,
    topic: str | None,
    topic_option: str | None,
    body: str | None,
    body_option: str | None,
    path: Path | None,
    tags: str | None,
    keys: tuple[str, ...],
    pairs: tuple[str, ...],
    queue_id: int | None,
    sharding_key: str | None,
    delay_level: int,
    address: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Send BODY to TOPIC; without BODY, send standard input."""
    if topic_option is not None and body is None:
        topic, body = None, topic  # the one argument beside --topic is the BODY
    name = chosen_topic(topic, topic_option)
    content = _content(body if body is not None else body_option, path)
    properties = parse_properties(pairs)
    with open_with_credentials(address, mode="rw", config=config) as broker:
        sent = broker.send(
            name,
            content,
            tags=tags,
            keys=list(keys) or None,
            properties=properties,
            queue_id=queue_id,
            sharding_key=sharding_key,
            delay_level=delay_level,
        )
    if as_json:
        print_json(
            {
                "topic": sent.topic,
                "brokerName": sent.broker_name,
                "queueId": sent.queue_id,
                "queueOffset": sent.queue_offset,
                "msgId": sent.msg_id,
                "offsetMsgId": sent.offset_msg_id,
                "physicalOffset": sent.physical_offset,
            }
        )
    else:
        click.echo(f"{sent.queue} offset {sent.queue_offset}, id {sent.msg_id}")


def _content(body: str | None, path: Path | None) -> bytes:
    if body is not None and path is not None:
        message = "give BODY or --file, not both"
        raise click.UsageError(message)
    if path is not None:
        try:
            return path.read_bytes()
        except OSError as error:
            raise click.UsageError(f"--file {path}: {error.strerror}") from error
    return body.encode() if body is not None else sys.stdin.buffer.read()
