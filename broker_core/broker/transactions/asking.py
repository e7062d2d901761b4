"""Asking: how a round of check-back reaches the producers of half messages that are still open.

A check counts against a half message (`transactionCheckMax`), so one is made only if somebody can
be asked: a round asks for `room` first. On a server the listeners are other processes
(service/core/transactions.py); in an embedded broker they are objects of the same process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from broker_core.types import LocalTransactionState

if TYPE_CHECKING:
    from broker_core.api import TransactionListener
    from broker_core.types import HalfMessage

PLENTY = 1 << 30


class Asking(Protocol):
    """Asks the producers of half messages."""

    def room(self, group: str, user: str, topic: str) -> int:
        """Return how many questions can be asked now about what a user prepared for a topic."""

    def ask(
        self, half: HalfMessage, user: str, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Ask about one half message; UNKNOWN if the answer comes later, or never."""


class OwnListeners:
    """The listeners of this process, one a producer group."""

    def __init__(self) -> None:
        self.listeners: dict[str, TransactionListener] = {}

    def room(self, group: str, user: str, topic: str) -> int:
        """Return PLENTY if the group has a listener here: it answers at once."""
        del user, topic
        return PLENTY if group in self.listeners else 0

    def ask(
        self, half: HalfMessage, user: str, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Return what the group's listener says."""
        del user
        listener = self.listeners.get(half.group)
        if listener is None:
            return LocalTransactionState.UNKNOWN
        return listener.check_local_transaction(half, body, properties)
