"""Transactional producer: sends a message together with a local transaction, as RocketMQ has it.

The message is prepared, then the listener executes the local transaction and says how it ended; if
the process dies in between, or the listener does not know yet, check-back asks it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker_core.types import LocalTransactionState

if TYPE_CHECKING:
    from broker_core.api import TransactionalBroker, TransactionListener
    from broker_core.types import HalfMessage


class TransactionalProducer:
    """Sends messages that become visible if, and only if, their local transaction commits."""

    def __init__(
        self, broker: TransactionalBroker, group: str, listener: TransactionListener
    ) -> None:
        self._broker = broker
        self._group = group
        self._listener = listener
        broker.transactions.listen(group, listener)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> tuple[HalfMessage, LocalTransactionState]:
        """Prepare a message, execute its local transaction, and end it accordingly.

        An exception of the listener leaves the transaction open, and is raised.
        """
        half = self._broker.transactions.prepare(
            topic,
            body,
            group=self._group,
            tags=tags,
            keys=keys,
            properties=properties,
            queue_id=queue_id,
        )
        state = self._listener.execute_local_transaction(half, body, dict(properties or {}))
        self._broker.transactions.end(half, state)
        return half, state
