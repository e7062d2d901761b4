"""One broker's share of a batch: queues side by side, one send unit of each in flight.

Next step down: wire/remoting/send_message.py makes the request, net/connection.py carries it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from broker_core.clients.cluster.net.connection import PendingRequest, RemotingConnection
from broker_core.clients.cluster.send.plan import SendUnit
from broker_core.clients.cluster.send.queue_selection import FaultTolerance
from broker_core.errors import BrokerError, IllegalMessageError, UnavailableError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Command, Request, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.send_message import (
    STORED,
    SendAnswer,
    parse_send_answer,
    send_request,
)
from broker_core.wire.remoting.status import refusal

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SendReceipt:
    """A send unit that a broker has acknowledged, its queue, and the acknowledgement."""

    unit: SendUnit
    queue: QueueRef
    answer: SendAnswer


@dataclass
class ShareOutcome:
    """The result of sending a share. `unsure` counts messages whose answer was lost."""

    receipts: list[SendReceipt] = field(default_factory=list)
    failed: list[SendUnit] = field(default_factory=list)
    failure: UnavailableError | None = None
    unsure: int = 0


class BrokerShare:
    """Send units for queues of one broker. Failed units are handed back in their order.

    At most `window` queues have a unit in flight at a time.
    """

    def __init__(self, share: Iterable[tuple[SendUnit, QueueRef]], group: str, window: int) -> None:
        self.outcome = ShareOutcome()
        self._group = group
        self._window = window
        self._queues: dict[QueueRef, deque[SendUnit]] = {}
        for unit, queue in share:
            self._queues.setdefault(queue, deque()).append(unit)
        self._idle = deque(self._queues)
        self._in_flight: dict[PendingRequest, QueueRef] = {}
        self._started: dict[PendingRequest, float] = {}

    def send(
        self, connection: RemotingConnection, peer: str, faults: FaultTolerance, *, is_sync: bool
    ) -> None:
        """Send until all queues are empty or stopped; UnavailableError if the connection breaks.

        `peer` names the broker in messages.
        """
        while self._idle or self._in_flight:
            while self._idle and len(self._in_flight) < self._window:
                queue = self._idle.popleft()
                pending = connection.start(unit_request(self._queues[queue][0], queue, self._group))
                self._in_flight[pending] = queue
                self._started[pending] = time.monotonic()
            pending = connection.finish_any(self._in_flight)
            queue = self._in_flight.pop(pending)
            latency_ms = (time.monotonic() - self._started.pop(pending)) * 1000
            if self._finish(queue, pending, peer, is_sync):
                faults.note(queue.broker_name, latency_ms)

    def give_up(self, error: UnavailableError) -> None:
        """Hand back all that is not acknowledged; what is in flight may have been stored."""
        for queue in self._in_flight.values():
            self._note_unsure(self._queues[queue][0])
        for queue in self._queues:
            self._stop(queue, error)

    def _finish(self, queue: QueueRef, pending: PendingRequest, peer: str, is_sync: bool) -> bool:
        """Take the end of a request; return True if its unit is stored."""
        units = self._queues[queue]
        try:
            receipt = _receipt(units[0], queue, pending.result(), peer, is_sync)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            # A refusal says that nothing was stored; only silence leaves it open.
            if pending.answer is None:
                self._note_unsure(units[0])
            self._stop(queue, error)
            return False
        units.popleft()
        self.outcome.receipts.append(receipt)
        if units:
            self._idle.append(queue)
        return True

    def _stop(self, queue: QueueRef, error: UnavailableError) -> None:
        """Send no more to a queue: units behind a failed one must not overtake it."""
        self.outcome.failed += self._queues[queue]
        self._queues[queue].clear()
        self.outcome.failure = error

    def _note_unsure(self, unit: SendUnit) -> None:
        self.outcome.unsure += len(unit.rows)
        log.warning("event=unacknowledged topic=%s messages=%d", unit.topic, len(unit.rows))


def unit_request(unit: SendUnit, queue: QueueRef, group: str) -> Request:
    """Return the request that stores a send unit in a queue."""
    return send_request(
        queue,
        group,
        unit.body,
        sys_flag=unit.sys_flag,
        born_timestamp_ms=unit.born_timestamp_ms,
        flag=unit.flag,
        properties=_properties_text(unit),
    )


def _properties_text(unit: SendUnit) -> str | None:
    """Return the properties of a single message as the text that a header takes; None for a batch.

    IllegalMessageError if they are not UTF-8: entries of a batch may be, header fields may not.
    """
    if unit.properties is None:
        return None
    try:
        return unit.properties.decode()
    except UnicodeDecodeError as error:
        raise IllegalMessageError(
            f"Message {int(unit.rows[0])} of this batch for topic '{unit.topic}' has properties"
            f" that are not UTF-8. Nothing of it was sent."
        ) from error


def _receipt(
    unit: SendUnit, queue: QueueRef, answer: Command, peer: str, is_sync: bool
) -> SendReceipt:
    if answer.code not in STORED:
        raise refusal(answer, peer)
    if is_sync and answer.code != ResponseCode.SUCCESS:
        # Not retryable: it is stored, and sending it again would store it twice.
        raise BrokerError(
            f"{refusal(answer, peer)} The message is stored, but not as safely as flush=sync asks."
        )
    try:
        return SendReceipt(unit, queue, parse_send_answer(answer))
    except (KeyError, ValueError) as error:
        raise RemotingProtocolError(f"{peer} acknowledged a send oddly ({error}).") from error
