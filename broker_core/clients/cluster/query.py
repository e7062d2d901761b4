"""Queries for messages of a cluster without reading queues: by key, by unique id, by offset id.

Brokers look keys up by hash, so texts are compared here. Both kinds of message id look alike: an id
is tried as an offset id first, at the broker that has the address in it, and as a unique id after
that. Only registered brokers are asked, whatever address an id holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.clients.cluster.client_instance import ClientInstance, broker_label
from broker_core.clients.cluster.pull.records import record_frames
from broker_core.codec.decode import decode, property_columns
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hosts import host_text
from broker_core.codec.ids import parse_offset_id
from broker_core.codec.legal_names import check_topic
from broker_core.codec.property_names import (
    DEAD_LETTER_PREFIX,
    KEY_SEPARATOR,
    KEYS,
    RETRY_PREFIX,
    UNIQ_KEY,
    is_system_topic,
)
from broker_core.codec.schema import ALL_COLUMNS, schema_of
from broker_core.errors import MessageNotFoundError
from broker_core.wire.remoting.command import ResponseCode
from broker_core.wire.remoting.headers import query_message_request, view_message_request
from broker_core.wire.remoting.route import parse_endpoint
from broker_core.wire.remoting.status import refusal


class ClusterQuery:
    """Questions to the brokers' indexes, by the names that the cluster knows.

    `await_visible` waits until what was sent to a topic can be found.
    """

    def __init__(self, instance: ClientInstance, await_visible: Callable[[str], None]) -> None:
        self._instance = instance
        self._await_visible = await_visible

    def by_key(self, topic: str, key: str, limit: int) -> pa.Table:
        """Return messages with a key or a unique key, all columns, by physical offset."""
        route = self._instance.routes.find(check_topic(topic), max_age_s=0.0)
        self._await_visible(topic)
        tables = [self._by_key_on(share.broker_name, topic, key, limit) for share in route.shares]
        found = pa.concat_tables([_empty(), *tables])
        return found.sort_by([("physicalOffset", "ascending")]).slice(0, limit)

    def by_id(self, message_id: str, topics: Sequence[str]) -> pa.Table:
        """Return the message of some topics with an offset id or a unique id.

        MessageNotFoundError if it is gone, or never was. Copies of a message (half, delayed,
        retried) share its unique id: then the one in an ordinary topic is meant, and of several
        the first that was stored.
        """
        found = self._at_offset_id(message_id)
        if found is not None and found.column("topic")[0].as_py() in topics:
            return found
        # Brokers look unique keys up by topic, so every topic is asked, ordinary ones first.
        for topic in sorted(topics, key=_plainness):
            copies = self._by_unique_id(topic, message_id)
            if copies is not None:
                return copies
        raise MessageNotFoundError(
            f"No message with id {message_id} is on the cluster of {self._instance.name_servers}:"
            f" neither a unique id nor the offset id of a record that is still there."
        )

    def _by_unique_id(self, topic: str, message_id: str) -> pa.Table | None:
        route = self._instance.name_servers.route(topic) if message_id else None
        self._await_visible(topic)
        for share in route.shares if route else ():
            found = self._by_key_on(share.broker_name, topic, message_id, 32)
            copies = found.filter(pc.equal(found["msgId"], message_id))
            if len(copies):
                return copies.slice(0, 1)
        return None

    def _by_key_on(self, broker_name: str, topic: str, key: str, limit: int) -> pa.Table:
        request = query_message_request(topic, broker_name, key, limit)
        peer, (answer,) = self._instance.ask_master(topic, broker_name, [request])
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return _empty()
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, peer)
        frames = record_frames(answer.body, peer)
        return _table(_with_key(frames, key), topic, broker_name)

    def _at_offset_id(self, message_id: str) -> pa.Table | None:
        parsed = parse_offset_id(message_id)
        if parsed is None:
            return None
        store_host, physical_offset = parsed
        try:
            server = parse_endpoint(host_text(store_host))
        except ValueError:
            return None  # The bytes of the port are not one: this is a unique id.
        for broker in self._instance.name_servers.cluster().values():
            if server not in broker.addresses.values():
                continue
            request = view_message_request(physical_offset)
            answer = self._instance.connections.call(server, request)
            if answer.code == ResponseCode.SUCCESS:
                frames = record_frames(answer.body, broker_label(broker.name, server))
                table = _table(frames, None, broker.name)
                # The record there may be another one: files expire, and stores are replaced.
                is_named = pc.equal(table["offsetMsgId"], message_id.upper())
                return table.filter(is_named) if pc.all(is_named).as_py() else None
        return None


def _with_key(frames: FrameBatch, key: str) -> FrameBatch:
    """Return the records that have this very key or unique key, not only its hash."""
    columns = property_columns(frames, (KEYS, UNIQ_KEY))
    wanted = [
        unique == key or key in (keys or "").split(KEY_SEPARATOR)
        for keys, unique in zip(
            columns[KEYS].to_pylist(), columns[UNIQ_KEY].to_pylist(), strict=True
        )
    ]
    return frames.select(np.array(wanted, dtype=np.bool_))


def _table(frames: FrameBatch, topic: str | None, broker_name: str) -> pa.Table:
    batch = decode(frames, ALL_COLUMNS, broker_name)
    table = pa.Table.from_batches([batch], schema=schema_of(ALL_COLUMNS))
    return table if topic is None else table.filter(pc.equal(table["topic"], topic))


def _empty() -> pa.Table:
    return schema_of(ALL_COLUMNS).empty_table()


def _plainness(topic: str) -> tuple[int, str]:
    is_copy = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return (1 if is_copy else 2 if is_system_topic(topic) else 0, topic)
