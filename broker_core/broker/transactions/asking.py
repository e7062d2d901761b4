"""Asking: how a round of check-back reaches the producers of half messages that are still open.

A check counts against a half message (`transactionCheckMax`), so one is made only if somebody can
be asked: a round asks for `rooms` first, for all producers at once, since one listener may take the
questions of several. On a server the listeners are other processes
(service/core/transactions.py); in an embedded broker they are objects of the same process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from broker_core.codec.property_names import PREPARED_BY
from broker_core.types import LocalTransactionState

if TYPE_CHECKING:
    from broker_core.api import TransactionListener
    from broker_core.codec.record import Record
    from broker_core.types import HalfMessage

Producer: TypeAlias = tuple[str, str, str]
"""Whom a half message is of: producer group, user who prepared it, topic that it is for."""


class Asking(Protocol):
    """Asks the producers of half messages."""

    def rooms(self, producers: Sequence[Producer], wanted: Sequence[int]) -> list[int]:
        """Return how many questions about what is of each can be asked now, at most those wanted.

        All of them together have room.
        """

    def ask(self, half: HalfMessage, record: Record) -> LocalTransactionState:
        """Ask about one half message, by its record; UNKNOWN if the answer comes later, or never.

        The record is not to be kept: a round asks about many.
        """


class OwnListeners:
    """The listeners of this process, one a producer group."""

    def __init__(self) -> None:
        self.listeners: dict[str, TransactionListener] = {}

    def rooms(self, producers: Sequence[Producer], wanted: Sequence[int]) -> list[int]:
        """Return what is wanted where the group has a listener here: it answers at once."""
        return [
            count if group in self.listeners else 0
            for (group, _, _), count in zip(producers, wanted, strict=True)
        ]

    def ask(self, half: HalfMessage, record: Record) -> LocalTransactionState:
        """Return what the group's listener says."""
        listener = self.listeners.get(half.group)
        if listener is None:
            return LocalTransactionState.UNKNOWN
        return listener.check_local_transaction(half, record.plain_body, told_properties(record))


def told_properties(record: Record) -> dict[str, str]:
    """Return a half message's properties as its producer is told them."""
    return {name: text for name, text in record.property_map.items() if name != PREPARED_BY}
