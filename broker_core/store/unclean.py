"""Stores that were left unclean: whether one was, and what recovery would make of it.

Whoever writes leaves marks while it does (marks.py). A store that has them, and that nobody holds
the lock of, was left by a writer that died: consume queues may lag behind the log or run ahead of
it, and index files may be incomplete. So may the queues of a store from which they were removed.
Readers look at such a store as recovery would leave it, and change nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import StorageError
from broker_core.store.consume_queue import list_queues
from broker_core.store.lock import lock_holder
from broker_core.store.marks import Marks, read_marks
from broker_core.store.recovery import RecoveryKind, plan

if TYPE_CHECKING:
    from broker_core.store.recovery import RecoveryPlan
    from broker_core.store.settings import StoreSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreState:
    """How a store was found: `recovery` is None if its files are to be taken as they are."""

    marks: Marks
    is_locked: bool
    recovery: RecoveryPlan | None = None

    def is_current(self, root: Path) -> bool:
        """Whether nobody has written to the store, closed or opened it since."""
        return self == StoreState(read_marks(root), _is_locked(root), self.recovery)


def examine_store(root: Path, settings: StoreSettings) -> StoreState:
    """Find out how a store was left. Costs a few small reads unless it was left unclean."""
    state = StoreState(read_marks(root), _is_locked(root))
    if state.is_locked or not (state.marks.is_unclean or _lacks_queues(root, settings)):
        return state
    planned = plan(root, settings.agreeing_with(root))
    if planned.kind is RecoveryKind.NONE:
        return state
    _LOG.info(
        "store was left unclean, reading what recovery would leave: root=%s log_end=%d queues=%d",
        root,
        planned.log_end,
        len(planned.queues),
    )
    return StoreState(state.marks, state.is_locked, planned)


def _is_locked(root: Path) -> bool:
    try:
        return lock_holder(root) is not None
    except StorageError:
        return False  # not even the lock may be opened: then nobody of this user writes


def _lacks_queues(root: Path, settings: StoreSettings) -> bool:
    """Whether there is a log but no consume queue at all, so that all of them must be rebuilt."""
    if list_queues(root / "consumequeue"):
        return False
    return any(
        next(directory.glob("[0-9]*"), None) is not None
        for directory in settings.commit_log_directories(root)
    )
