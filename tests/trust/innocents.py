"""Innocents: users who work steadily beside an attacker, each with a model of what must be visible.

Each works over `grpc://` and without retries, so that a single refusal is seen. What they have open
(a batch, a half message) is written to a file, line by line: an attacker who reads it knows more
than one who guesses.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from broker_core import open_broker
from broker_core.api import Broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.codec.decode import decode
from broker_core.codec.ids import MAKER_CHARS, UniqueIds
from broker_core.errors import BrokerError, IllegalTransitionError
from broker_core.types import BatchRef, HalfMessage, LocalTransactionState, QueueRef, Receipt
from broker_core.wire.core.transactions import pack_half, pack_receipt
from tests.kit.batches import batch as plain_batch
from tests.kit.raw_calls import wait_until
from tests.kit.transactions import outgoing
from tests.trust.requests import CONSUMERS, GROUP, OWNER_ID
from tests.trust.world import secret_of

QUEUES = 2
STEP_S = 0.04
"""Time between two deeds of one innocent: most of the server's time is left to others."""
_COMMIT, _ROLLBACK = LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK


def plain_topic(user: str) -> str:
    """The topic of messages that one thread sends: their order is known."""
    return user


def decided_topic(user: str) -> str:
    """The topic of what is visible later than it is sent: transactions and delayed messages."""
    return f"{user}-later"


