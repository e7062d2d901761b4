"""One broker's share of a batch being sent: queues side by side, one piece of each in flight."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from broker_core.clients.cluster.net.connection import PendingRequest, RemotingConnection
from broker_core.clients.cluster.route.fault_tolerance import FaultTolerance
from broker_core.clients.cluster.send.plan import SendUnit
from broker_core.clients.cluster.send.request import (
    STORED,
    SendAnswer,
    parse_send_answer,
    send_request,
)
from broker_core.errors import BrokerError, UnavailableError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Command, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.status import refusal

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SendReceipt:
    """A piece that a broker has acknowledged, and where."""

    piece: SendUnit
    queue: QueueRef
    answer: SendAnswer


@dataclass
class ShareOutcome:
    """What became of a share. `unsure` counts messages whose answer was lost."""

    receipts: list[SendReceipt] = field(default_factory=list)
    failed: list[SendUnit] = field(default_factory=list)
    failure: UnavailableError | None = None
    unsure: int = 0


class BrokerShare:
    """Pieces for queues of one broker. Failed pieces are handed back in their order."""

    def __init__(self, share: Iterable[tuple[SendUnit, QueueRef]], group: str, window: int) -> None:
        self.outcome = ShareOutcome()
        self._group = group
        self._window = window
        self._queues: dict[QueueRef, deque[SendUnit]] = {}
        for piece, queue in share:
            self._queues.setdefault(queue, deque()).append(piece)
        self._idle = deque(self._queues)
        self._in_flight: dict[PendingRequest, QueueRef] = {}
        self._started: dict[PendingRequest, float] = {}

    def send(
        self, connection: RemotingConnection, who: str, faults: FaultTolerance, *, is_sync: bool
    ) -> None:
        """Send until all queues are empty or stopped; UnavailableError if the connection breaks."""
        while self._idle or self._in_flight:
            while self._idle and len(self._in_flight) < self._window:
                queue = self._idle.popleft()
                pending = connection.start(send_request(self._queues[queue][0], queue, self._group))
                self._in_flight[pending] = queue
                self._started[pending] = time.monotonic()
            pending = connection.finish_any(self._in_flight)
            queue = self._in_flight.pop(pending)
            latency_ms = (time.monotonic() - self._started.pop(pending)) * 1000
            if self._settle(queue, pending, who, is_sync):
                faults.note(queue.broker_name, latency_ms)

    def give_up(self, error: UnavailableError) -> None:
        """Hand back all that is not acknowledged; what is in flight may have been stored."""
        for queue in self._in_flight.values():
            self._note_unsure(self._queues[queue][0])
        for queue in self._queues:
            self._stop(queue, error)

    def _settle(self, queue: QueueRef, pending: PendingRequest, who: str, is_sync: bool) -> bool:
        """Deal with the end of a request; whether the piece is stored."""
        pieces = self._queues[queue]
        try:
            receipt = _receipt(pieces[0], queue, pending.result(), who, is_sync)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            if pending.answer is None:
                self._note_unsure(pieces[0])
            self._stop(queue, error)
            return False
        pieces.popleft()
        self.outcome.receipts.append(receipt)
        if pieces:
            self._idle.append(queue)
        return True

    def _stop(self, queue: QueueRef, error: UnavailableError) -> None:
        """Send no more to a queue: what lies behind a failed piece must not overtake it."""
        self.outcome.failed += self._queues[queue]
        self._queues[queue].clear()
        self.outcome.failure = error

    def _note_unsure(self, piece: SendUnit) -> None:
        self.outcome.unsure += len(piece.rows)
        _log.warning("unacknowledged topic=%s messages=%d", piece.topic, len(piece.rows))


def _receipt(
    piece: SendUnit, queue: QueueRef, answer: Command, who: str, is_sync: bool
) -> SendReceipt:
    if answer.code not in STORED:
        raise refusal(answer, who)
    if is_sync and answer.code != ResponseCode.SUCCESS:
        # Not retryable: it is stored, and sending it again would store it twice.
        raise BrokerError(
            f"{refusal(answer, who)} The message is stored, but not as safely as flush=sync asks."
        )
    try:
        return SendReceipt(piece, queue, parse_send_answer(answer))
    except (KeyError, ValueError) as error:
        raise RemotingProtocolError(f"{who} acknowledged a send oddly ({error}).") from error
