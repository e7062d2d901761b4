"""One run of the fuzzer: a server, two innocents, an attacker, and what must hold in the end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core import open_broker
from broker_core.codec.legal_names import is_legal_topic, is_own_topic
from broker_core.store.check.store import check
from tests.kit.raw_calls import Rules, write_credentials
from tests.kit.served import ROOT, ServeCommand
from tests.trust.fuzz_attacker import ATTACKER, TOPIC
from tests.trust.innocents import QUEUES, Innocent, decided_topic, plain_topic

INNOCENTS = ("alice", "bob")
RULES: Mapping[str, Rules] = {
    **{user: [(f"{user}*", "publish"), (f"{user}*", "subscribe")] for user in INNOCENTS},
    ATTACKER: [(f"{TOPIC}*", "publish"), (f"{TOPIC}*", "subscribe")],
}
FAULTS = ("event=bug", "event=service_failed", "Traceback")
"""What the server's log must not hold."""
AT_ONCE = 4
"""Calls that the attacker has under way, without a pause; those that it leaves open come on top."""
MOST_BYTES = 1 << 30
"""Memory that the server may have taken at most."""
_CONFIG = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "autoCreateTopicEnable": "true",
}
_LEVELS = 18


@dataclass(frozen=True)
class Phase:
    """Seconds that the innocents' calls took in a stretch of time, by kind."""

    is_attacked: bool
    took: Mapping[str, Sequence[float]]

    def percentile_ms(self, share: float, kind: str = "send") -> float:
        """The time that this share of calls did not exceed."""
        times = sorted(self.took.get(kind, ()))
        return times[min(len(times) - 1, int(len(times) * share))] * 1000 if times else 0.0


@dataclass
class Fuzzed:
    """What a run was, and how it went."""

    seed: int
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    phases: list[Phase] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    most_bytes: int = 0
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """The figures of a run, in lines."""
        lines = [
            f"seed {self.seed}: {self.kinds.total()} calls in {self.seconds:.0f} s",
            f"server's memory at most {self.most_bytes / 1e6:.0f} MB",
            f"kinds {dict(self.kinds.most_common())}",
            f"answers {dict(self.codes.most_common())}",
            f"innocents' messages {self.messages}, questions {self.asked}",
        ]
        for phase in self.phases:
            figures = ", ".join(
                f"{kind} {len(took)}: {phase.percentile_ms(0.5, kind):.1f}/"
                f"{phase.percentile_ms(0.99, kind):.1f}"
                for kind, took in sorted(phase.took.items())
            )
            lines.append(f"{'attacked' if phase.is_attacked else 'alone'}, p50/p99 ms: {figures}")
        return "\n".join(lines)


