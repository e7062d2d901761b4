"""An attacker who fires drawn requests at a server, some at a time, in a process of its own.

    python -m tests.trust.fuzz_attacker SEED AT_ONCE ESTATES

Reads the server's address from its input and prints `ready`. For each number that it reads then, it
fires so many requests, AT_ONCE at a time, and prints one JSON line: how many of each kind, their
statuses, and what was answered that never ought to be, since it began. Threads draw from seeds of
their own; what they are answered, and so what they do next, also depends on the server.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any, cast

from broker_core.service.health import HEALTH_SERVICE
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.append_result import unpack_append_result
from broker_core.wire.core.frames import unpack
from broker_core.wire.core.methods import METHODS, PROTOCOL, SERVICE, Method
from tests.kit.raw_calls import first_chunk
from tests.trust.fuzz_line import PATIENCE_S, SHORT_S, Calls, Standing, Tally
from tests.trust.fuzz_requests import Changes, Drawn, Draws, Known
from tests.trust.line import Answer, Code, Metadata, credentials_of
from tests.trust.requests import GROUP, Requests
from tests.trust.world import Estate, World

ATTACKER = "attacker"
TOPIC = "mal"
WEIGHTS = {
    "fields": 20, "records": 18, "noise": 12, "receipts": 12, "handles": 12, "garbage": 5,
    "stolen": 6, "cancelled": 4, "half-way": 3, "repeats": 2, "listen": 2, "health": 2,
    "waiting": 1, "logins": 1,
}  # fmt: skip
_LARGE = 64 << 20
_LISTENED = (GROUP, GROUP, GROUP, "", "CID_RMQ_SYS_TRANS", "x" * 300, "g\x02HALF_BLOCK\x011")


class Remote:
    """The part of a world (world.py) that valid requests are made with, behind a port."""

    def __init__(self, calls: Calls, tally: Tally, number: int, known: Known) -> None:
        self._calls = calls
        self._tally = tally
        self._numbers = count(1 + number * 10**8)
        hello = pb.HelloRequest(protocol=PROTOCOL, client="c").SerializeToString()
        reply = calls.call(methods.HELLO, credentials_of(ATTACKER), hello).reply
        instance = pb.HelloReply.FromString(reply).instance
        self.process = SimpleNamespace(pool=SimpleNamespace(instance=instance))
        self.estates = {**known.estates, "owner": next(iter(known.estates.values()))}

    def number(self) -> int:
        return next(self._numbers)

    def spare_topic(self, topic: str) -> str:
        return f"{topic}-spare"

    def call(self, method: Method, user: str, *messages: bytes) -> Answer:
        answer = self._calls.call(method, credentials_of(user), *messages)
        self._tally.note("valid", method.name, answer)
        return answer


def remote_world(calls: Calls, tally: Tally, number: int, known: Known) -> World:
    """A world as far as requests need one; numbers of different ones never meet."""
    return cast("World", Remote(calls, tally, number, known))


@dataclass(frozen=True)
class Common:
    """What all threads of an attacker share."""

    known: Known
    tally: Tally
    standing: Standing
    changes: Changes


class Attacker:
    """One thread's attacks."""

    def __init__(self, calls: Calls, random: Random, world: World, common: Common) -> None:
        self._calls = calls
        self._random = random
        self._world = world
        self._known = common.known
        self._tally = common.tally
        self._standing = common.standing
        self._own = Requests(world, ATTACKER, TOPIC)
        self._draws = Draws(random, self._by, common.known, common.changes, TOPIC)
        self._health = [
            calls.channel.stream_stream(f"/{HEALTH_SERVICE}/{name}") for name in ("Check", "Watch")
        ]
        self._odd: dict[str, Callable[[], None]] = {
            "cancelled": self._cancelled,
            "half-way": self._half_way,
            "listen": self._listen,
            "waiting": self._waiting,
            "health": self._health_call,
            "logins": self._login,
        }

    def fire(self) -> None:
        """Fire one request, and what follows from its answer."""
        [kind] = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        # Raised where what a request is to be about could not be prepared.
        with suppress(AssertionError):
            if kind in self._odd:
                self._odd[kind]()
            else:
                self._send(kind, getattr(self._draws, kind)())

    def _send(self, kind: str, drawn: Drawn) -> None:
        answer = self._calls.call(drawn.method, credentials_of(ATTACKER), *drawn.messages)
        self._tally.note(kind, drawn.method.name, answer)
        if drawn.is_theft and answer.is_ok:
            self._tally.complain(f"{kind}: {drawn.method.name} of somebody else's was answered")
        if answer.code is Code.DEADLINE_EXCEEDED and drawn.method not in SHORT_S:
            self._tally.complain(f"{kind}: {drawn.method.name} took {PATIENCE_S} s")
        # Where the request's name is changed, it may be that of an earlier one, which is answered.
        if drawn.method is methods.APPEND and answer.is_ok and kind in ("records", "repeats"):
            self._compare(drawn, answer)
        self._use(drawn, answer)

    def _compare(self, drawn: Drawn, answer: Answer) -> None:
        """Complain of an answer that tells of other records than those that were sent."""
        sent, told = unpack(drawn.messages[0]), unpack_append_result(answer.reply)
        if len(told.sizes) and told.sizes.tolist() != sent.sizes.tolist():
            sizes = f"{told.sizes.tolist()[:9]}, not {sent.sizes.tolist()[:9]}"
            self._tally.complain(f"an append was answered with records of {sizes} bytes")
        elif len(sent.sizes):
            self._known.appended = bytes(sent.records[: int(sent.sizes[0])])

    def _by(self, estate: Estate | None) -> Requests:
        return self._own if estate is None else Requests(self._world, ATTACKER, TOPIC, estate)

    def _use(self, drawn: Drawn, answer: Answer) -> None:
        """Learn from an answer, and go on with what was prepared: only then is it seen."""
        is_decision = drawn.method in (methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.END)
        if is_decision and (answer.is_ok or self._random.random() < 0.05):
            self._own.spent()
        if not answer.is_ok:
            return
        if drawn.method in (methods.PREPARE, methods.PREPARE_CHUNKS):
            prepared = pb.Prepared.FromString(answer.reply)
            self._known.half_offset = prepared.end
            if self._random.random() < 0.5:
                self._commit(drawn, prepared)
        elif drawn.method is methods.PREPARE_MESSAGE:
            half = pb.HalfMessage.FromString(answer.reply)
            self._known.half_offset = half.half_offset + 1
            self._known.physical_offset = half.physical_offset
            if self._random.random() < 0.7:
                request = pb.End(half=half, fate=self._random.choice(("commit", "rollback")))
                self._world.call(methods.END, ATTACKER, request.SerializeToString())

    def _commit(self, drawn: Drawn, prepared: pb.Prepared) -> None:
        head = pb.PrepareHead.FromString(bytes(unpack(drawn.messages[0]).head))
        receipt = pb.Receipt(batch=head.batch, attempt=head.attempt, prepared=[prepared])
        request = self._own.decide(receipt).SerializeToString()
        self._world.call(methods.COMMIT_BATCH, ATTACKER, request)

    # Calls of another manner

    def _cancelled(self) -> None:
        """Begin a good or a bad call, and leave it at once or soon."""
        drawn = self._draws.noise() if self._random.random() < 0.5 else self._draws.valid(*METHODS)
        call = self._begin(drawn, ends=self._random.random() < 0.5)
        if self._random.random() < 0.7:
            time.sleep(self._random.random() * 0.005)
        call.cancel()
        self._tally.note("cancelled", drawn.method.name, Answer(Code.CANCELLED))

    def _half_way(self) -> None:
        """Announce records, send some of them, and then nothing, or the end."""
        method = self._random.choice((methods.APPEND_CHUNKS, methods.PREPARE_CHUNKS))
        total = self._random.choice((0, 100, 1000, 1 << 20, _LARGE, 1 << 30, (1 << 64) - 1))
        topic = self._random.choice((TOPIC, TOPIC, *self._known.estates))
        drawn = Drawn(method, (first_chunk(method.name, total, topic),))
        call = self._begin(drawn, ends=self._random.random() < 0.5, timeout_s=20)
        if total == _LARGE:  # two that stand would take the room of all requests of this user
            time.sleep(self._random.random() * 0.05)
            call.cancel()
        self._standing.add("half-way", method.name, call)

    def _begin(self, drawn: Drawn, *, ends: bool, timeout_s: float = PATIENCE_S) -> Any:
        over = threading.Event()

        def messages() -> Iterator[bytes]:
            yield from drawn.messages
            if not ends:
                over.wait(timeout_s)

        call = self._calls.begin(drawn.method, credentials_of(ATTACKER), messages(), timeout_s)
        call.add_callback(over.set)
        return call

    def _listen(self) -> None:
        group = self._random.choice(_LISTENED)
        request = pb.Listen(group=group).SerializeToString()
        call = self._begin(Drawn(methods.LISTEN, (request,)), ends=True, timeout_s=300)
        self._standing.add("listen", repr(group[:20]), call)

    def _waiting(self) -> None:
        """Follow a queue, or await messages: of the attacker's own, or of somebody else's."""
        topic = self._random.choice((TOPIC, TOPIC, *self._known.estates))
        known = [pb.QueueOffset(queue_id=0, offset=1 << 40)]
        awaiting = pb.Await(topic=topic, queues=known, timeout_ms=10**6).SerializeToString()
        follow = pb.Pull(topic=topic, broker_name="broker-a", follow=True).SerializeToString()
        drawn = self._random.choice(
            (Drawn(methods.AWAIT, (awaiting,)), Drawn(methods.PULL, (follow,)))
        )
        self._standing.add("waiting", drawn.method.name, self._begin(drawn, ends=True))

    def _health_call(self) -> None:
        """Ask for health, or watch it, without credentials."""
        stub = self._random.choice(self._health)
        request = self._random.choice((b"", b"\x0a\x01x", SERVICE.encode(), b"\xff" * 40))
        self._standing.add("health", "health", stub(iter((request,)), timeout=20))

    def _login(self) -> None:
        """Call with credentials that are wrong or missing: nothing is answered."""
        method = self._random.choice(METHODS)
        metadata = self._random.choice(
            (
                [],
                [("authorization", "Bearer alice.wrong")],
                [("authorization", "Bearer nobody.hush")],
                [("authorization", "Bearer alice.")],
                [("authorization", f"Bearer bob.{'x' * 6000}")],
                [("authorization", "Basic YWxpY2U6aHVzaA==")],
                [
                    ("x-rocketmq-access-key-bin", b"alice\xff\x00"),
                    ("x-rocketmq-secret-key-bin", b"\xff\xfe"),
                ],
            )
        )
        given, messages = cast("Metadata", metadata), self._draws.valid(method).messages
        answer = self._calls.call(method, given, *messages, timeout_s=PATIENCE_S)
        self._tally.note("logins", method.name, answer)
        if answer.code not in (Code.UNAUTHENTICATED, Code.UNAVAILABLE):
            self._tally.complain(f"{method.name} with credentials {metadata!r:.80}: {answer}")


