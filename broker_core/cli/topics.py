"""`rocketmq-broker topics`: list, create, delete and describe topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker_core.cli.output import print_json, print_rows
from broker_core.cli.parameters import broker_option, json_option, open_with_credentials
from broker_core.codec.property_names import is_system_topic

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.types import TopicInfo


@click.group()
def topics() -> None:
    """List, create, delete and describe topics."""


def topic_document(info: TopicInfo) -> dict[str, Any]:
    """Return a topic as a JSON object, with RocketMQ's names."""
    return {
        "topic": info.name,
        "readQueueNums": info.read_queues,
        "writeQueueNums": info.write_queues,
        "perm": info.perm,
        "attributes": info.attributes,
        "system": is_system_topic(info.name),
    }


@topics.command("list")
@broker_option
@json_option
def list_(address: str, config: Path | None, as_json: bool) -> None:
    """List all topics, RocketMQ's own included."""
    with open_with_credentials(address, config=config) as broker:
        rows = [topic_document(broker.describe(name)) for name in broker.topics()]
    if as_json:
        print_json(rows)
        return
    columns = ("topic", "readQueueNums", "writeQueueNums", "perm", "system")
    print_rows(columns, [[row[column] for column in columns] for row in rows])


@topics.command()
@click.argument("name")
@click.option("--queues", type=int, default=4, show_default=True, help="Number of queues.")
@click.option("--exist-ok", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--create-store", is_flag=True, help="Create the store if there is none.")
@broker_option
@json_option
def create(
    name: str,
    queues: int,
    exist_ok: bool,
    create_store: bool,
    address: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    with open_with_credentials(address, mode="rw", create=create_store, config=config) as broker:
        info = broker.create_topic(name, queues, exist_ok=exist_ok)
    if as_json:
        print_json(topic_document(info))
    else:
        click.echo(f"Topic {info.name} has {info.write_queues} queues.")


@topics.command()
@click.argument("name")
@broker_option
@json_option
def delete(name: str, address: str, config: Path | None, as_json: bool) -> None:
    """Delete the topic NAME and its queues."""
    with open_with_credentials(address, mode="rw", config=config) as broker:
        broker.delete_topic(name)
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        click.echo(f"Topic {name} is deleted; its records stay in the log until they expire.")


@topics.command()
@click.argument("name")
@broker_option
@json_option
def describe(name: str, address: str, config: Path | None, as_json: bool) -> None:
    """Show the queues of the topic NAME."""
    with open_with_credentials(address, config=config) as broker:
        info = broker.describe(name)
        queues = queue_rows(broker, name)
    if as_json:
        print_json({**topic_document(info), "queues": queues})
        return
    click.echo(
        f"{name}: {info.read_queues} read and {info.write_queues} write queues, perm {info.perm}"
    )
    print_rows(
        ("broker", "queue", "min", "max"),
        [(row["brokerName"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in queues],
    )


def queue_rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Return broker, number, min and max of every queue of a topic."""
    return [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": bounds[0],
            "maxOffset": bounds[1],
        }
        for queue, bounds in sorted(broker.offsets(topic).items())
    ]