class DrainedServer(ServeCommand):
    """A server whose log is read all the time: a full pipe would stop it."""

    def wait_ready(self) -> str:
        address = super().wait_ready()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        return address

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    def _end(self, number: int | None) -> int:
        if number is not None:
            self._process.send_signal(number)
        status = self._process.wait()
        self._reader.join(30)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return status

    @property
    def most_bytes(self) -> int:
        """The most memory that it has had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        [line] = [each for each in status.splitlines() if each.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


class AttackProcess:
    """An attacker in a process of its own (fuzz_attacker.py)."""

    def __init__(self, seed: int, at_once: int, estates: Path, *, is_timed: bool) -> None:
        command = [sys.executable, "-m", "tests.trust.fuzz_attacker"]
        # An attacker has a machine of its own, and here they share one: where time is measured it
        # leaves the cores to the server, and to those who wait for it.
        patience = ["nice", "-n", "10"] if is_timed else []
        self._process = subprocess.Popen(
            [*patience, *command, str(seed), str(at_once), str(estates)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def connect(self, address: str) -> None:
        """Let it connect; estates must be there to be read."""
        assert self._said(address) == "ready\n"

    def fire(self, requests: int) -> Any:
        """Let it fire so many requests; its report on all of them since it began."""
        return json.loads(self._said(str(requests)))

    def end(self) -> None:
        self._process.communicate()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.communicate()

    def _said(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def fuzz(
    base: Path,
    seed: int,
    *,
    requests: int,
    at_once: int = AT_ONCE,
    phases: int = 1,
    quiet_s: float = 0.0,
    check_ms: tuple[int, int] = (6_000, 30_000),
) -> Fuzzed:
    """Fire requests in some phases, each after a quiet time of `quiet_s`; what came of it.

    `check_ms` is the age at which check-back asks about a half message, and the time between its
    rounds.
    """
    fuzzed = Fuzzed(seed)
    folder = base / "a" / "b" / "c" / "d" / "e"
    folder.mkdir(parents=True)
    store, estates = folder / "store", base / "estates"
    estates.touch()
    attacker = AttackProcess(
        seed, at_once, estates, is_timed=quiet_s > 0
    )  # it imports while the server starts
    try:
        server = _serve(base, store, check_ms)
        try:
            address = server.wait_ready()
            innocents = [Innocent(address, user, seed, estates, check_ms[0]) for user in INNOCENTS]
            for innocent in innocents:
                innocent.begin()
            attacker.connect(address)
            _phases(fuzzed, attacker, innocents, [-(-requests // phases)] * phases, quiet_s)
            for innocent in innocents:
                innocent.stop()
            attacker.end()
            for innocent in innocents:
                innocent.end()
            fuzzed.most_bytes = server.most_bytes
        finally:
            status = server.stop()
    finally:
        attacker.kill()
    fuzzed.complaints += [f"the server ended with {status}"] if status else []
    fuzzed.complaints += [line for line in server.lines if any(fault in line for fault in FAULTS)]
    fuzzed.complaints += _aftermath(base, store, innocents, fuzzed)
    return fuzzed


def _serve(base: Path, store: Path, check_ms: tuple[int, int]) -> DrainedServer:
    with open_broker(f"file:{store}", mode="rw", create=True, config=_CONFIG) as broker:
        for user in INNOCENTS:
            broker.create_topic(plain_topic(user), QUEUES)
            broker.create_topic(decided_topic(user), QUEUES)
        broker.create_topic(TOPIC, QUEUES)
    credentials = write_credentials(base / "credentials.json", RULES)
    conf = base / "broker.conf"
    settings = {
        **_CONFIG,
        "grpcCredentialsFile": credentials,
        "transactionTimeOut": check_ms[0],
        "transactionCheckInterval": check_ms[1],
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return DrainedServer(store, "--config", str(conf), "--listen", "127.0.0.1:0")


def _phases(
    fuzzed: Fuzzed,
    attacker: AttackProcess,
    innocents: Sequence[Innocent],
    volleys: Sequence[int],
    quiet_s: float,
) -> None:
    """Let the innocents work alone and beside the attacker, in turn."""
    for requests in volleys:
        if quiet_s:
            started_s = time.monotonic()
            time.sleep(quiet_s)
            fuzzed.phases.append(_phase(innocents, started_s, is_attacked=False))
        started_s = time.monotonic()
        report = attacker.fire(requests)
        fuzzed.phases.append(_phase(innocents, started_s, is_attacked=True))
        fuzzed.seconds += report["seconds"]
    fuzzed.kinds, fuzzed.codes = Counter(report["kinds"]), Counter(report["codes"])
    fuzzed.complaints += report["complaints"]


def _phase(innocents: Sequence[Innocent], started_s: float, *, is_attacked: bool) -> Phase:
    took: dict[str, list[float]] = {}
    for innocent in innocents:
        for kind, calls in list(innocent.took.items()):
            took.setdefault(kind, []).extend(
                seconds for begun_s, seconds in list(calls) if begun_s >= started_s
            )
    return Phase(is_attacked, took)


# Afterwards


def _aftermath(
    base: Path, store: Path, innocents: Sequence[Innocent], fuzzed: Fuzzed
) -> Iterator[str]:
    """Yield what is wrong with a store that its server has closed."""
    with open_broker(f"file:{store}") as broker:
        for innocent in innocents:
            if not innocent.complaints:
                innocent.compare(broker)
            yield from innocent.complaints
            fuzzed.asked[innocent.user] = innocent.asked
            fuzzed.messages[innocent.user] = innocent.later.total() + sum(
                map(len, innocent.sent.values())
            )
    yield from (f"check: {problem}" for problem in check(store))
    yield from _strange_folders(base, store)
    if fuzzed.most_bytes > MOST_BYTES:
        yield f"the server took {fuzzed.most_bytes} bytes of memory"


def _strange_folders(base: Path, store: Path) -> Iterator[str]:
    """Yield what lies outside of the store, and queues that no topic has."""
    expected = {base / name for name in ("estates", "credentials.json", "broker.conf")}
    expected |= {store, *store.parents}
    outside = [path for path in base.rglob("*") if not path.is_relative_to(store)]
    yield from (f"{path} is outside of the store" for path in outside if path not in expected)
    table: Mapping[str, Any] = json.loads((store / "config" / "topics.json").read_text())
    topics = table["topicConfigTable"]
    for topic in topics:
        if not (is_own_topic(topic) or _is_users(topic)):
            yield f"there is a topic {topic!r}"
    for folder in (store / "consumequeue").iterdir():
        queues = topics.get(folder.name, {}).get("writeQueueNums", _LEVELS)
        if not (is_own_topic(folder.name) or _is_users(folder.name)):
            yield f"there are queues of {folder.name!r}"
        for queue in folder.iterdir():
            if not queue.name.isdigit() or int(queue.name) >= queues:
                yield f"there is queue {queue.name} of {folder.name!r}"


def _is_users(topic: str) -> bool:
    known = {made(user) for user in INNOCENTS for made in (plain_topic, decided_topic)}
    return topic in known or (is_legal_topic(topic) and topic.startswith(TOPIC))
