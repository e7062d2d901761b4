"""Name servers: independent of each other, each with its own view of the cluster.

Any one of them can answer; a topic that one does not know another may. The one that answered last
is asked first. The deletion of a topic, which must reach all of them, is sent to each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from broker_core.clients.cluster.net.connection import RemotingConnections
from broker_core.errors import BrokerError, UnavailableError
from broker_core.wire.remoting.command import Command, Request, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.route import (
    BrokerRoute,
    Endpoint,
    TopicRoute,
    cluster_info_request,
    delete_route_request,
    parse_cluster_info,
    parse_route,
    parse_topic_list,
    route_request,
    topic_list_request,
)
from broker_core.wire.remoting.status import refusal, require_success

_TIMEOUT_MS = 3_000
_BAD_BODY = (ValueError, KeyError, TypeError, AttributeError)


class NameServers:
    """The name servers of one cluster."""

    def __init__(self, servers: Sequence[Endpoint], connections: RemotingConnections) -> None:
        self._servers = tuple(servers)
        self._connections = connections
        # Clients spread over the name servers.
        self._first = random.randrange(len(self._servers))

    def __str__(self) -> str:
        return ", ".join(map(str, self._servers))

    def topics(self) -> list[str]:
        """Return the names of all topics, system topics included, sorted."""
        request = topic_list_request()
        server, answer = self._ask(request)
        require_success(answer, _label(server))
        try:
            return parse_topic_list(answer.body)
        except _BAD_BODY as error:
            raise _odd(server, request, error) from error

    def cluster(self) -> dict[str, BrokerRoute]:
        """Return all registered brokers by name."""
        request = cluster_info_request()
        server, answer = self._ask(request)
        require_success(answer, _label(server))
        try:
            return parse_cluster_info(answer.body)
        except _BAD_BODY as error:
            raise _odd(server, request, error) from error

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic, or None if no name server knows it."""
        request = route_request(topic)
        failure: BrokerError | None = None
        for server, answer in self._answers(request):
            if answer.code == ResponseCode.SUCCESS:
                try:
                    return parse_route(topic, answer.body)
                except _BAD_BODY as error:
                    raise _odd(server, request, error) from error
            if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                failure = refusal(answer, _label(server))
        if failure is not None:
            raise failure
        return None

    def delete_topic(self, topic: str) -> None:
        """Let every name server that can be reached forget a topic."""
        for server, answer in self._answers(delete_route_request(topic)):
            require_success(answer, _label(server))

    def _ask(self, request: Request) -> tuple[Endpoint, Command]:
        return next(self._answers(request))

    def _answers(self, request: Request) -> Iterator[tuple[Endpoint, Command]]:
        """Yield the answers of those that can be reached; UnavailableError if none can."""
        failures: list[BrokerError] = []
        first = self._first
        for distance in range(len(self._servers)):
            number = (first + distance) % len(self._servers)
            server = self._servers[number]
            try:
                answer = self._connections.call(server, request, _TIMEOUT_MS)
            except UnavailableError as error:
                failures.append(error)
                continue
            self._first = number
            yield server, answer
        if len(failures) == len(self._servers):
            raise _unreachable(failures)


def _unreachable(failures: Sequence[BrokerError]) -> BrokerError:
    text = "No name server can be asked. " + " ".join(str(failure) for failure in failures)
    if all(isinstance(failure, RemotingProtocolError) for failure in failures):
        return RemotingProtocolError(text)
    return UnavailableError(text)


def _label(server: Endpoint) -> str:
    return f"Name server {server}"


def _odd(server: Endpoint, request: Request, error: Exception) -> RemotingProtocolError:
    return RemotingProtocolError(
        f"Name server {server} answered {request.name} with something else ({error})."
    )
