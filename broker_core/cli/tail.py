"""`rocketmq-broker tail`: print the last messages of a topic, and follow it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker_core.api import CountingBroker, WaitingBroker
from broker_core.cli.messages import print_messages
from broker_core.cli.parameters import (
    broker_option,
    chosen_topic,
    json_option,
    open_with_credentials,
    topic_argument,
)
from broker_core.errors import RequestError
from broker_core.types import LogicalOffset, OffsetRange, QueueRef

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.filter.pipeline import MessageFilter

_PAUSE_S = 0.2
_LONGEST_WAIT_MS = 5000


@click.command()
@topic_argument
@click.option("-n", "--lines", type=int, default=10, show_default=True, help="Messages per queue.")
@click.option("--all", "from_start", is_flag=True, help="Start at the first message.")
@click.option("--queue", "--queue-id", "queue_id", type=int, help="Only this queue.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new messages as they arrive.")
@click.option("--tags", help="Only messages with these tags: 'A || B'.")
@click.option("--sql", help="Only messages that match an SQL92 filter.")
@click.option("--explain", is_flag=True, help="Print on stderr what the filter did.")
@broker_option
@json_option
def tail(  # noqa: PLR0913 - one argument an option
    *,
    topic: str | None,
    topic_option: str | None,
    lines: int,
    from_start: bool,
    queue_id: int | None,
    follow: bool,
    tags: str | None,
    sql: str | None,
    explain: bool,
    address: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Print the last messages of TOPIC.

    A filter is applied to these last messages, so fewer may be printed. With --explain stderr shows
    the filter as it was understood, and at the end how many messages each of its stages examined
    and dropped, and how many bytes it read.
    """
    from broker_core.filter.pipeline import MessageFilter

    wanted = MessageFilter.of(tags, sql)
    name = chosen_topic(topic, topic_option)
    if explain and wanted is not None:
        click.echo(f"filter: {_explained(wanted)}", err=True)
    with open_with_credentials(address, config=config) as broker:
        follower = _Follower(broker, name, queue_id, wanted)
        follower.go_back(None if from_start else lines)
        try:
            follower.print_new(as_json=as_json)
            while follow:
                follower.wait()
                follower.print_new(as_json=as_json)
        finally:
            if explain:
                click.echo(
                    "".join(line + "\n" for line in follower.work_lines()), err=True, nl=False
                )


def _explained(wanted: MessageFilter) -> str:
    if wanted.sql is None:
        tags = wanted.tags.tags if wanted.tags else None
        return " or ".join(f"TAGS = {tag!r}" for tag in tags or ())
    dropped = f"; ignored: {wanted.sql.dropped!r}" if wanted.sql.dropped else ""
    return f"{wanted.sql.describe()}{dropped}"


class _Follower:
    """The next offset of each queue of a topic, and printing from there."""

    def __init__(
        self, broker: Broker, topic: str, queue_id: int | None, wanted: MessageFilter | None
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._queue_id = queue_id
        self._wanted = wanted
        self._next: dict[QueueRef, LogicalOffset] = {}
        self._examined = 0
        self._kept = 0

    def work_lines(self) -> list[str]:
        """Return lines on the messages examined, and on each filter stage if the broker counts."""
        lines = [f"examined: {self._examined} messages, kept {self._kept}"]
        if self._wanted is None:
            return lines
        if not isinstance(self._broker, CountingBroker):
            return [*lines, "stages: the broker filters where the messages are; its log tells"]
        for stage, count in self._broker.filter_count.stages().items():
            work = f"examined {count.examined}, dropped {count.dropped}, read {count.size_bytes} B"
            lines.append(f"{stage}: {work}")
        return lines

    def go_back(self, count: int | None) -> None:
        """Start `count` messages before each queue's end, or at its start."""
        for queue, (minimum, maximum) in self._bounds().items():
            back = minimum if count is None else max(minimum, maximum - max(count, 0))
            self._next[queue] = LogicalOffset(back)

    def wait(self) -> None:
        """Wait until there may be more messages: for the broker's answer, or 0.2 s."""
        if isinstance(self._broker, WaitingBroker) and self._next:
            self._broker.wait(self._next, _LONGEST_WAIT_MS)
        else:
            time.sleep(_PAUSE_S)

    def print_new(self, *, as_json: bool) -> None:
        """Print new messages, queue by queue; messages that expired before are left out."""
        from broker_core.codec.decode import decode
        from broker_core.codec.schema import ALL_COLUMNS

        for queue, (minimum, maximum) in self._bounds().items():
            start = max(self._next.get(queue, minimum), minimum)
            frames = self._broker.pull(
                OffsetRange(queue, LogicalOffset(start), maximum),
                message_filter=self._wanted,
                verify=True,
            )
            for batch in frames:
                self._kept += len(batch)
                if len(batch):
                    decoded = decode(batch, ALL_COLUMNS, queue.broker_name)
                    print_messages(decoded, as_json=as_json)
            sys.stdout.flush()
            self._examined += maximum - start
            self._next[queue] = maximum

    def _bounds(self) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        held = dict(sorted(self._broker.offsets(self._topic).items()))
        if self._queue_id is None:
            return held
        chosen = {queue: held[queue] for queue in held if queue.queue_id == self._queue_id}
        if not chosen:
            message = f"Topic {self._topic} has queues 0 to {len(held) - 1}, not {self._queue_id}."
            raise RequestError(message)
        return chosen
