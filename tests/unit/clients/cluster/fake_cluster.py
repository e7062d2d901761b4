"""A small cluster in this process: one name server, and brokers that hold topics in memory.

It answers as real brokers do, with their limits on what a pull gives, and it can be told to fail.
"""

from __future__ import annotations

import json
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import cycle
from types import TracebackType
from typing import Any, Self

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.hosts import pack_host
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.record import Record, encode_record
from broker_core.wire.remoting.command import Command, RequestCode, ResponseCode
from tests.unit.clients.cluster.peer import Answer, Peer, answer

Fault = Callable[[Command], Iterable[Answer] | None]

# Quick to give up and quick to try again: tests are not to wait.
SETTINGS = ClusterSettings(
    request_timeout_ms=2_000, pull_timeout_ms=2_000, send_timeout_ms=2_000, connect_timeout_ms=1_000
)


class FakeBroker:
    """One broker: queues of records by topic, and how many messages it grants pull after pull."""

    def __init__(self, name: str, topics: dict[str, int], grants: Iterable[int] = (32,)) -> None:
        self.name = name
        self.topics = topics
        self._grants = cycle(grants)
        self.queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.minimum: dict[tuple[str, int], int] = defaultdict(int)
        self.groups: dict[tuple[str, str, int], int] = {}
        self.faults: list[Fault] = []
        self._physical = 0
        self._lock = threading.Lock()
        self.peer = Peer(self._handle)
        self.store_host = pack_host(*self.peer.endpoint)

    def put(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"") -> Record:
        """Store one message, as a producer's."""
        with self._lock:
            queue = self.queues[topic, queue_id]
            record = Record(
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(queue),
                physical_offset=self._physical,
                body=body,
                properties=properties,
                store_host=self.store_host,
                store_timestamp=1000 + len(queue),
            )
            self._physical += len(encode_record(record))
            queue.append(record)
            return record

    def fill(self, topic: str, queue_id: int, count: int) -> None:
        """Store messages with bodies m0, m1, … and tags A and B in turn."""
        for number in range(count):
            tag = b"TAGS\x01A\x02" if number % 2 else b"TAGS\x01B\x02"
            self.put(topic, queue_id, b"m%d" % number, tag)

    def _handle(self, request: Command) -> Iterable[Answer]:
        while self.faults:
            answers = self.faults.pop(0)(request)
            if answers is not None:
                return answers
        handlers = {
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.QUERY_CONSUMER_OFFSET: self._group_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
        }
        handler = handlers.get(RequestCode(request.code))
        return [handler(request) if handler else answer(request, 3, remark="unknown")]

    def _key(self, request: Command) -> tuple[str, int]:
        return request.ext["topic"], int(request.ext["queueId"])

    def _min_offset(self, request: Command) -> Command:
        return answer(request, ext={"offset": str(self.minimum[self._key(request)])})

    def _max_offset(self, request: Command) -> Command:
        return answer(request, ext={"offset": str(len(self.queues[self._key(request)]))})

    def _pull(self, request: Command) -> Command:
        key, start = self._key(request), int(request.ext["queueOffset"])
        low, high = self.minimum[key], len(self.queues[key])
        if start < low or start > high:
            moved = low if start < low else high
            return self._pulled(request, ResponseCode.PULL_OFFSET_MOVED, moved)
        if start == high:
            return self._pulled(request, ResponseCode.PULL_NOT_FOUND, start)
        wanted = min(next(self._grants), int(request.ext["maxMsgNums"]))
        scanned = max(800, int(request.ext["maxMsgNums"]))
        found: list[bytes] = []
        at = start
        while at < min(high, start + scanned) and len(found) < wanted:
            record = self.queues[key][at]
            if self._matches(record, request.ext["subscription"]):
                found.append(encode_record(record))
            at += 1
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._pulled(request, code, at, b"".join(found))

    def _pulled(self, request: Command, code: int, next_offset: int, body: bytes = b"") -> Command:
        key = self._key(request)
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.minimum[key]),
            "maxOffset": str(len(self.queues[key])),
        }
        return answer(request, code, ext, body)

    def _matches(self, record: Record, expression: str) -> bool:
        """By hash alone, as brokers do it."""
        if expression == "*":
            return True
        hashes = {java_hash(tag.strip()) for tag in expression.split("||")}
        return java_hash(record.property_map.get("TAGS", "")) in hashes

    def _send(self, request: Command) -> Command:
        ext = request.ext
        record = self.put(ext["b"], int(ext["e"]), bytes(request.body), ext.get("i", "").encode())
        return self._stored(request, [record])

    def _send_batch(self, request: Command) -> Command:
        assert request.ext["m"] == "true", "or it would be stored as one message"
        records, body, at = [], bytes(request.body), 0
        while at < len(body):
            size, _, _, _, length = struct.unpack_from(">iiiii", body, at)
            properties = body[at + 22 + length : at + size]
            records.append(
                self.put(
                    request.ext["b"],
                    int(request.ext["e"]),
                    body[at + 20 : at + 20 + length],
                    properties,
                )
            )
            at += size
        return self._stored(request, records)

    def _stored(self, request: Command, records: list[Record]) -> Command:
        ext = {
            "queueId": str(records[0].queue_id),
            "queueOffset": str(records[0].queue_offset),
            "msgId": ",".join(record.offset_id for record in records),
            "transactionId": parse_properties(records[0].properties).get("UNIQ_KEY", ""),
        }
        return answer(request, ext=ext)

    def _query(self, request: Command) -> Command:
        """Everything of the topic: hashes collide as badly as they can."""
        topic = request.ext["topic"]
        found = [
            record for (name, _), queue in self.queues.items() for record in queue if name == topic
        ]
        if not found:
            return answer(request, ResponseCode.QUERY_NOT_FOUND)
        return answer(request, body=b"".join(encode_record(record) for record in found))

    def _view(self, request: Command) -> Command:
        for record in (record for queue in self.queues.values() for record in queue):
            if record.physical_offset == int(request.ext["offset"]):
                return answer(request, body=encode_record(record))
        return answer(request, ResponseCode.SYSTEM_ERROR, remark="can not find message")

    def _search(self, request: Command) -> Command:
        """The middle of the queue, whatever the time: release 4 is not much better."""
        return answer(request, ext={"offset": str(len(self.queues[self._key(request)]) // 2)})

    def _group_offset(self, request: Command) -> Command:
        found = self.groups.get((request.ext["consumerGroup"], *self._key(request)))
        if found is None:
            return answer(request, ResponseCode.QUERY_NOT_FOUND)
        return answer(request, ext={"offset": str(found)})

    def _commit(self, request: Command) -> Command:
        key = (request.ext["consumerGroup"], *self._key(request))
        self.groups[key] = int(request.ext["commitOffset"])
        return answer(request)


class FakeCluster:
    """Brokers, and a name server that knows those of them that are in `registered`."""

    def __init__(self, *brokers: FakeBroker) -> None:
        self.brokers = brokers
        self.registered = {broker.name for broker in brokers}
        self.name_server = Peer(self._handle)

    def open(self, mode: str = "rw", **settings: Any) -> ClusterBroker:
        """A client of this cluster."""
        servers = [self.name_server.endpoint]
        return ClusterBroker("rocketmq://fake", servers, replace(SETTINGS, **settings), mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.name_server.close()
        for broker in self.brokers:
            broker.peer.close()

    def _handle(self, request: Command) -> Iterable[Answer]:
        present = [broker for broker in self.brokers if broker.name in self.registered]
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            # The form that real name servers use: bare integers as keys.
            rows = ",".join(
                f'"{broker.name}":{{"brokerAddrs":{{0:"{broker.peer.endpoint}"}},'
                f'"brokerName":"{broker.name}","cluster":"C"}}'
                for broker in present
            )
            return [answer(request, body=f'{{"brokerAddrTable":{{{rows}}}}}'.encode())]
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAME_SERVER:
            names = sorted({topic for broker in present for topic in broker.topics})
            return [answer(request, body=json.dumps({"topicList": names}).encode())]
        holders = [broker for broker in present if request.ext["topic"] in broker.topics]
        if not holders:
            return [answer(request, ResponseCode.TOPIC_NOT_EXIST, remark="no route")]
        return [answer(request, body=json.dumps(_route(holders, request.ext["topic"])).encode())]


def _route(holders: list[FakeBroker], topic: str) -> dict[str, object]:
    return {
        "brokerDatas": [
            {
                "brokerName": broker.name,
                "cluster": "C",
                "brokerAddrs": {"0": str(broker.peer.endpoint)},
            }
            for broker in holders
        ],
        "queueDatas": [
            {
                "brokerName": broker.name,
                "perm": 6,
                "readQueueNums": broker.topics[topic],
                "writeQueueNums": broker.topics[topic],
            }
            for broker in holders
        ],
    }