class Innocent:
    """One user at work in a thread; `complaints` says what went wrong.

    `sent` has, for each queue of the plain topic, the bodies that it must hold, in order. `later`
    counts those of the other topic. `took` has the start and the seconds of each call by its kind.
    Check-back takes a half message over that is older than `check_after_ms`.
    """

    def __init__(
        self, address: str, user: str, seed: int, estates: Path, check_after_ms: int
    ) -> None:
        self.user = user
        self.complaints: list[str] = []
        self.took: dict[str, list[tuple[float, float]]] = {}
        self.sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.later: Counter[bytes] = Counter()
        self.asked = 0
        self._estates = estates
        self._check_after_s = check_after_ms / 1000
        self._random = Random(f"{seed} {user}")
        self._ids = UniqueIds()
        self._number = 0
        self._message_id = ""
        self._fates: dict[bytes, LocalTransactionState] = {}
        self._open: HalfMessage | None = None
        self._receipt: Receipt | None = None
        self._batch = self._aborted = 0
        self._to_commit: tuple[Receipt, list[bytes]] | None = None
        self._to_abort: Receipt | None = None
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._steps = 0
        self._is_over = threading.Event()
        self._broker = cast("GrpcBroker", _open(address, user))
        self._reader = cast("GrpcBroker", _open(address, user))
        self._followed: list[bytes] = []
        self._threads = [
            threading.Thread(target=self._watched, args=(work,), daemon=True)
            for work in (self._work, self._follow)
        ]

    def begin(self) -> None:
        """Begin to work; an estate is written and half messages are open when this returns."""
        self._broker.transactions.listen(GROUP, self)
        for deed in (self._send, self._prepare_batch, self._leave_open, self._single):
            deed()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_over.set()

    def end(self) -> None:
        """Wait until all that is to be visible is; `complaints` is whole then."""
        self.stop()
        self._threads[0].join(60)
        if not self.complaints:
            with self._complaining():
                self._settle()
        self._broker.close()
        self._reader.close()
        self._threads[1].join(60)

    def compare(self, broker: Broker) -> None:
        """Complain of what a broker shows of this user's that is not in the model."""
        for queue_id, bodies in self.sent.items():
            found = bodies_of(broker, plain_topic(self.user), queue_id)
            if found != bodies:
                lost, more = Counter(bodies) - Counter(found), Counter(found) - Counter(bodies)
                self._complain(f"queue {queue_id} misses {_few(lost)} and has {_few(more)}")
        topic = decided_topic(self.user)
        shown = Counter(
            body for queue_id in range(QUEUES) for body in bodies_of(broker, topic, queue_id)
        )
        if shown != self.later:
            lost, more = self.later - shown, shown - self.later
            self._complain(f"{topic} misses {_few(lost)} and has {_few(more)}")

    # Threads

    def _watched(self, work: Callable[[], None]) -> None:
        with self._complaining():
            work()

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, an innocent suffered it
            self._complain(f"{type(error).__name__} at step {self._steps}: {error}")

    def _complain(self, what: str) -> None:
        self.complaints.append(f"{self.user}: {what}")

    def _work(self) -> None:
        deeds = self._deeds()
        next_s = time.monotonic()
        while not self._is_over.is_set():
            # A late one does not hurry: a burst would be load of another kind.
            next_s = max(next_s + STEP_S, time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))
            self._steps += 1
            while self._due and self._due[0][0] <= self._steps:
                self._due.popleft()[1]()
            next(deeds)()

    def _deeds(self) -> Iterator[Callable[[], None]]:
        """Yield deeds in rounds of twenty, each round in another order."""
        often = [self._send] * 10 + [self._append] + [self._batch_on] * 3 + [self._abort_on]
        often += [self._replay, self._single, self._single, self._look]
        rounds = 0
        while True:
            seldom = (self._delay, self._leave_open, self._delay, self._keep_offset)[rounds % 4]
            deeds = [*often, seldom]
            self._random.shuffle(deeds)
            yield from deeds
            rounds += 1

    def _follow(self) -> None:
        queue = QueueRef(plain_topic(self.user), "broker-a", 0)
        try:
            for frames in self._reader.follow(queue, 0):
                self._followed += decode(frames, ["body"]).column("body").to_pylist()
        except BrokerError:
            if not self._is_over.is_set():
                raise

    # Deeds

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        self.took.setdefault(kind, []).append((started_s, time.monotonic() - started_s))

    def _body(self, what: str) -> bytes:
        self._number += 1
        return secret_of(self.user) + f": {self._number}, {what}".encode()

    def _send(self) -> None:
        body, queue_id = self._body("sent"), self._random.randrange(QUEUES)
        with self._timed("send"):
            result = self._broker.send(
                plain_topic(self.user), body, queue_id=queue_id, keys=f"k{self._number}", tags="A"
            )
        self.sent[queue_id].append(body)
        self._message_id = result.offset_msg_id

    def _append(self) -> None:
        bodies = [self._body("appended") for _ in range(5)]
        first = self._number
        texts = [body.decode() for body in bodies]
        with self._timed("append"):
            self._broker.append(plain_batch(texts, topic=plain_topic(self.user), first=first))
        for row, body in enumerate(bodies):
            self.sent[(first + row) % QUEUES].append(body)

    def _batch_on(self) -> None:
        """Prepare the next batch, or commit the one that is prepared."""
        if self._to_commit is None:
            self._prepare_batch()
            return
        (receipt, bodies), self._to_commit = self._to_commit, None
        outcome = self._commit(receipt, "first")
        if outcome:
            self._complain(f"{receipt.batch} was committed by {outcome}")
        self.later.update(bodies)
        if not self._broker.transactions.is_batch_decided(receipt.batch):
            self._complain(f"{receipt.batch} is committed, and not decided")

    def _prepare_batch(self) -> None:
        self._batch += 1
        bodies = [self._body(f"batch {self._batch}") for _ in range(3)]
        receipt = self._prepared(BatchRef(OWNER_ID, "", self._batch), bodies)
        self._to_commit = (receipt, bodies)

    def _replay(self) -> None:
        """Write the newest committed batch again, as after a crash: nothing of it is added."""
        number = self._batch if self._to_commit is None else self._batch - 1
        if number < 1:
            return
        receipt = self._prepared(BatchRef(OWNER_ID, "", number), [self._body("replayed")])
        if self._commit(receipt, "second") != "first":
            self._complain(f"{receipt.batch} was committed twice")

    def _commit(self, receipt: Receipt, run: str) -> str:
        """Commit a batch; the run that had committed it before, empty if none had."""
        number = receipt.batch.number
        with self._timed("commit"):
            outcome = self._broker.transactions.commit_batch(
                receipt.batch,
                [receipt],
                run=run,
                fingerprint=f"rows of {number}",
                previous=number - 1 if number > 1 else None,
            )
        return outcome.run if outcome.is_repeat else ""

    def _abort_on(self) -> None:
        """Prepare a batch of another stream, or abort the one that is prepared."""
        if self._to_abort is None:
            self._aborted += 1
            batch = BatchRef(OWNER_ID, "aborted", self._aborted)
            self._to_abort = self._prepared(batch, [self._body("aborted")])
            return
        receipt, self._to_abort = self._to_abort, None
        with self._timed("abort"):
            self._broker.transactions.abort_batch(receipt.batch, [receipt])

    def _prepared(self, batch: BatchRef, bodies: list[bytes]) -> Receipt:
        # A maker each, as tasks have: two attempts never share an id.
        attempt = UniqueIds().make(1)[0, :MAKER_CHARS].tobytes().decode("ascii")
        messages = outgoing(decided_topic(self.user), bodies, attempt, queues=QUEUES)
        with self._timed("prepare"):
            prepared = self._broker.transactions.prepare_batch(
                batch, attempt, messages, is_first=True
            )
        self._receipt = Receipt(batch, attempt, (prepared,))
        self._tell()
        return self._receipt

    def _single(self) -> None:
        """Prepare one message, and end it a few deeds later."""
        fate = self._random.choice((_COMMIT, _ROLLBACK))
        body = self._body(f"single, {fate.value}")
        half, prepared_s = self._half(body, fate), time.monotonic()

        def end() -> None:
            try:
                with self._timed("end"):
                    self._broker.transactions.end(half, fate)
            except IllegalTransitionError:
                # Check-back has put it back and asks about it: that is no refusal.
                if time.monotonic() - prepared_s < self._check_after_s:
                    raise

        self._due.append((self._steps + self._random.randrange(1, 4), end))

    def _leave_open(self) -> None:
        """Prepare one message that only check-back ends."""
        self._half(self._body("asked about"), _COMMIT)

    def _half(self, body: bytes, fate: LocalTransactionState) -> HalfMessage:
        self._fates[body] = fate
        with self._timed("prepare one"):
            half = self._broker.transactions.prepare(
                decided_topic(self.user), body, group=GROUP, keys=f"k{self._number}"
            )
        if fate is _COMMIT:
            self.later[body] += 1
        self._open = half
        self._tell()
        return half

    def _delay(self) -> None:
        body = self._body("delayed")
        with self._timed("send delayed"):
            self._broker.send(decided_topic(self.user), body, delay_level=1, queue_id=1)
        self.later[body] += 1

    def _look(self) -> None:
        """Read the last message back, by its id and from its queue."""
        queue_id = self._random.randrange(QUEUES)
        expected, topic = self.sent[queue_id][-1:], plain_topic(self.user)
        with self._timed("read"):
            end = len(self.sent[queue_id])
            rows = self._broker.read(topic, queue_id, max(0, end - 1), end, columns=["body"])
        if rows["body"].to_pylist() != expected:
            self._complain(f"read {rows['body'].to_pylist()}, not {expected}")
        found = self._broker.message(self._message_id)["body"].to_pylist()
        if len(found) != 1 or not found[0].startswith(secret_of(self.user)):
            self._complain(f"message {self._message_id} is {found}")

    def _keep_offset(self) -> None:
        topic, offset = plain_topic(self.user), len(self.sent[0])
        self._broker.commit_offset(CONSUMERS, topic, 0, offset)
        found = list(self._broker.consumer_offsets(CONSUMERS, topic).values())
        if found != [offset]:
            self._complain(f"the group's offsets are {found}, not {offset}")

    # Listening

    def execute_local_transaction(self, half: Any, body: bytes, properties: Any) -> Any:
        raise NotImplementedError

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Any
    ) -> LocalTransactionState:
        """Answer a question of check-back."""
        self.asked += 1
        if body not in self._fates:
            self._complain(f"was asked about {half.topic}: {body[:60]!r}")
        return self._fates.get(body, LocalTransactionState.UNKNOWN)

    # The end

    def _tell(self) -> None:
        """Write down what is open, for whoever reads it."""
        if self._receipt is None or self._open is None:
            return
        estate = {
            "user": self.user,
            "topic": decided_topic(self.user),
            "receipt": pack_receipt(self._receipt).SerializeToString().hex(),
            "half": pack_half(self._open).SerializeToString().hex(),
            "message_id": self._message_id,
        }
        with self._estates.open("a") as file:
            file.write(json.dumps(estate) + "\n")

    def _settle(self) -> None:
        """Decide all that is open, and wait for what comes later."""
        while self._due:
            self._due.popleft()[1]()
        if self._to_commit is not None:
            self._batch_on()
        topic, wanted = decided_topic(self.user), self.later.total()
        self._wait(lambda: _count(self._broker, topic) >= wanted)
        self._wait(lambda: len(self._followed) >= len(self.sent[0]))
        if self._followed != self.sent[0]:
            self._complain("what was followed is not what was sent")
        self.compare(self._broker)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        # What does not come is told of by the comparison, with what it is.
        try:
            wait_until(is_so, "all that is to be visible", limit_s=90)
        except AssertionError as error:
            self._complain(str(error))


def bodies_of(broker: Broker, topic: str, queue_id: int) -> list[bytes]:
    """The bodies of a queue, in order."""
    found: list[bytes] = broker.read(topic, queue_id, columns=["body"])["body"].to_pylist()
    return found


def _open(address: str, user: str) -> Broker:
    return open_broker(address, mode="rw", access_key=user, secret_key="hush", retry_ms=0)


def _count(broker: Broker, topic: str) -> int:
    return sum(end - start for start, end in broker.offsets(topic).values())


def _few(bodies: Counter[bytes]) -> str:
    return f"{bodies.total()} ({list(bodies)[:3]})"
