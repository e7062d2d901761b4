"""The version before this one knows no pending tail: each opens what the other left, or says no.

Its code comes out of the history of this repository, and runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from broker_core import QueueRef, open_broker
from broker_core.store.check.store import check
from tests.kit.fixtures import SIZES
from tests.kit.paths import ROOT
from tests.kit.pending import marker, pending_records, tear

pytestmark = [pytest.mark.crash, pytest.mark.slow]

BEFORE = "0757bf640"
MESSAGES = 60
ALL = sorted(f"m{number}" for number in range(MESSAGES))

# Both versions run it: `write` leaves a store, `r` and `rw` tell what they find in one, as JSON.
PROGRAM = """
import json, os, signal, sys
import broker_core
from broker_core import open_broker
from broker_core.types import BatchRef

root, doing, end = sys.argv[1:]
assert broker_core.__file__.startswith(os.getcwd()), broker_core.__file__
sizes = SIZES

def write():
    broker = open_broker(f"file:{root}", mode="rw", create=True, config=sizes)
    broker.create_topic("t", queues=2)
    for number in range(MESSAGES):
        if number == MESSAGES // 2:
            broker.writer.flush()
        broker.send("t", b"m%d" % number, keys=[f"k{number}"], queue_id=number % 2)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    broker.close()

def bodies(broker):
    found = [broker.read("t", number)["body"].to_pylist() for number in range(2)]
    return [body.decode() for queue in found for body in queue]

def look(mode):
    with open_broker(f"file:{root}", mode=mode, config=sizes) as broker:
        found = {
            "bodies": sorted(bodies(broker)),
            "newest": broker.query("t", f"k{MESSAGES - 1}").num_rows,
            "ends": sorted(maximum for _, maximum in broker.offsets("t").values()),
        }
        if mode == "rw":
            found["next"] = broker.send("t", b"theirs", queue_id=0).queue_offset
        return found

try:
    print(json.dumps(write() if doing == "write" else look(doing)))
except broker_core.BrokerError as error:
    print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
""".replace("SIZES", repr(SIZES)).replace("MESSAGES", repr(MESSAGES))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the code of the version before."""
    command = ["git", "archive", BEFORE, "broker_core"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs git")
    if found.returncode:
        pytest.skip(f"needs commit {BEFORE} in git's history, which a shallow clone lacks")
    directory = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    return directory


def run(code: Path, root: Path, doing: str, end: str = "") -> dict[str, Any] | None:
    """What a version does or finds; None for one that killed itself."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), doing, end],
        cwd=code,
        env=os.environ | {"PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if ended.returncode < 0:
        return None
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] | None = json.loads(ended.stdout)
    return answer


def require_right(found: dict[str, Any] | None, *, more: int = 0) -> None:
    """Fail unless every acknowledged message was found, by its queue and by its key."""
    assert found is not None
    assert "refused" not in found, found
    assert [body for body in found["bodies"] if body != "theirs"] == ALL
    assert (found["newest"], sum(found["ends"])) == (1, MESSAGES + more)
    assert found.get("next") in (None, MESSAGES // 2)


def require_ours(root: Path, *, theirs: int) -> None:
    """Fail unless we find every message, go on behind them, and leave a store that is right."""
    require_right(run(ROOT, root, "r"), more=theirs)
    with open_broker(f"file:{root}", mode="rw", config=SIZES) as broker:
        assert broker.send("t", b"ours", queue_id=0).queue_offset == MESSAGES // 2 + theirs
        assert broker.query("t", "k0").num_rows == 1
    assert check(root) == []


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_we_open_what_the_version_before_left(before: Path, tmp_path: Path, end: str) -> None:
    root = tmp_path / "store"
    run(before, root, "write", end)

    require_ours(root, theirs=0)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("end", ["closed", "killed", "torn", "copied"])
def test_the_version_before_opens_what_we_left(
    before: Path, tmp_path: Path, end: str, mode: str
) -> None:
    root = tmp_path / "store"
    run(ROOT, root, "write", "closed" if end == "closed" else "killed")
    assert pending_records(root) == (0 if end == "closed" else MESSAGES // 2)
    if end == "torn":
        with open_broker(f"file:{root}", mode="rw", config=SIZES) as broker:
            broker.send("t", b"dispatches", queue_id=1)
            shutil.copytree(root, tmp_path / "torn")
        root = tmp_path / "torn"
        tear(root)
        # Before it lies a dispatched log; the append itself was not acknowledged.
        assert (pending_records(root), marker(root).has_pending) == (0, True)
    if end == "copied":
        os.utime(root / "lock")

    require_right(run(before, root, mode))

    require_ours(root, theirs=int(mode == "rw"))


def test_both_write_one_store_in_turns(before: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    run(ROOT, root, "write", "killed")
    with open_broker(f"file:{root}", mode="rw", config=SIZES) as broker:
        for number in range(4):
            assert broker.send("t", b"theirs", queue_id=1).queue_offset == MESSAGES // 2 + number
            assert pending_records(root) == 1
            found = run(before, root, "rw")
            assert found is not None
            assert found["next"] == MESSAGES // 2 + number
            assert broker.offsets("t")[QueueRef("t", "broker-a", 0)][1] == found["next"] + 1
    require_right(run(before, root, "r"), more=8)
    assert check(root) == []


def test_a_reader_of_the_version_before_sees_all_that_was_dispatched_beside_a_server(
    before: Path, tmp_path: Path
) -> None:
    from broker_core.store.settings import StoreSettings
    from broker_core.store.writer import StoreWriter
    from tests.kit.batches import batch, named

    root = tmp_path / "store"
    run(ROOT, root, "write", "killed")
    with StoreWriter.open(root, StoreSettings.load(SIZES), hold=True) as server:
        server.append(batch(named(1), topic="t", queues=1))
        require_right(run(before, root, "r"))
        assert pending_records(root) == 1
        server.flush()
        found = run(before, root, "r")
        assert found is not None
        assert sum(found["ends"]) == MESSAGES + 1
