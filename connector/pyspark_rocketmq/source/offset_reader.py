"""The driver's questions to the broker: which queues there are, and what they hold.

Every question is repeated as `fetchOffset.numRetries` says, on a broker opened anew, and answers
are plain values for the planner (`plan/`). A topic that is named and missing is an error, unless
the query has read it before or tolerates data loss: then its queues are left out, and
plan/dataloss.py decides. A missing topic is asked for again before it is believed to be gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker_core import errors as core
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.client_cache import translate
from pyspark_rocketmq.errors import ConnectorError, broker_errors
from pyspark_rocketmq.plan.offsets import Bounds
from pyspark_rocketmq.plan.starting_offsets import Answers, AtGroup, OffsetSpec, times_needed
from pyspark_rocketmq.plan.subscription import Assigned, Pattern, Subscription, Topics

if TYPE_CHECKING:
    from broker_core.api import Broker
    from pyspark_rocketmq.options.options import Retry

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

MEASURED_ROWS = 1 << 20


class Clock(Protocol):
    """Time as an argument, so that tests can set it."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)


class OffsetReader:
    """Asks one broker, with retries.

    `opener` returns a broker when one is needed; `let_go` gets one that is no longer needed or has
    failed, and closes it unless said otherwise.
    """

    def __init__(
        self,
        opener: Callable[[], Broker],
        address: str,
        retry: Retry,
        clock: Clock,
        let_go: Callable[[Broker], None] = lambda broker: broker.close(),
    ) -> None:
        self._opener = opener
        self._let_go = let_go
        self._address = address
        self._retry = retry
        self._clock = clock
        self._broker: Broker | None = None

    def get_ready(self) -> None:
        """Open the broker ahead of the first question, which will report if it can't be opened."""
        with suppress(core.BrokerError):
            self._broker = self._broker or self._opener()

    def bounds(
        self,
        subscription: Subscription,
        known: Collection[QueueRef] = (),
        *,
        may_lack: bool = False,
    ) -> dict[QueueRef, Bounds]:
        """Return what every subscribed queue holds now, in order.

        Topics of `known` queues may be missing, and with `may_lack` any topic may; any other topic
        that the subscription names and that is missing raises SubscriptionError.
        """
        topics_known = {queue.topic for queue in known}

        def ask(broker: Broker) -> dict[QueueRef, Bounds]:
            existing = broker.topics() if isinstance(subscription, Pattern) else []
            found: dict[QueueRef, Bounds] = {}
            for topic in subscription.needed(existing):
                is_named = isinstance(subscription, Topics | Assigned)
                may_be_gone = may_lack or topic in topics_known or not is_named
                found |= _bounds_of(broker, topic, may_be_gone=may_be_gone)
            return {queue: found[queue] for queue in subscription.select(found)}

        return self._ask("list the queues to read", ask, subscription.option)

    def settled_bounds(
        self,
        subscription: Subscription,
        start: Mapping[QueueRef, LogicalOffset],
        *,
        may_lack: bool = False,
    ) -> dict[QueueRef, Bounds]:
        """Return `bounds`, asked again while a queue ends before `start`.

        A broker that has just started, or a route that is being changed, may answer with less than
        is there. An end before `start` is data loss, so it is believed only if all attempts of
        fetchOffset.numRetries gave one.
        """
        found = self.bounds(subscription, start, may_lack=may_lack)
        for _ in range(self._retry.attempts - 1):
            if all(found[queue].latest >= start[queue] for queue in start if queue in found):
                break
            self._clock.sleep_ms(self._retry.interval_ms)
            found = self.bounds(subscription, start, may_lack=may_lack)
        return found

    def existing(self, topics: Collection[str]) -> dict[str, dict[QueueRef, Bounds]]:
        """Return what all queues of some topics hold, whatever is subscribed; none if it is gone.

        Asked again while one is missing: a route that is being changed may lack it.
        """

        def ask(broker: Broker) -> dict[str, dict[QueueRef, Bounds]]:
            found = {topic: _bounds_of(broker, topic, may_be_gone=True) for topic in sorted(topics)}
            return {topic: queues for topic, queues in found.items() if queues}

        found = self._ask("list the queues of topics that were read", ask)
        for _ in range(self._retry.attempts - 1):
            if found.keys() >= set(topics):
                break
            self._clock.sleep_ms(self._retry.interval_ms)
            found = self._ask("list the queues of topics that were read", ask)
        return found

    def answers(self, spec: OffsetSpec, queues: Collection[QueueRef]) -> Answers:
        """Ask for what resolving `spec` needs: offsets at timestamps, or offsets of a group."""
        by_time = self.offsets_at(times_needed(spec, queues))
        if not isinstance(spec, AtGroup):
            return Answers(by_time)
        topics = sorted({queue.topic for queue in queues})

        def ask(broker: Broker) -> dict[QueueRef, LogicalOffset]:
            return {
                queue: offset
                for topic in topics
                for queue, offset in broker.consumer_offsets(spec.group, topic).items()
            }

        return Answers(by_time, self._ask(f"tell where group {spec.group} stands", ask))

    def offsets_at(self, times: Mapping[QueueRef, int]) -> dict[QueueRef, LogicalOffset]:
        """Return, per queue, the first offset stored at or after a time (ms), else its end."""

        def ask(broker: Broker) -> dict[QueueRef, LogicalOffset]:
            return {
                queue: broker.offset_at(
                    queue.topic, queue.queue_id, timestamp_ms, broker_name=queue.broker_name
                )
                for queue, timestamp_ms in times.items()
            }

        return self._ask("find offsets by time", ask) if times else {}

    def measure(self, wanted: OffsetRange, size_bytes: int) -> LogicalOffset:
        """Return the offset up to which a range holds at most `size_bytes`, or one message.

        Only sizes are looked at; an embedded broker touches no message for it.
        """

        def ask(broker: Broker) -> LogicalOffset:
            used = 0
            for frames in broker.pull(wanted, batch_rows=MEASURED_ROWS, batch_bytes=size_bytes):
                ends = used + frames.sizes.cumsum(dtype="int64")
                fitting = int((ends <= size_bytes).sum())
                if fitting < len(frames):
                    reached = LogicalOffset(int(frames.offsets[fitting]))
                    return max(reached, LogicalOffset(wanted.start + 1))
                used = int(ends[-1]) if len(frames) else used
            return wanted.end

        return self._ask("measure messages", ask)

    def close(self) -> None:
        """Let go of the broker; the next question opens one again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            self._let_go(broker)

    def _ask(self, action: str, question: Callable[[Broker], Answer], option: str = "") -> Answer:
        attempts = self._retry.attempts
        for attempt in range(1, attempts + 1):
            try:
                self._broker = self._broker or self._opener()
                return question(self._broker)
            except core.BrokerError as error:
                self.close()
                # A missing topic is asked for again: a route that is being changed may lack it.
                is_hopeless = not (error.retryable or isinstance(error, core.TopicNotFoundError))
                if attempt == attempts or is_hopeless:
                    raise self._final(error, action, attempt, option) from error
                log.warning(
                    "event=question_failed action=%r attempt=%d attempts=%d error=%s",
                    action,
                    attempt,
                    attempts,
                    error,
                )
                self._clock.sleep_ms(self._retry.interval_ms)
        raise AssertionError("unreachable: at least one attempt is made")

    def _final(
        self, error: core.BrokerError, action: str, attempts: int, option: str
    ) -> ConnectorError:
        if isinstance(error, _MissingTopicError):
            return broker_errors.topic_not_found(error.topic, self._address, option)
        return translate(error, self._address, action, attempts)


class _MissingTopicError(core.TopicNotFoundError):
    """A topic that the subscription names and the broker does not have."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


def _bounds_of(broker: Broker, topic: str, *, may_be_gone: bool) -> dict[QueueRef, Bounds]:
    try:
        return {queue: Bounds(*held) for queue, held in broker.offsets(topic).items()}
    except core.TopicNotFoundError as error:
        if may_be_gone:
            return {}
        raise _MissingTopicError(topic) from error
