"""The route cache: routes are looked up again when they are 30 s old, or when a send fails.

A broker that is down vanishes from routes, and a topic without any broker looks as if it did not
exist. A reader must not take that for deletion, so what this process has seen before counts: a
broker that held the topic and is not registered at all now is *absent*, not gone. One that is
registered and no longer holds the topic has had it deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from broker_core.clients.cluster.route.name_servers import NameServers
from broker_core.errors import TopicNotFoundError, UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.wire.remoting.route import TopicRoute

MAX_AGE_S = 30.0
_NEVER = float("-inf")

log = logging.getLogger(__name__)


class RouteCache:
    """Routes of the topics that this process has asked for; thread-safe."""

    def __init__(
        self, name_servers: NameServers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._known: dict[str, tuple[float, TopicRoute]] = {}

    def find(self, topic: str, max_age_s: float = MAX_AGE_S) -> TopicRoute:
        """Return the route of a topic, not older than `max_age_s`.

        0 insists on an answer from a name server; any other age lets an older route serve while no
        name server can be asked.

        Raises:
            TopicNotFoundError: No broker holds the topic.
            UnavailableError: No name server can be asked, or all brokers that held it are absent.
        """
        looked_up, known = self._known.get(topic, (_NEVER, None))
        now = self._clock()
        if known is not None and now - looked_up < max_age_s:
            return known
        try:
            route = self._look_up(topic, known)
        except UnavailableError:
            if known is None or max_age_s <= 0:
                raise
            route = known  # Name servers come and go; the brokers of a topic hardly change.
        self._known[topic] = now, route
        return route

    def await_brokers(self, topic: str, patience_ms: int) -> TopicRoute:
        """Return the route of a topic as it is now; wait `patience_ms` for absent brokers.

        Waiting ends at once when no name server answers: the address may simply be wrong.
        """
        deadline, backoff = Deadline.after_ms(patience_ms), Backoff()
        while True:
            try:
                return self.find(topic, max_age_s=0.0)
            except UnavailableError:
                if deadline.has_passed:
                    raise
                self._name_servers.cluster()
                backoff.pause(deadline)

    def expire(self, topic: str) -> None:
        """Look a route up again when it is asked for next: it may have changed."""
        if topic in self._known:
            self._known[topic] = _NEVER, self._known[topic][1]

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic, absent brokers included: it was deleted."""
        self._known.pop(topic, None)

    def _look_up(self, topic: str, known: TopicRoute | None) -> TopicRoute:
        found = self._name_servers.route(topic)
        if known is None and found is not None:
            return found
        before = frozenset(share.broker_name for share in known.shares) if known else frozenset()
        missing = before - frozenset(found.brokers if found else ())
        if found is not None and not missing:
            return found
        # A second question, asked only when a broker is missing: is it down, or was the topic
        # deleted on it?
        registered = self._name_servers.cluster().keys()
        absent = missing - registered
        if found is None:
            # No registered broker at all: a name server that has just started knows none.
            if absent or not registered:
                raise _all_absent(topic, absent)
            self.forget(topic)
            raise _no_topic(topic, self._name_servers)
        if not absent or known is None:
            return found
        if known.absent != absent:
            log.warning("event=absent topic=%s brokers=%s", topic, ",".join(sorted(absent)))
        return found.with_absent(known, absent)


def _no_topic(topic: str, name_servers: NameServers) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"Topic '{topic}' does not exist on the cluster of {name_servers}. Create it first, or"
        f" check its name (and namespace)."
    )


def _all_absent(topic: str, absent: frozenset[str]) -> UnavailableError:
    names = f"of {', '.join(sorted(absent))} " if absent else ""
    return UnavailableError(
        f"No broker {names}is registered with the name servers, so nothing can be said of topic"
        f" '{topic}'. Are the brokers down, or restarting?"
    )
