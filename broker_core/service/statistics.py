"""What a broker holds and does, for those who watch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.broker.statistics import store_numbers
from broker_core.service.auth.identity import Right
from broker_core.wire.core import broker_pb2 as pb

if TYPE_CHECKING:
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.core.rpc import Call
    from broker_core.service.group_commit import GroupCommit


class Statistics:
    """Handler of the call for statistics."""

    def __init__(self, pool: BrokerPool, group_commit: GroupCommit) -> None:
        self._pool = pool
        self._group_commit = group_commit
        self._started_ms = pool.clock_ms()

    def stats(self, request: pb.Empty, call: Call) -> pb.Stats:
        """All numbers, to whoever may administer the broker."""
        del request
        call.identity.require_everywhere(Right.ADMIN)
        writer, commit = self._pool.writer, self._group_commit
        with self._pool.broker() as broker:
            numbers = store_numbers(broker.reader, broker.catalog)
        numbers |= {
            "appendRequests": commit.requests,
            "appendGroups": commit.groups,
            "bytesInFlight": commit.held_bytes,
            "poolBytes": writer.held_bytes,
            "durableLagBytes": writer.durable_lag_bytes,
            "uptimeMs": max(0, self._pool.clock_ms() - self._started_ms),
        }
        return pb.Stats(store=str(writer.root), numbers=numbers)
