"""Two masters and two name servers, some of which go away while we read and write."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from tests.interop.cluster.masters import batch, two_masters
from tests.interop.cluster.opening import await_count
from tests.interop.cluster.rows import offsets_of, whole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COUNT = 40_000


def test_reads_and_writes_go_on_while_servers_come_and_go(apache: None, tmp_path: Path) -> None:
    with two_masters(tmp_path) as cluster, cluster.open() as ours:
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
        ours.append(batch(np.full(100, ANY_WRITE_QUEUE, dtype=np.int32), "anywhere"))
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
