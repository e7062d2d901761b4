"""Readers beside a writer in another process: they see a prefix of what was sent, and only that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker_core.errors import OffsetRangeError
from tests.kit import stores

MESSAGES = 300
QUEUES = 3

WRITER = """
import sys
from pathlib import Path
from tests.kit import stores

with stores.create(Path(sys.argv[1])) as broker:
    for number in range({messages}):
        broker.send("orders", b"%d" % number * 80, queue_id=number % {queues}, keys=["k"])
        if number % 30 == 29 and sys.argv[2] == "expire":
            broker.delete_before(65536 * (number // 120))
"""


@contextmanager
def writing(root: Path, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sends messages; it has ended when the block is left."""
    with stores.create(root) as broker:
        broker.create_topic("orders", queues=QUEUES)
    program = WRITER.format(messages=MESSAGES, queues=QUEUES)
    with subprocess.Popen([sys.executable, "-c", program, str(root), kind]) as writer:
        try:
            yield writer
        finally:
            writer.terminate()


def expected(queue_id: int, start: int, end: int) -> list[bytes]:
    return [b"%d" % (number * QUEUES + queue_id) * 80 for number in range(start, end)]


@pytest.mark.parametrize("is_kept_open", [True, False], ids=["kept-open", "opened-anew"])
def test_a_reader_sees_a_growing_prefix(tmp_path: Path, is_kept_open: bool) -> None:
    root = tmp_path / "store"
    seen = [0] * QUEUES

    with writing(root, "grow") as writer, ExitStack() as opened:
        broker = opened.enter_context(stores.open_r(root))
        is_last_look = False
        while not is_last_look:
            is_last_look = writer.poll() is not None
            for queue, (minimum, maximum) in broker.offsets("orders").items():
                number = queue.queue_id
                assert minimum == 0
                assert maximum >= seen[number]
                read = broker.read("orders", number, seen[number], maximum, columns=["body"])
                assert read["body"].to_pylist() == expected(number, seen[number], maximum)
                seen[number] = maximum
            if not is_kept_open:
                opened.close()
                broker = opened.enter_context(stores.open_r(root))
        assert writer.returncode == 0

    assert seen == [MESSAGES // QUEUES] * QUEUES


def test_a_reader_survives_files_that_are_deleted_under_it(tmp_path: Path) -> None:
    root = tmp_path / "store"

    with writing(root, "expire") as writer, stores.open_r(root) as broker:
        while writer.poll() is None:
            for queue, (minimum, maximum) in broker.offsets("orders").items():
                number = queue.queue_id
                try:
                    read = broker.read("orders", number, minimum, maximum, columns=["body"])
                except OffsetRangeError:
                    continue  # the files were deleted between the two calls
                assert read["body"].to_pylist() == expected(number, minimum, maximum)
        bounds = list(broker.offsets("orders").values())
        assert writer.returncode == 0

    assert [maximum for _, maximum in bounds] == [MESSAGES // QUEUES] * QUEUES
    assert min(minimum for minimum, _ in bounds) > 0
