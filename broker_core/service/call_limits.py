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
  whose client does not take a reply. Until then its caller's rights are looked at, as at any other
  time.
- No call is refused for calls that wait for their clients: once seven eighths of all places are
  taken, each call that begins ends one of them, the oldest of the user who has most. Clients
  retry a call that was ended so.
- A call has its place until gRPC has done with it: a reply that is not taken takes memory, though
  no thread.
- A call beyond a limit is refused at once with UnavailableError, which clients retry.

Where no credentials are asked for, all callers are one user, and only the limits of all users
hold.

**Outline.** `Slots` counts calls by user. `StallWatch` knows the calls that wait for their clients,
and has a thread that looks at them. The boundary (core/rpc.py) uses both for every call; handlers
take a slot with `Call.waiting()` around a wait.

**Rejected.** *A queue of calls beyond the limit.* It only moves the wait, and grows. *A deadline
for every call.* A follower or a listener has none.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote

from broker_core.errors import UnavailableError
from broker_core.service.auth.user_rights import ANYONE, UserIdentity

log = logging.getLogger(__name__)
STALL_S = 10.0
"""Time that a client has to send what the server waits for, or to take a reply."""
TAKE_BYTES_S = 256 << 10
"""Pace at which a client has to take a single reply, after that time."""
_LOOKS = 4
"""Looks at waiting calls within that time, at least."""
_LOOK_S = 1.0
"""Longest time between two looks: so soon a call without rights ends."""


def peer_address(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in gRPC's text for a peer, as IPv4 where it is; None if it has none."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def origin_of(peer: str) -> str:
    """Return the machine of a peer as far as can be told: one has many IPv6 addresses in a /64.

    >>> origin_of("ipv4:10.1.2.3:5000")
    '10.1.2.3/32'
    >>> origin_of("ipv6:%5B2001:db8::7%5D:5000")
    '2001:db8::/64'
    """
    address = peer_address(peer)
    if address is None:
        return ""
    bits = 32 if address.version == 4 else 64
    return str(ipaddress.ip_network((address, bits), strict=False))


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

    user: str
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
        self._waiting: dict[object, _Wait] = {}  # the oldest first
        self._crowded_out = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their clients."""
        return len(self._waiting)

    def watch(
        self,
        user: str,
        end: Callable[[], object],
        require_still: Callable[[], object] | None = None,
        more_s: float = 0.0,
    ) -> Callable[[], object]:
        """Call `end` after the patience and `more_s`, or when `require_still` raises.

        Return a function that ends the watch.
        """
        key = object()
        deadline_s = self._monotonic() + self._patience_s + more_s
        self._waiting[key] = _Wait(user, deadline_s, end, require_still)
        return lambda: self._waiting.pop(key, None)

    @contextmanager
    def watching(
        self,
        user: str,
        end: Callable[[], object],
        require_still: Callable[[], object] | None = None,
    ) -> Iterator[None]:
        """Watch over a block."""
        unwatch = self.watch(user, end, require_still)
        try:
            yield
        finally:
            unwatch()

    def end_oldest(self) -> None:
        """End the oldest call of the user who has most; do nothing if no call waits."""
        waits = list(self._waiting.items())  # a copy: calls come and go meanwhile
        most = Counter(wait.user for _, wait in waits).most_common(1)
        for key, wait in waits:
            if wait.user == most[0][0] and self._waiting.pop(key, None) is not None:
                self._crowded_out += 1
                wait.end()
                return

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
        crowded_out, self._crowded_out = self._crowded_out, 0
        if crowded_out:
            log.warning("event=crowded_out calls=%d", crowded_out)
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
        self._crowd = max_calls * 7 // 8

    def take(self, user: UserIdentity) -> None:
        """Take the place of a call; near the end of places, end one that waits for its client.

        gRPC refuses what comes when all threads are taken, so some are kept free. Raise
        UnavailableError if there is no place.
        """
        try:
            self.calls.take(user)
        finally:
            if self.calls.held > self._crowd:
                self.stalls.end_oldest()