class Volleys:
    """All threads of an attacker, and what they know in common."""

    def __init__(self, target: str, seed: int, at_once: int, estates: IO[str]) -> None:
        self._estates = estates
        self._learning = threading.Lock()
        self._unread = ""
        self._known = Known({})
        self._learn()
        self._tally = Tally()
        self._standing = Standing(self._tally)
        lines = [Calls(target) for _ in range((at_once + 1) // 2)]
        worlds = [
            remote_world(lines[number % len(lines)], self._tally, number, self._known)
            for number in range(at_once)
        ]
        changes = Changes.of(Requests(worlds[0], ATTACKER, TOPIC), self._known)
        common = Common(self._known, self._tally, self._standing, changes)
        self._attackers = [
            Attacker(lines[number % len(lines)], Random(f"{seed} {number}"), world, common)
            for number, world in enumerate(worlds)
        ]

    def fire(self, requests: int) -> dict[str, Any]:
        """Fire so many requests, those that others follow from not counted; the report."""
        left, started_s = deque(range(requests)), time.monotonic()
        threads = [
            threading.Thread(target=self._run, args=(attacker, left))
            for attacker in self._attackers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._standing.end()
        return {**self._tally.report(), "seconds": time.monotonic() - started_s}

    def _run(self, attacker: Attacker, left: deque[int]) -> None:
        while left:
            try:
                number = left.popleft()
            except IndexError:  # another thread took the last one
                return
            if number % 16 == 0:
                self._learn()
            try:
                attacker.fire()
            except Exception as error:  # noqa: BLE001 - it would end the thread without a word
                self._tally.complain(f"the attacker failed: {type(error).__name__}: {error}")
                return

    def _learn(self) -> None:
        """Read what the innocents have open now."""
        with self._learning:
            *lines, self._unread = (self._unread + self._estates.read()).split("\n")
        for line in lines:
            estate = estate_of(json.loads(line))
            self._known.estates[estate.user] = estate


def estate_of(told: dict[str, str]) -> Estate:
    """What one line of the file says."""
    return Estate(
        told["user"],
        told["topic"],
        pb.Receipt.FromString(bytes.fromhex(told["receipt"])),
        pb.HalfMessage.FromString(bytes.fromhex(told["half"])),
        told["message_id"],
        (),
    )


def main(seed: str, at_once: str, estates: str) -> None:
    """Attack as often as the input says."""
    target = sys.stdin.readline().strip().removeprefix("grpc://")
    with Path(estates).open() as file:
        volleys = Volleys(target, int(seed), int(at_once), file)
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(volleys.fire(int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
