"""Many producers and followers at once: all of it arrives, once, soon, in bounded memory.

In the long run 64 producers send at a steady rate and 16 followers read along. Nothing is timed
here; how long a message took, and what the broker's memory did, is printed (`-s` shows it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.check.store import check
from tests.load.loading import PRODUCERS, QUEUES, SENT, load


def run(store: Path, processes: int, seconds: float, per_second: float) -> None:
    loaded = load(store, processes, seconds, per_second)

    names = {answer["producer"] for answer in loaded.sent}
    assert len(names) == processes * PRODUCERS
    for number in range(QUEUES):
        ours = [answer["seen"] for answer in loaded.followed if answer["queue"] == number]
        assert len(ours) == processes
        assert all(seen == {name: list(range(loaded.each)) for name in seen} for seen in ours)
        assert all(len(seen) * loaded.each == loaded.total // QUEUES for seen in ours)
    print(
        f"\n{loaded.total} messages from {len(names)} producers to {len(loaded.followed)} "
        f"followers: median {loaded.age_ms(0.5):.1f} ms, p99 {loaded.age_ms(0.99):.1f} ms after "
        f"the append, {loaded.age_ms(0.5, SENT):.1f} and {loaded.age_ms(0.99, SENT):.1f} ms after "
        f"the send began; broker grew by {loaded.grown_bytes / 1e6:.1f} MB"
    )
    assert check(store) == []


def test_a_short_load_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "store", processes=1, seconds=1, per_second=10)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_minute_of_load_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "store", processes=4, seconds=60, per_second=15)
