"""Sending: every piece acknowledged, or an error; in order within a queue.

One piece of a queue is in flight at a time, for brokers take requests on several threads and would
mix up two; queues are independent and go side by side, on each broker over one connection. A piece
that fails for a reason that may pass is sent again: to the same queue if its lane was chosen by the
caller, to another broker's if not. When the answer to a piece is lost nobody knows whether it was
stored, so sending again may store it twice, with the same unique keys: at least once is what a
cluster promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from broker_core.clients.cluster.client_instance import ClientInstance, asked
from broker_core.clients.cluster.route.fault_tolerance import FaultTolerance
from broker_core.clients.cluster.send.broker_share import BrokerShare, SendReceipt, ShareOutcome
from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE, SendUnit
from broker_core.errors import PermissionDeniedError, RequestError, UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.types import QueueRef
from broker_core.wire.remoting.frame import RemotingProtocolError

_Assigned = list[tuple[SendUnit, QueueRef]]


class Sender:
    """Sends pieces to a cluster; thread-safe. `unsure` counts messages that may be there twice."""

    def __init__(self, directory: ClientInstance) -> None:
        self._directory = directory
        self._faults = FaultTolerance()
        self._turns: dict[str, int] = {}
        self.unsure = 0

    def send(
        self, pieces: Sequence[SendUnit], group: str, *, is_sync: bool = False
    ) -> list[SendReceipt]:
        """Send all pieces and wait for all acknowledgements.

        With `is_sync` a piece that is stored but not confirmed as its broker was set up to confirm
        it (flushed, replicated) is an error.

        Raises:
            UnavailableError: No piece could be sent for `send_timeout_ms`.
            RequestError, IllegalMessageError: A broker refuses a message for good.
        """
        left = list(pieces)
        receipts: list[SendReceipt] = []
        backoff = Backoff(first_s=0.01)
        patience_ms = self._directory.settings.send_timeout_ms
        patience = Deadline.after_ms(patience_ms)
        failing: set[str] = set()
        while left:
            outcome = ShareOutcome()
            for name, share in self._send_round(left, group, failing, is_sync):
                if share.failure is not None:
                    failing.add(name)
                    outcome.failure = share.failure
                outcome.receipts += share.receipts
                outcome.failed += share.failed
                self.unsure += share.unsure
            if outcome.receipts:
                patience = Deadline.after_ms(patience_ms)
                backoff.reset()
            receipts += outcome.receipts
            left = outcome.failed
            if left:
                if patience.has_passed:
                    raise _too_late(left, patience_ms, outcome.failure)
                backoff.pause(patience)
        return receipts

    def _send_round(
        self, pieces: Sequence[SendUnit], group: str, failing: set[str], is_sync: bool
    ) -> Iterator[tuple[str, ShareOutcome]]:
        """Give each broker its share, side by side; names and what became of the shares."""
        try:
            shares = self._assign(pieces, failing)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            yield "", ShareOutcome(failed=list(pieces), failure=error)
            return
        if len(shares) == 1:
            ((name, assigned),) = shares.items()
            yield name, self._send_share(name, assigned, group, is_sync)
            return
        with ThreadPoolExecutor(len(shares), "remoting-send") as pool:
            waiting = [
                (name, pool.submit(self._send_share, name, assigned, group, is_sync))
                for name, assigned in shares.items()
            ]
            for name, future in waiting:
                yield name, future.result()

    def _send_share(
        self, name: str, assigned: _Assigned, group: str, is_sync: bool
    ) -> ShareOutcome:
        topic = assigned[0][1].topic
        share = BrokerShare(assigned, group, self._directory.settings.sends_in_flight)
        try:
            server = self._directory.routes.find(topic).broker(name).master
            connection = self._directory.connections.to(server)
            share.send(connection, asked(name, server), self._faults, is_sync=is_sync)
        except RemotingProtocolError:
            raise
        except UnavailableError as error:
            self._faults.note_failure(name)
            share.give_up(error)
        if share.outcome.failure is not None:
            for failed in {queue.topic for _, queue in assigned}:
                self._directory.routes.expire(failed)
        return share.outcome

    def _assign(self, pieces: Sequence[SendUnit], failing: set[str]) -> dict[str, _Assigned]:
        """Which queue each piece goes to, by broker, in order."""
        shares: dict[str, _Assigned] = {}
        lanes = {topic: self._lanes(topic) for topic in {piece.topic for piece in pieces}}
        choices = {topic: cycle(self._choice(found, failing)) for topic, found in lanes.items()}
        for piece in pieces:
            found = lanes[piece.topic]
            if piece.lane == ANY_WRITE_QUEUE:
                queue = next(choices[piece.topic])
            elif 0 <= piece.lane < len(found):
                queue = found[piece.lane]
            else:
                raise RequestError(
                    f"Topic '{piece.topic}' has queues 0 to {len(found) - 1} to write to, not"
                    f" {piece.lane}."
                )
            shares.setdefault(queue.broker_name, []).append((piece, queue))
        return shares

    def _lanes(self, topic: str) -> list[QueueRef]:
        found = self._directory.routes.find(topic).writable()
        if not found:
            raise PermissionDeniedError(
                f"Topic '{topic}' has no queue that can be written: its permission forbids it, or"
                f" no master of its brokers is there."
            )
        return found

    def _choice(self, lanes: Sequence[QueueRef], failing: set[str]) -> list[QueueRef]:
        """The queues for pieces that may go anywhere, brokers in turn, beginning where we left."""
        names = sorted({queue.broker_name for queue in lanes})
        wanted = self._faults.preferred([name for name in names if name not in failing] or names)
        chosen = [queue for queue in lanes if queue.broker_name in wanted]
        chosen.sort(key=lambda queue: (queue.queue_id, queue.broker_name))
        turn = self._turns.get(lanes[0].topic, 0)
        self._turns[lanes[0].topic] = turn + 1
        turn %= len(chosen)
        return chosen[turn:] + chosen[:turn]


def _too_late(
    left: Sequence[SendUnit], patience_ms: int, failure: UnavailableError | None
) -> UnavailableError:
    count = sum(len(piece.rows) for piece in left)
    topics = ", ".join(sorted({piece.topic for piece in left}))
    return UnavailableError(
        f"{count} messages for {topics} were not acknowledged within {patience_ms / 1000:g} s"
        f" (sendTimeoutMs); others of this batch may have been stored. {failure or ''}".rstrip()
    )
