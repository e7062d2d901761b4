"""Inspection: how a reader finds a store, and what it makes of one that was left unclean.

A writer leaves signs of itself while it writes (shutdown_state.py). A store that has them, and
whose lock is free, was left by a writer that died: consume queues may lag behind the log or run
ahead of it, and index files may be incomplete. A store whose consume queues were removed is treated
alike. Readers see such a store as recovery would leave it (plan.py), and change nothing; recover.py
is for writers.

Recovery ends the log at the first record that is not valid, as RocketMQ does, also where whole
messages lie behind it. A reader does not follow it there: what a queue still leads to is read, and
reading a damaged record reports it. So it is where damage keeps recovery from making a plan.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError, OffsetRangeError, StorageError
from broker_core.store.lock import lock_holder
from broker_core.store.queue.consume_queue import ConsumeQueue, has_entry
from broker_core.store.recovery.shutdown_state import (
    ShutdownState,
    lacks_queues,
    read_shutdown_state,
)

if TYPE_CHECKING:
    from broker_core.store.log.commit_log import CommitLog
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.recovery.plan import Progress, RecoveryPlan
    from broker_core.store.settings import StoreSettings

log = logging.getLogger(__name__)
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state in which a store was found: `recovery` is None if its files are right as they are.

    `damage` is set if whole messages lie behind the end that recovery would give the log, or if it
    can't be planned at all: then nothing that a queue leads to may be left out.
    """

    shutdown: ShutdownState
    is_locked: bool
    recovery: RecoveryPlan | None = None
    damage: CorruptRecordError | None = None

    @property
    def is_clean(self) -> bool:
        """True if records need no second check: the store was closed, or is being written."""
        return self.recovery is None and self.damage is None

    def is_current(self, root: Path) -> bool:
        """Return True if no process has written to the store, closed or opened it since."""
        return (self.shutdown, self.is_locked) == (read_shutdown_state(root), _is_locked(root))


def examine_store(
    root: Path, commit_log: CommitLog, settings: StoreSettings, progress: Progress | None = None
) -> StoreState:
    """Examine how a store was left, at the cost of a few small reads unless that is unclean.

    Then the log is scanned, and `progress` is told how far the scan is.
    """
    for _ in range(_ATTEMPTS):
        state = StoreState(read_shutdown_state(root), _is_locked(root))
        is_bare = lacks_queues(root, settings)
        if state.is_locked or not (state.shutdown.is_unclean or is_bare):
            return state
        # Planning loads a fifth of this package; a store that was closed does not need it.
        from broker_core.store.recovery.plan import plan

        try:
            planned = plan(root, settings.agreeing_with(root), progress=progress)
        except CorruptRecordError as error:
            found = replace(state, damage=error)
        else:
            found = _recovered(
                state, root, commit_log, _living(planned, root) if is_bare else planned
            )
        # Without the lock a writer can come in between, and makes the plan worthless: look again.
        if state.is_current(root):
            return found
    return state


def _living(planned: RecoveryPlan, root: Path) -> RecoveryPlan:
    """Return the plan without queues of topics that the configuration lacks: they were deleted."""
    from broker_core.store.recovery.queue_plan import known_topics

    is_known = known_topics(root)
    queues = {queue: change for queue, change in planned.queues.items() if is_known(queue[0])}
    return replace(planned, queues=queues)


def _recovered(
    state: StoreState, root: Path, commit_log: CommitLog, planned: RecoveryPlan
) -> StoreState:
    """Return the state with the plan, and with damage if the plan would hide whole messages."""
    from broker_core.store.recovery.plan import RecoveryKind

    # What is pending is followed while it grows (pending_tail.py): its writer may live.
    if planned.kind is RecoveryKind.NONE or (planned.tail and planned.tail.has_pending):
        return state
    log.info(
        "event=store_left_unclean root=%s log_end=%d queues=%d",
        root,
        planned.log_end,
        len(planned.queues),
    )
    cut = [queue for queue, change in planned.queues.items() if not len(change.entries)]
    damage = None
    if any(_leads_beyond(root, commit_log, queue, planned) for queue in cut):
        message = (
            f"The commit log in {root} is damaged at physical offset {planned.log_end} "
            f"({planned.ending or 'nothing is written there'}), and whole messages lie behind it. "
            f"Restore it from a backup; opening it with mode='rw' would cut the log there, as "
            f"RocketMQ does."
        )
        damage = CorruptRecordError(message, root, planned.log_end)
    elif any(_leads_to_stranger(root, commit_log, queue, planned) for queue in cut):
        message = (
            f"A record of the commit log in {root} says that it belongs to a queue which does not "
            f"know it, while another queue leads to it. Restore it from a backup, or run "
            f"`rocketmq-broker check` on the store."
        )
        damage = CorruptRecordError(message, root)
    return replace(state, recovery=planned, damage=damage)


def _leads_beyond(
    root: Path, commit_log: CommitLog, queue: QueueKey, planned: RecoveryPlan
) -> bool:
    """Return True if a queue's last entry leads to its message, whole, behind a planned end."""
    from broker_core.store.recovery.queue_plan import last_entry, leads_beyond

    last = last_entry(queue, root / "consumequeue" / queue[0] / str(queue[1]))
    return last is not None and leads_beyond(
        commit_log, last, planned.log_end, planned.last_store_ms
    )


def _leads_to_stranger(
    root: Path, commit_log: CommitLog, queue: QueueKey, planned: RecoveryPlan
) -> bool:
    """Return True if the first entry to be cut leads to a record that no queue has as its own."""
    topic, queue_id = queue
    end = planned.queues[queue].end
    for entry in ConsumeQueue(root / "consumequeue" / topic / str(queue_id)).read(end, end + 1):
        physical_offset = int(entry["physical_offset"])
        if not commit_log.start <= physical_offset < planned.log_end or int(entry["size"]) <= 0:
            continue
        try:
            record = commit_log.record(physical_offset)
        except (CorruptRecordError, OffsetRangeError):
            continue
        change = planned.queues.get((record.topic, record.queue_id))
        added = change.entries["physical_offset"] if change is not None else ()
        return physical_offset not in added and not has_entry(root, record)
    return False


def _is_locked(root: Path) -> bool:
    try:
        return lock_holder(root) is not None
    except StorageError:
        return False  # not even the lock may be opened: then no process of this user writes
