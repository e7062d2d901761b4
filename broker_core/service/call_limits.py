"""Call limits: how many of the server's threads one user, or calls that only wait, may take.

**Problem.** Every call holds one of `grpcMaxCalls` threads until it ends. Some calls wait on
purpose (Listen, Pull with `follow`, Await, an append that waits for room), and any call waits for
what its client still has to send, and for its client to take a reply: gRPC sends no more than the
client has a window for. A client that opens enough of these leaves no thread for others.

**Invariants.**

- A caller without right credentials holds a thread for no longer than it takes to refuse it: its
  credentials are looked at before its request is waited for.
- One user has at most three quarters of all threads.
- Calls that wait have at most half of all threads, and those of one user at most a quarter. Calls
  that do not wait always find a thread.
- A call whose client sends nothing that the server waits for is ended after 10 s, and so is one
  whose client does not take a reply. While a reply is not taken its caller's rights are looked at,
  as at any other time.
- A call beyond a limit is refused at once with UnavailableError, which clients retry.

Where no credentials are asked for, all callers are one user, and only the limits of all users
hold.

**Outline.** `Slots` counts calls by user. `StallWatch` has a thread that looks at the calls that
wait for their clients. The boundary (core/rpc.py) uses both for every call; handlers take a slot
with `Call.waiting()` around a wait.

**Rejected.** *A queue of calls beyond the limit.* It only moves the wait, and grows. *A deadline
for every call.* A follower or a listener has none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from broker_core.errors import UnavailableError
from broker_core.service.auth.user_rights import ANYONE, UserIdentity

log = logging.getLogger(__name__)
STALL_S = 10.0
"""Time that a client has to send what the server waits for, or to take a reply."""
_LOOKS = 4
"""Looks at waiting calls within that time, at least."""
_LOOK_S = 1.0
"""Longest time between two looks: so soon a call without rights ends."""


class Slots:
    """A number of calls of one kind, limited for each user and for all. Thread-safe."""

    def __init__(self, what: str, per_user: int, total: int) -> None:
        self._what = what
        self._per_user = max(1, per_user)
        self._total = max(1, total)
        self._lock = threading.Lock()
        self._by_user: dict[str, int] = {}
        self.held = 0

    def take(self, user: UserIdentity) -> None:
        """Take a slot for a call of a user; raise UnavailableError if none is left."""
        limit = self._total if user is ANYONE else min(self._per_user, self._total)
        with self._lock:
            own = self._by_user.get(user.name, 0)
            if own < limit and self.held < self._total:
                self._by_user[user.name] = own + 1
                self.held += 1
                return
            held = self.held
        message = (
            f"Too many {self._what}: {user.name} has {own} of at most {limit}, all users {held} of "
            f"{self._total}. End some, wait, or raise grpcMaxCalls of the broker."
        )
        raise UnavailableError(message)

    def give(self, user: UserIdentity) -> None:
        """Give a slot back."""
        with self._lock:
            self.held -= 1
            self._by_user[user.name] -= 1
            if not self._by_user[user.name]:
                del self._by_user[user.name]

    @contextmanager
    def hold(self, user: UserIdentity) -> Iterator[None]:
        """Hold a slot over a block."""
        self.take(user)
        try:
            yield
        finally:
            self.give(user)


class _Wait(NamedTuple):
    """A call that waits for its client."""

    deadline_s: float
    end: Callable[[], object]
    require_still: Callable[[], object] | None

    @property
    def is_permitted(self) -> bool:
        """False if the caller could not begin the call any more."""
        if self.require_still is None:
            return True
        try:
            self.require_still()
        except Exception as error:  # noqa: BLE001 - one call's trouble; the thread looks at all
            log.info("event=revoked error=%s", error)
            return False
        return True


class StallWatch:
    """Ends calls that wait for their clients for too long, or without a right. Thread-safe.

    `look` is called by a thread between `start` and `stop`.
    """

    def __init__(
        self, patience_s: float | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience_s = STALL_S if patience_s is None else patience_s
        self._monotonic = monotonic
        self._waiting: dict[object, _Wait] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)

    @contextmanager
    def watching(
        self, end: Callable[[], object], require_still: Callable[[], object] | None = None
    ) -> Iterator[None]:
        """Call `end` if the block takes longer than the patience, or if `require_still` raises."""
        key = object()
        self._waiting[key] = _Wait(self._monotonic() + self._patience_s, end, require_still)
        try:
            yield
        finally:
            self._waiting.pop(key, None)

    def look(self) -> int:
        """End the calls whose time or right is over; return the number of those out of time."""
        now_s, stalled = self._monotonic(), 0
        # A copy: calls come and go meanwhile.
        for key, wait in list(self._waiting.items()):
            is_late = wait.deadline_s <= now_s
            if (is_late or not wait.is_permitted) and self._waiting.pop(key, None) is not None:
                wait.end()
                stalled += is_late
        if stalled:
            log.warning("event=stalled calls=%d patience_s=%g", stalled, self._patience_s)
        return stalled

    def start(self) -> None:
        """Begin to look, once a second and several times within the patience."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(min(self._patience_s / _LOOKS, _LOOK_S)):
            self.look()


class CallLimits:
    """The limits of a server with a number of threads."""

    def __init__(self, max_calls: int) -> None:
        self.calls = Slots("calls at once", max_calls * 3 // 4, max_calls)
        self.waiting = Slots("calls that wait at once", max_calls // 4, max_calls // 2)
        self.stalls = StallWatch()
