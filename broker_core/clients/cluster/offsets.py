"""Offsets of a cluster's queues: how far they reach, by time, and where consumer groups stand.

Brokers answer offset questions about queues that do not exist with 0, so queues are looked up in
the route first. A broker that can't be asked now counts with what it said last, if this process
has asked it before: offsets never go down, and its messages will be there when it is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from broker_core.clients.cluster.client_instance import ClientInstance
from broker_core.clients.cluster.topics import ClusterTopics
from broker_core.codec.legal_names import check_group, check_topic
from broker_core.codec.record import decode_record
from broker_core.errors import OffsetRangeError, RequestError, UnavailableError
from broker_core.types import LogicalOffset, QueueRef
from broker_core.wire.remoting.command import RELEASE_5, Command, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.headers import (
    all_group_offsets_request,
    commit_offset_request,
    group_offset_request,
    max_offset_request,
    min_offset_request,
    parse_offset,
    parse_queues_of_group,
    search_offset_request,
)
from broker_core.wire.remoting.pull_message import SubscriptionData, pull_fields, pull_request
from broker_core.wire.remoting.route import TopicRoute
from broker_core.wire.remoting.status import refusal, require_success

log = logging.getLogger(__name__)

_MAX_ROUTE_AGE_S = 0.2

Bounds = tuple[LogicalOffset, LogicalOffset]


class ClusterOffsets:
    """Offset questions to one cluster, by the names that the cluster knows."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._last: dict[QueueRef, Bounds] = {}

    def bounds(self, topic: str) -> dict[QueueRef, Bounds]:
        """Return (min, max) of every readable queue; (0, 0) for one that never held any."""
        # A fresh route, but one that is known serves while no name server can be asked: a limit of
        # 0 would insist on an answer.
        route = self._instance.routes.find(check_topic(topic), max_age_s=_MAX_ROUTE_AGE_S)
        self.await_visible(topic)
        found: dict[QueueRef, Bounds] = {}
        for broker_name, queues in _by_broker(route.readable()):
            try:
                found.update(self._bounds_on(topic, broker_name, queues))
            except RemotingProtocolError:
                raise
            except UnavailableError as error:
                if not self._last.keys() >= set(queues):
                    raise
                log.warning(
                    "event=unreachable broker=%s topic=%s cause=%s", broker_name, topic, error
                )
                found.update((queue, self._last[queue]) for queue in queues)
        self._last.update(found)
        return found

    def _bounds_on(
        self, topic: str, broker_name: str, queues: Sequence[QueueRef]
    ) -> dict[QueueRef, Bounds]:
        # Min before max: what happens in between can only widen the range (new messages, a min that
        # has expired), never turn it around.
        requests = [
            make(queue) for make in (min_offset_request, max_offset_request) for queue in queues
        ]
        peer, answers = self._instance.ask_master(topic, broker_name, requests)
        numbers = [max(0, _offset(answer, peer)) for answer in answers]
        pairs = zip(queues, numbers[: len(queues)], numbers[len(queues) :], strict=True)
        return {
            queue: (LogicalOffset(min(low, high)), LogicalOffset(high))
            for queue, low, high in pairs
        }

    def at(
        self, topic: str, queue_id: int, timestamp_ms: int, broker_name: str | None
    ) -> LogicalOffset:
        """Return the first offset stored at or after a time, else max.

        Releases before 5 answer with the message nearest in time, sometimes with one of a later
        file, so an answer is checked against the messages around it, and searched for if wrong.
        """
        queue = self.queue(topic, queue_id, broker_name)
        self.await_visible(topic)
        requests = [
            min_offset_request(queue),
            max_offset_request(queue),
            search_offset_request(queue, timestamp_ms),
        ]
        peer, answers = self._instance.ask_master(topic, queue.broker_name, requests)
        low, high, guess = (max(0, _offset(answer, peer)) for answer in answers)
        low = min(low, high)
        times = StoreTimes(self._instance, queue)
        return LogicalOffset(first_at(times.of, timestamp_ms, low, high, guess))

    def of_group(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Return where a group will read next; queues it never read are absent."""
        check_group(group)
        route = self._instance.routes.find(check_topic(topic), max_age_s=0.0)
        found: dict[QueueRef, LogicalOffset] = {}
        for broker_name, queues in _by_broker(route.readable()):
            requests = [group_offset_request(group, queue) for queue in queues]
            peer, answers = self._instance.ask_master(topic, broker_name, requests)
            known = {
                queue: _offset(answer, peer)
                for queue, answer in zip(queues, answers, strict=True)
                if answer.code != ResponseCode.QUERY_NOT_FOUND
            }
            if answers[0].version < RELEASE_5 and 0 in known.values():
                # Releases before 5 make up a 0 for a group that they do not know.
                stored = self._queues_of_group(group, topic, broker_name)
                known = {
                    queue: offset
                    for queue, offset in known.items()
                    if offset or queue.queue_id in stored
                }
            found.update(known)
        return found

    def _queues_of_group(self, group: str, topic: str, broker_name: str) -> set[int]:
        """Return the queues that a broker has an offset of a group for, from its whole table."""
        request = all_group_offsets_request()
        peer, (answer,) = self._instance.ask_master(topic, broker_name, [request])
        require_success(answer, peer)
        try:
            return parse_queues_of_group(answer.body, group, topic)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"{peer} answered {request.name} with something else ({error})."
            raise RemotingProtocolError(text) from error

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, broker_name: str | None
    ) -> None:
        """Record where a group will read next; a group that does not exist is made."""
        check_group(group)
        if offset < 0:
            raise RequestError(f"Offset {offset} for group '{group}' is negative; 0 is the first.")
        queue = self.queue(topic, queue_id, broker_name)
        request = commit_offset_request(group, queue, offset)
        peer, (answer,) = self._instance.ask_master(topic, queue.broker_name, [request])
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            broker = self._instance.routes.find(topic).broker(queue.broker_name)
            ClusterTopics(self._instance).create_group(group, broker)
            peer, (answer,) = self._instance.ask_master(topic, queue.broker_name, [request])
        require_success(answer, peer)

    def await_visible(self, topic: str) -> None:
        """Wait until what this client has sent to a topic can be read; 2 s at most."""
        acknowledged = self._instance.acknowledged

        def maxima() -> dict[QueueRef, int]:
            found: dict[QueueRef, int] = {}
            for broker_name, queues in _by_broker(sorted(acknowledged.waiting(topic))):
                requests = [max_offset_request(queue) for queue in queues]
                try:
                    peer, answers = self._instance.ask_master(topic, broker_name, requests)
                except UnavailableError:
                    continue
                found.update(
                    (queue, _offset(answer, peer))
                    for queue, answer in zip(queues, answers, strict=True)
                )
            return found

        acknowledged.await_visible(topic, maxima)

    def queue(self, topic: str, queue_id: int, broker_name: str | None) -> QueueRef:
        """Return the one queue that is meant; RequestError if there is none, or more than one."""
        return pick_queue(self._instance.routes.find(check_topic(topic)), queue_id, broker_name)


class StoreTimes:
    """Store times of single messages of one queue, pulled one at a time."""

    def __init__(self, instance: ClientInstance, queue: QueueRef) -> None:
        self._instance = instance
        self._queue = queue
        group = instance.settings.consumer_group
        self._fields = pull_fields(queue, group, SubscriptionData())

    def of(self, offset: int) -> int:
        """Return the store time of a message, in ms; OffsetRangeError if it is not there."""
        request = pull_request(self._fields, offset, 1)
        peer, (answer,) = self._instance.ask_master(
            self._queue.topic, self._queue.broker_name, [request]
        )
        if answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            text = f"Message {offset} of queue {self._queue} is gone; {peer} says {answer.remark}."
            raise OffsetRangeError(text, int(answer.ext.get("minOffset", -1)))
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, peer)
        return decode_record(answer.body, name=peer, verify=False).store_timestamp


def first_at(
    time_of: Callable[[int], int], timestamp_ms: int, low: int, high: int, guess: int
) -> int:
    """Return the first offset of [low, high) whose time is at or after a time, else `high`.

    Times must not go down. Two looks if the guess is right, else one for each halving.

    >>> first_at([10, 10, 20, 30].__getitem__, 20, 0, 4, guess=0)
    2
    """
    at = min(max(guess, low), high)
    if at < high and time_of(at) < timestamp_ms:
        low = at + 1
    elif at > low and time_of(at - 1) >= timestamp_ms:
        high = at - 1
    else:
        return at
    while low < high:
        middle = (low + high) // 2
        if time_of(middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def pick_queue(route: TopicRoute, queue_id: int, broker_name: str | None) -> QueueRef:
    """Return the readable queue with a number, on a broker if one is named; else RequestError."""
    readable = route.readable()
    candidates = [
        queue
        for queue in readable
        if queue.queue_id == queue_id and broker_name in (None, queue.broker_name)
    ]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(queue.broker_name for queue in candidates)
        raise RequestError(
            f"Topic '{route.topic}' has a queue {queue_id} on each of {names}; name the broker."
        )
    name = broker_name or "each broker"
    counts = [
        share.read_queues for share in route.shares if broker_name in (None, share.broker_name)
    ]
    if not counts:
        known = ", ".join(share.broker_name for share in route.shares)
        raise RequestError(f"Topic '{route.topic}' is on {known}, not on {broker_name}.")
    raise RequestError(
        f"Topic '{route.topic}' has queues 0 to {max(counts) - 1}, not {queue_id}, on {name}."
    )


def _by_broker(queues: Sequence[QueueRef]) -> Iterable[tuple[str, list[QueueRef]]]:
    for name, group in groupby(queues, key=lambda queue: queue.broker_name):
        yield name, list(group)


def _offset(answer: Command, peer: str) -> LogicalOffset:
    require_success(answer, peer)
    try:
        return parse_offset(answer)
    except (KeyError, ValueError) as error:
        raise refusal(answer, peer) from error
