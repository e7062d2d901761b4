"""Room: bytes of requests in memory, limited for each user and for all.

**Problem.** A request in several chunks names its size before it comes. Room that is held for what
was only announced keeps others out for nothing; room that is taken chunk by chunk can end with
many requests that each hold a part and wait for the rest.

**Invariants.**

- What was announced holds nothing but the share of its own user: several requests of one user
  announce at most half of the limit, first come first served. Against the limit of all counts what
  is in memory alone.
- A request that is here whole takes its room at once, within the limit. It ends by itself as fast
  as the log takes it, so a quarter is for such requests alone, whatever the others hold.
- A request that is still coming goes on if those *others* that are coming hold no more than the
  limit. So all of them hold at most the limit and one request. There is no deadlock: if they hold
  more than the limit, the last one that took some may go on.
- Waiting takes one of the slots of calls that wait, ends with the caller's right or the deadline,
  and then nothing is held.

**Rejected.** *Refusing the request that came last.* It would send all of it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from broker_core.errors import UnavailableError
from broker_core.service.auth.user_rights import ANYONE

if TYPE_CHECKING:
    from broker_core.service.auth.user_rights import UserIdentity

_LOOK_S = 1.0
"""Time after which a call that waits for room looks whether its client still does, and may."""


class RoomTaker(Protocol):
    """A call that asks for room, as far as room is concerned; core/rpc.py has the real one."""

    identity: UserIdentity

    @property
    def is_active(self) -> bool:
        """True while the client waits for the answer."""

    def waiting(self) -> AbstractContextManager[None]:
        """Hold a slot for a call that waits over a block."""

    def require_still(self) -> None:
        """Raise unless the caller could begin this call now."""


@dataclass(eq=False, slots=True)
class Claim:
    """The room of one request: what it announced, and what it holds by now."""

    room: Room
    size_bytes: int
    is_coming: bool
    user: str
    deadline_s: float | None
    call: RoomTaker | None
    held_bytes: int = 0

    def take(self, size_bytes: int) -> None:
        """Take room for what came; UnavailableError if none is free in time.

        Nothing is left to take for a request that was here whole.
        """
        if self.is_coming:
            self.room.take(self, size_bytes)


class Room:
    """Bytes that requests may take in memory. Thread-safe."""

    def __init__(self, max_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._claims: dict[Claim, None] = {}  # in the order in which they came
        self.held_bytes = 0
        self._coming_bytes = 0

    @contextmanager
    def claim(
        self,
        size_bytes: int,
        deadline_s: float | None,
        call: RoomTaker | None = None,
        *,
        is_coming: bool = False,
    ) -> Iterator[Claim]:
        """Hold room for a request over a block; raise UnavailableError if none is free in time.

        One that `is_coming` holds nothing yet: it takes room as its parts come. Without a call, or
        without credentials, no user's share is looked at.
        """
        user = "" if call is None or call.identity is ANYONE else call.identity.name
        claim = Claim(self, size_bytes, is_coming, user, deadline_s, call)
        with self._changed:
            self._claims[claim] = None
        try:
            with self._changed:
                self._wait(claim, lambda: self._has_share(claim))
            if not is_coming:
                self.take(claim, size_bytes)
            yield claim
        finally:
            with self._changed:
                del self._claims[claim]
                self._add(claim, -claim.held_bytes)
                self._changed.notify_all()

    def take(self, claim: Claim, size_bytes: int) -> None:
        """Take room for a part of a request, or all of it."""
        with self._changed:
            self._wait(claim, lambda: self._fits(claim, size_bytes))
            self._add(claim, size_bytes)

    def _add(self, claim: Claim, size_bytes: int) -> None:
        claim.held_bytes += size_bytes
        self.held_bytes += size_bytes
        self._coming_bytes += size_bytes if claim.is_coming else 0

    def _has_share(self, claim: Claim) -> bool:
        """Tell whether what its user's earlier requests announced leaves a share for this one."""
        if not claim.user:
            return True
        earlier = takewhile(lambda each: each is not claim, self._claims)
        own = sum(each.size_bytes for each in earlier if each.user == claim.user)
        return not own or own + claim.size_bytes <= self._max_bytes // 2

    def _fits(self, claim: Claim, size_bytes: int) -> bool:
        if claim.is_coming:
            return self._coming_bytes - claim.held_bytes <= self._max_bytes
        whole_bytes = self.held_bytes - self._coming_bytes
        return (
            # The first condition lets a request that is larger than all room in, alone.
            not self.held_bytes
            or self.held_bytes + size_bytes <= self._max_bytes
            or whole_bytes + size_bytes <= self._max_bytes // 4
        )

    def _wait(self, claim: Claim, is_free: Callable[[], bool]) -> None:
        if is_free():
            return
        call = claim.call
        with nullcontext() if call is None else call.waiting():
            while not is_free():
                left_s = None
                if claim.deadline_s is not None:
                    left_s = max(0.0, claim.deadline_s - self._monotonic())
                if left_s == 0 or (call is not None and not call.is_active):
                    raise busy(self.held_bytes)
                self._changed.wait(_LOOK_S if left_s is None else min(left_s, _LOOK_S))
                # After each wait, the last one too: what is written next may have lost its right.
                if call is not None:
                    call.require_still()


def busy(held_bytes: int) -> UnavailableError:
    """Return the error for a request that could not be begun in time."""
    message = (
        f"The broker could not append in time: {held_bytes} bytes of requests are being served. "
        f"Nothing was written; try again later, or with a longer timeout."
    )
    return UnavailableError(message)
