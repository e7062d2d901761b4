"""Store times of single messages, and the search for the first at or after a time."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.clients.cluster.client_instance import ClientInstance
from broker_core.codec.record import decode_record
from broker_core.errors import OffsetRangeError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import ResponseCode
from broker_core.wire.remoting.pull_message import SubscriptionData, pull_fields, pull_request
from broker_core.wire.remoting.status import refusal


class StoreTimes:
    """When messages of one queue were stored, by pulling them one at a time."""

    def __init__(self, directory: ClientInstance, queue: QueueRef) -> None:
        self._directory = directory
        self._queue = queue
        group = directory.settings.consumer_group
        self._fields = pull_fields(queue, group, SubscriptionData())

    def of(self, offset: int) -> int:
        """The store time of a message, in ms; OffsetRangeError if it is not there."""
        request = pull_request(self._fields, offset, 1)
        who, (answer,) = self._directory.ask_master(
            self._queue.topic, self._queue.broker_name, [request]
        )
        if answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            text = f"Message {offset} of queue {self._queue} is gone; {who} says {answer.remark}."
            raise OffsetRangeError(text, int(answer.ext.get("minOffset", -1)))
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, who)
        return decode_record(answer.body, name=who, verify=False).store_timestamp


def first_at(
    time_of: Callable[[int], int], timestamp_ms: int, low: int, high: int, guess: int
) -> int:
    """The first offset of [low, high) whose time is at or after a time, else `high`.

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
