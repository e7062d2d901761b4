"""Two masters and two name servers, some of which go away while we read and write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.clients.remoting.cluster import ClusterBroker
from broker_core.clients.remoting.send_plan import ANY_LANE
from broker_core.codec.outgoing import Outgoing, join_properties
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from tests.interop.kit.servers import Broker, NameServer
from tests.interop.remoting.opening import await_count, opened
from tests.interop.remoting.rows import offsets_of, whole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COUNT = 40_000


@dataclass
class Cluster:
    """Two of each; a master that was killed can be started again, at another address."""

    name_servers: tuple[NameServer, NameServer]
    masters: dict[str, Broker]
    scratch: Path

    def start(self, name: str) -> None:
        addresses = ";".join(server.address for server in self.name_servers)
        settings = {"brokerName": name, "namesrvAddr": addresses}
        self.masters[name] = Broker(
            self.scratch / name, self.name_servers[0], self.scratch, settings
        )

    def open(self, brokers: int = 2) -> ClusterBroker:
        return opened(*(server.address for server in self.name_servers), brokers=brokers)


@pytest.fixture
def cluster(apache: None, tmp_path: Path) -> Iterator[Cluster]:
    with NameServer(tmp_path) as first, NameServer(tmp_path) as second:
        found = Cluster((first, second), {}, tmp_path)
        try:
            for name in ("broker-a", "broker-b"):
                found.start(name)
            yield found
        finally:
            for process in (*found.masters.values(), first, second):
                process.kill()


def batch(lanes: np.ndarray[tuple[int], np.dtype[np.int32]], prefix: str) -> Outgoing:
    count = len(lanes)
    keys = pa.array([f"{prefix}-{number}" for number in range(count)])
    return Outgoing(
        topics=["Spread"],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=lanes,
        bodies=pa.array([b"body %d" % number for number in range(count)], type=pa.binary()),
        properties=join_properties([("UNIQ_KEY", keys)], count),
    )


def test_reads_and_writes_go_on_while_servers_come_and_go(cluster: Cluster) -> None:
    with cluster.open() as ours:
        created = ours.create_topic("Spread", 4)
        assert [str(queue) for queue in created.queues] == [
            "Spread/broker-a/0",
            "Spread/broker-a/1",
            "Spread/broker-b/0",
            "Spread/broker-b/1",
        ]
        ours.append(batch(np.arange(COUNT, dtype=np.int32) % 4, "first"))
        await_count(ours, "Spread", COUNT)
        before = ours.offsets("Spread")
        on_b = QueueRef("Spread", "broker-b", 0)

        # A reader is in the middle of a queue when its master, and a name server, die.
        batches = ours.pull(_all(on_b, before), batch_rows=1000)
        read = next(batches).offsets.tolist()
        cluster.masters["broker-b"].kill()
        cluster.name_servers[0].kill()

        # The other master is read, and takes what may go anywhere; nothing is forgotten.
        on_a = QueueRef("Spread", "broker-a", 0)
        assert offsets_of(ours, _all(on_a, before)) == list(range(COUNT // 4))
        assert ours.offsets("Spread") == before
        ours.append(batch(np.full(100, ANY_LANE, dtype=np.int32), "anywhere"))
        assert {
            queue.broker_name
            for queue, bounds in ours.offsets("Spread").items()
            if bounds != before[queue]
        } == {"broker-a"}

        # The reader waits until the master is back, and so does a write to one of its queues.
        restart = threading.Thread(target=cluster.start, args=("broker-b",))
        restart.start()
        ours.append(batch(np.full(100, 3, dtype=np.int32), "waiting"))
        read += [offset for frames in batches for offset in frames.offsets.tolist()]
        restart.join()

        assert read == list(range(COUNT // 4))
        await_count(ours, "Spread", COUNT + 200)
        assert sum(map(len, whole(ours, "Spread").values())) == COUNT + 200
        assert ours.possible_duplicates == 0

        # Queues that are added are found.
        ours.add_queues("Spread", 6)
        assert [len(ours.offsets("Spread")), ours.describe("Spread").write_queues] == [6, 6]


def _all(
    queue: QueueRef, bounds: dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]
) -> OffsetRange:
    return OffsetRange(queue, *bounds[queue])
