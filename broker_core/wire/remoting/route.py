"""Routes: which brokers hold a topic, with how many queues each, and where they are.

A broker is a name and the addresses of its replicas by id; 0 is the master. Queues are readable if
the topic's permission on that broker has bit 4, writable if it has bit 2 and there is a master.

Questions to name servers, and the JSON of their answers:

    GET_ROUTE_BY_TOPIC                    topic, acceptStandardJsonOnly
        {"brokerDatas": [{"brokerName", "cluster", "brokerAddrs": {id: "host:port"}}],
         "queueDatas": [{"brokerName", "readQueueNums", "writeQueueNums", "perm"}]}
    GET_BROKER_CLUSTER_INFO               -
        {"brokerAddrTable": {name: as in brokerDatas}}
    GET_ALL_TOPIC_LIST_FROM_NAME_SERVER   -
        {"topicList": [name]}
    DELETE_TOPIC_IN_NAME_SERVER           topic
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.errors import UnavailableError, UnsupportedError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Body, Request, RequestCode
from broker_core.wire.remoting.lenient_json import parse_json

MASTER = 0
PERM_READ = 4
PERM_WRITE = 2


class Endpoint(NamedTuple):
    """The address of one server. The host of an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Return the server that a text names; ValueError if it names none.

    >>> parse_endpoint("10.0.0.5:10911"), parse_endpoint("[::1]:9876")
    (Endpoint(host='10.0.0.5', port=10911), Endpoint(host='::1', port=9876))
    """
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text.strip()!r} is not host:port")
    return Endpoint(host, int(port))


@dataclass(frozen=True)
class BrokerRoute:
    """One broker: its replicas' addresses by id. A broker without any is known, but down."""

    name: str
    cluster: str = ""
    addresses: Mapping[int, Endpoint] = field(default_factory=dict)

    @property
    def master(self) -> Endpoint:
        """Address of its master; UnavailableError if there is none."""
        if MASTER not in self.addresses:
            raise UnavailableError(
                f"Broker {self.name} has no master that is registered with the name servers."
                f" Is it down, or restarting?"
            )
        return self.addresses[MASTER]

    def replica(self, broker_id: int) -> Endpoint:
        """Return the address of the replica with an id, or else the next one, or else any."""
        for wanted in (broker_id, broker_id + 1):
            if wanted in self.addresses:
                return self.addresses[wanted]
        return self.addresses[min(self.addresses)] if self.addresses else self.master


@dataclass(frozen=True)
class TopicShare:
    """The queues that one broker holds of a topic."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True)
class TopicRoute:
    """The brokers that hold a topic. `absent` ones held it and are not registered now."""

    topic: str
    shares: tuple[TopicShare, ...]
    brokers: Mapping[str, BrokerRoute]
    absent: frozenset[str] = frozenset()

    def readable(self) -> list[QueueRef]:
        """Return all queues that can be read, sorted."""
        return sorted(
            QueueRef(self.topic, share.broker_name, number)
            for share in self.shares
            if share.perm & PERM_READ
            for number in range(share.read_queues)
        )

    def writable(self) -> list[QueueRef]:
        """Return all queues that can be written, sorted; absent brokers' queues among them."""
        return sorted(
            QueueRef(self.topic, share.broker_name, number)
            for share in self.shares
            if share.perm & PERM_WRITE and self._may_write(share.broker_name)
            for number in range(share.write_queues)
        )

    def broker(self, name: str) -> BrokerRoute:
        """Return a broker by name; without addresses if it is unknown or absent."""
        return self.brokers.get(name) or BrokerRoute(name)

    def with_absent(self, known: TopicRoute, names: frozenset[str]) -> TopicRoute:
        """Return this route with brokers of an earlier one added as absent."""
        missing = [share for share in known.shares if share.broker_name in names]
        shares = sorted((*self.shares, *missing), key=lambda share: share.broker_name)
        return TopicRoute(self.topic, tuple(shares), self.brokers, names)

    def _may_write(self, name: str) -> bool:
        # Absent brokers stay among the write queues, or all numbers behind theirs would shift.
        return name in self.absent or MASTER in self.broker(name).addresses


def route_request(topic: str) -> Request:
    """Return the question for the route of a topic; TOPIC_NOT_EXIST if a name server has none."""
    return Request(
        RequestCode.GET_ROUTE_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
    )


def cluster_info_request() -> Request:
    """Return the question for all registered brokers."""
    return Request(RequestCode.GET_BROKER_CLUSTER_INFO)


def topic_list_request() -> Request:
    """Return the question for the names of all topics."""
    return Request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAME_SERVER)


def delete_route_request(topic: str) -> Request:
    """Return the request that lets a name server forget a topic."""
    return Request(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, {"topic": topic})


def parse_topic_list(body: Body) -> list[str]:
    """Return the names of all topics, sorted; errors as for `parse_route`."""
    return sorted(set(parse_json(body)["topicList"]))


def parse_route(topic: str, body: Body) -> TopicRoute:
    """Return the route in an answer.

    ValueError, KeyError, TypeError or AttributeError if the body holds none; UnsupportedError for a
    static topic.
    """
    document = parse_json(body)
    if document.get("topicQueueMappingByBroker"):
        raise UnsupportedError(
            f"Topic '{topic}' is a static topic, whose logical queues are spread over brokers;"
            f" rocketmq:// brokers read and write ordinary topics only."
        )
    shares = [
        TopicShare(
            str(entry["brokerName"]),
            int(entry["readQueueNums"]),
            int(entry["writeQueueNums"]),
            int(entry["perm"]),
        )
        for entry in document.get("queueDatas") or ()
    ]
    brokers = [_parse_broker(entry) for entry in document.get("brokerDatas") or ()]
    return TopicRoute(
        topic,
        tuple(sorted(shares, key=lambda share: share.broker_name)),
        {broker.name: broker for broker in brokers},
    )


def parse_cluster_info(body: Body) -> dict[str, BrokerRoute]:
    """Return all registered brokers by name; errors as for `parse_route`."""
    table = parse_json(body).get("brokerAddrTable") or {}
    brokers = [_parse_broker(entry) for entry in table.values()]
    return {broker.name: broker for broker in brokers}


def _parse_broker(entry: Mapping[str, Any]) -> BrokerRoute:
    addresses = {
        int(number): parse_endpoint(str(address))
        for number, address in (entry.get("brokerAddrs") or {}).items()
    }
    return BrokerRoute(str(entry["brokerName"]), str(entry.get("cluster") or ""), addresses)
