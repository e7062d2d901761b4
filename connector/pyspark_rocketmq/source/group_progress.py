"""Telling a consumer group how far a query has come, for RocketMQ's tools to show the lag.

Spark's checkpoint alone decides what is read. So progress is reported on a broker of its own, which
is opened when there is something to report, and whatever goes wrong there is logged and stops
nothing: the next report says all that matters again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError
from pyspark_rocketmq.plan.offsets import SourceOffset

if TYPE_CHECKING:
    from broker_core.api import Broker

log = logging.getLogger(__name__)


class GroupProgress:
    """Reports offsets to one group. `opener` gives a broker that may be written to."""

    def __init__(self, opener: Callable[[], Broker], group: str) -> None:
        self._opener = opener
        self._group = group
        self._broker: Broker | None = None
        self._reported = SourceOffset({})

    def report(self, done: SourceOffset) -> None:
        """Move the group to `done`; only queues that have moved since the last report are told."""
        moved = [queue for queue in sorted(done) if self._reported.get(queue) != done[queue]]
        try:
            for queue in moved:
                if self._broker is None:
                    self._broker = self._opener()
                self._broker.commit_offset(
                    self._group,
                    queue.topic,
                    queue.queue_id,
                    done[queue],
                    broker_name=queue.broker_name,
                )
        except BrokerError as error:
            log.warning("group=%s event=progress_not_reported: %s", self._group, error)
            self.close()
            return
        self._reported = done

    def close(self) -> None:
        """Let go of the broker; the next report opens it again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()
