"""Topics of a cluster: described by its routes, made and deleted on its masters.

The number of queues that our API speaks of is the topic's whole number, spread evenly over the
masters in the order of their names. The writable queues, sorted by broker and number, are the
topic's write queues: where our API takes a single number to write to, it is a write queue's, which
on one broker is the queue's own number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_core.clients.cluster.client_instance import ClientInstance, broker_label
from broker_core.codec.legal_names import check_topic
from broker_core.errors import (
    RequestError,
    TopicExistsError,
    TopicNotFoundError,
    UnavailableError,
)
from broker_core.types import TopicInfo
from broker_core.wire.remoting.command import ResponseCode
from broker_core.wire.remoting.headers import (
    create_group_request,
    create_topic_request,
    delete_topic_request,
    topic_stats_request,
)
from broker_core.wire.remoting.route import MASTER, BrokerRoute, Endpoint, TopicRoute
from broker_core.wire.remoting.status import refusal, require_success


class ClusterTopics:
    """The topics of one cluster, by the names that the cluster knows them by."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    def names(self) -> list[str]:
        """Return all topics, system topics included, sorted."""
        return self._instance.name_servers.topics()

    def describe(self, topic: str, patience_ms: int = 0) -> TopicInfo:
        """Return what the brokers say of a topic now; TopicNotFoundError if there is none.

        Brokers that restart are waited for, as long as `patience_ms`.
        """
        return topic_info(self._instance.routes.await_brokers(check_topic(topic), patience_ms))

    def create(self, topic: str, queues: int, *, exist_ok: bool) -> TopicInfo:
        """Make a topic with `queues` queues in all; TopicExistsError unless `exist_ok`."""
        check_topic(topic)
        _check_count(topic, queues)
        try:
            found = self.describe(topic)
        except TopicNotFoundError:
            self._set_queues(topic, spread(queues, self._masters()))
            return self.describe(topic)
        if not exist_ok:
            raise TopicExistsError(
                f"Topic '{topic}' exists already, with {found.read_queues} queues."
                f" Pass exist_ok=True, or add_queues to let it grow."
            )
        return found

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Let a topic have `total` queues in all; RequestError if it has more."""
        route = self._instance.routes.find(check_topic(topic), max_age_s=0.0)
        _check_count(topic, total)
        has = {share.broker_name: share.write_queues for share in route.shares}
        if total < sum(has.values()):
            raise RequestError(
                f"Topic '{topic}' has {sum(has.values())} queues and can't have {total};"
                f" queues are only added."
            )
        wanted = grow(total, {name: has.get(name, 0) for name in {*has, *self._masters()}})
        self._set_queues(topic, {name: count for name, count in wanted.items() if count})
        return self.describe(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic on brokers, then name servers; TopicNotFoundError if there is none."""
        route = self._instance.routes.find(check_topic(topic), max_age_s=0.0)
        request = delete_topic_request(topic)
        for share in route.shares:
            broker = route.broker(share.broker_name)
            for server in broker.addresses.values():
                answer = self._instance.connections.call(server, request)
                if answer.code != ResponseCode.SUCCESS and self._has(server, topic):
                    raise refusal(answer, broker_label(broker.name, server))
        self._instance.name_servers.delete_topic(topic)
        self._instance.routes.forget(topic)
        self._instance.acknowledged.forget(topic)

    def _has(self, server: Endpoint, topic: str) -> bool:
        """Return True if a broker has a topic.

        Some brokers delete a topic and then answer with an error, over their own statistics.
        """
        answer = self._instance.connections.call(server, topic_stats_request(topic))
        return answer.code != ResponseCode.TOPIC_NOT_EXIST

    def create_group(self, group: str, broker: BrokerRoute) -> None:
        """Make a consumer group on one broker with RocketMQ's default settings."""
        answer = self._instance.connections.call(broker.master, create_group_request(group))
        require_success(answer, broker_label(broker.name, broker.master))

    def _masters(self) -> dict[str, BrokerRoute]:
        brokers = self._instance.name_servers.cluster()
        masters = {name: broker for name, broker in brokers.items() if MASTER in broker.addresses}
        if not masters:
            raise UnavailableError("The cluster has no master broker; is it starting?")
        return masters

    def _set_queues(self, topic: str, counts: Mapping[str, int]) -> None:
        masters = self._masters()
        for name in sorted(counts):
            broker = masters.get(name, BrokerRoute(name))
            answer = self._instance.connections.call(
                broker.master, create_topic_request(topic, counts[name])
            )
            require_success(answer, broker_label(name, broker.master))


def topic_info(route: TopicRoute) -> TopicInfo:
    """Return a topic as our API describes it; numbers of queues are sums over brokers."""
    readable, writable = route.readable(), route.writable()
    perm = 0
    for share in route.shares:
        perm |= share.perm
    return TopicInfo(route.topic, len(readable), len(writable), perm, tuple(readable))


def spread(total: int, names: Mapping[str, object] | Sequence[str]) -> dict[str, int]:
    """Return how many of `total` queues each broker gets; those that get none are left out.

    >>> spread(5, ["broker-b", "broker-a"]), spread(1, ["broker-b", "broker-a"])
    ({'broker-a': 3, 'broker-b': 2}, {'broker-a': 1})
    """
    return {name: count for name, count in grow(total, dict.fromkeys(names, 0)).items() if count}


def grow(total: int, has: Mapping[str, int]) -> dict[str, int]:
    """Return how many queues each broker has when the topic has grown to `total`; none loses any.

    >>> grow(6, {"broker-a": 4, "broker-b": 0})
    {'broker-a': 4, 'broker-b': 2}
    """
    counts = dict(sorted(has.items()))
    for _ in range(total - sum(counts.values())):
        counts[min(counts, key=lambda name: (counts[name], name))] += 1
    return counts


def _check_count(topic: str, queues: int) -> None:
    if not 1 <= queues <= 65536:
        raise RequestError(f"Topic '{topic}' can't have {queues} queues; 1 to 65536 are possible.")
