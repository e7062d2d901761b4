"""The world of the tests of trust: a broker, its users, and what two of them own.

Owner and neighbour each have an estate: messages, a batch that is decided and one that is only
prepared, an open half message, a delayed message, a consumer offset. Their batches, groups and
attempts have the same names, as those of strangers may by chance. Everybody else has rights at
most. Time stands still until a test turns the clock; services run when a test says so.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from broker_core.codec.ids import offset_id
from broker_core.codec.legal_names import is_own_topic
from broker_core.service.main import BrokerProcess
from broker_core.service.settings import ServiceSettings
from broker_core.store.io.files import OsFiles
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.methods import Method
from tests.kit.raw_calls import Rules, raw_channel, write_credentials
from tests.kit.transactions import ManualClock
from tests.trust.line import NOBODY, Answer, GrpcLine, Line
from tests.trust.requests import CONSUMERS, GROUP, Requests, delayed, sent_as

RULES: Mapping[str, Rules] = {
    "norule": [],
    "stranger": [("mal*", "publish")],
    "neighbour": [("next*", "publish"), ("next*", "subscribe")],
    "reader": [("orders*", "subscribe")],
    "wide-reader": [("*", "subscribe")],
    "wide": [("*", "publish")],
    "owner": [("orders*", "publish"), ("orders*", "subscribe")],
    "admin": [("*", "admin")],
}
"""Users by what they may do; trust.md tells of each of them but `wide-reader`, who is a reader of
everything: defect 8 needs one."""
ACTORS = (NOBODY, *RULES)
TOPICS = {"owner": "orders", "neighbour": "next", "stranger": "mal", "wide": "any", "admin": "adm"}
"""The topic of each user who may publish somewhere; all have two queues."""
QUEUES = 2
DECIDED, OPEN = 3, 4
"""Numbers of the batch that is decided and of the one that is prepared."""
LOG_FILE_BYTES = 1 << 16
_SETTINGS = {
    "grpcListenAddress": "127.0.0.1:0",
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "400",
    "autoCreateTopicEnable": "true",
}


def may(user: str, right: str, topic: str) -> bool:
    """Tell whether a user has a right on a topic, by the rules above and nothing else.

    Topics of the broker's own hold what others have not decided: only an administrator sees them.
    """
    enough = ("admin",) if is_own_topic(topic) else (right, "admin")
    return any(
        given in enough and fnmatchcase(topic, pattern) for pattern, given in RULES.get(user, ())
    )


@dataclass(frozen=True)
class Estate:
    """What a user has in the world before anybody attacks."""

    user: str
    topic: str
    receipt: pb.Receipt
    half: pb.HalfMessage
    message_id: str
    bodies: tuple[bytes, ...]

    @property
    def secret(self) -> bytes:
        """Is in every body of the estate."""
        return secret_of(self.user)


def spare_topic(topic: str) -> str:
    return f"{topic}-spare"


def secret_of(user: str) -> bytes:
    return f"secret of {user}".encode()


class UnsyncedFiles(OsFiles):
    """Files that need not outlive a loss of power: most of the time of a small write is fsync."""

    def fsync(self, descriptor: int) -> None:
        del descriptor

    def fsync_dir(self, path: Path) -> None:
        del path


class Watch(logging.Handler):
    """Lines of the broker's log that tell of its own faults."""

    FAULTS = ("event=bug", "event=service_failed", "event=check_failed")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(self.FAULTS):
            what = f" {record.exc_info[1]!r}" if record.exc_info else ""
            self.faults.append(text + what)

    def take(self) -> list[str]:
        """The faults since the last look."""
        found, self.faults = self.faults, []
        return found


@dataclass(frozen=True)
class Template:
    """A world that was made once and closed: copies of it are quick to make."""

    root: Path
    estates: Mapping[str, Estate]
    first_number: int

    @classmethod
    def make(cls, base: Path) -> Template:
        made = World(base)
        made.close()
        return cls(made.root, made.estates, made.number())


class World:
    """A broker with its users. `base` is the folder that holds all that the world may touch.

    `over_port` makes all calls over gRPC; else they go straight to the boundary (line.py).
    """

    def __init__(
        self, base: Path, template: Template | None = None, *, over_port: bool = False
    ) -> None:
        self.base = base
        self.root = base / "a" / "b" / "c" / "d" / "e" / "store"
        self.root.parent.mkdir(parents=True)
        if template is not None:
            shutil.copytree(template.root, self.root)
        self.clock = ManualClock()
        self.watch = Watch()
        self._numbers = count(template.first_number if template else 1)
        path = write_credentials(base / "credentials.json", RULES)
        settings = {**_SETTINGS, "grpcCredentialsFile": str(path)}
        self.process = BrokerProcess(
            self.root,
            ServiceSettings.of(settings, "test"),
            create=True,
            files=UnsyncedFiles(),
            clock_ms=self.clock,
        )
        self.line = Line(self.process)
        self._open = ExitStack()
        self._calls: Line | GrpcLine = self.line
        if over_port:
            self.process.server.start()
            channel = self._open.enter_context(raw_channel(self.process))
            self._calls = GrpcLine(self.process, channel)
        logging.getLogger("broker_core").addHandler(self.watch)
        self.estates = dict(template.estates if template else self._settle())

    def _settle(self) -> Iterator[tuple[str, Estate]]:
        """Make the topics, and yield the estates."""
        with self.process.pool.broker() as broker:
            for topic in TOPICS.values():
                broker.create_topic(topic, QUEUES)
                broker.create_topic(spare_topic(topic), 1)
        for user in ("owner", "neighbour"):
            yield user, self._estate(user, TOPICS[user])

    def close(self) -> None:
        logging.getLogger("broker_core").removeHandler(self.watch)
        self._open.close()
        self.process.stop(grace_s=0)

    def number(self) -> int:
        """A number that nothing in this world has yet."""
        return next(self._numbers)

    def call(self, method: Method, user: str, *messages: bytes) -> Answer:
        return self._calls.call(method, user, *messages)

    def victims(self, attacker: str) -> list[Estate]:
        """The estates that an attacker must leave as they are."""
        return [estate for user, estate in self.estates.items() if user != attacker]

    @property
    def log_end(self) -> int:
        return self.process.pool.writer.log_end

    def pass_time(self, ms: int) -> None:
        """Turn the clock and run the services that are due: delivery, check-back, retention."""
        self.clock.advance(ms)
        self.process.background.run_due()

    def spare_topic(self, topic: str) -> str:
        """A topic to delete, which is there."""
        with self.process.pool.broker() as broker:
            if spare_topic(topic) not in broker.catalog.table().topics:
                broker.create_topic(spare_topic(topic), 1)
        return spare_topic(topic)

    # Estates

    def _estate(self, user: str, topic: str) -> Estate:
        by = Requests(self, user, topic)
        bodies = [self.send(by, f"message {number}", number % QUEUES) for number in range(4)]
        bodies.append(self.decide_batch(by, DECIDED, "first"))
        receipt, _ = self.prepare_batch(by, OPEN)
        request = pb.PrepareMessage(
            topic=topic, body=secret_of(user) + b": half", group=GROUP, queue_id=0
        )
        answer = self.call(methods.PREPARE_MESSAGE, user, request.SerializeToString())
        half = pb.HalfMessage.FromString(answer.reply)
        self.send(by, "delayed", level=1)
        offset = pb.CommitOffset(group=CONSUMERS, topic=topic, queue_id=0, offset=1)
        assert self.call(methods.COMMIT_OFFSET, user, offset.SerializeToString()).is_ok
        with self.process.pool.broker() as broker:
            row = broker.read(topic, columns=["physicalOffset"]).column(0)[0].as_py()
        message_id = offset_id(self.process.pool.settings.store_host, row)
        return Estate(user, topic, receipt, half, message_id, tuple(bodies))

    def send(self, by: Requests, what: str, queue_id: int = 0, *, level: int = 0) -> bytes:
        """Send one message of an estate; its body."""
        body = secret_of(by.user) + f": {what}".encode()
        record = replace(by.record(body=body), queue_id=queue_id)
        sent = delayed(record, level) if level else record
        answer = self.call(methods.APPEND, by.user, by.appended(sent).packed())
        assert answer.is_ok, f"{by.user} can't send {what}: {answer}"
        return body

    def prepare_batch(self, by: Requests, number: int) -> tuple[pb.Receipt, bytes]:
        """Prepare a batch of an estate, one message; its receipt, and the message's body."""
        head = by.prepare_head()
        head.batch.number = number
        body = secret_of(by.user) + f": batch {number}".encode()
        request = by.prepared(head, by.record(head.attempt, body))
        answer = self.call(methods.PREPARE, by.user, *sent_as(methods.PREPARE, request))
        assert answer.is_ok, f"{by.user} can't prepare batch {number}: {answer}"
        prepared = pb.Prepared.FromString(answer.reply)
        return pb.Receipt(batch=head.batch, attempt=head.attempt, prepared=[prepared]), body

    def decide_batch(self, by: Requests, number: int, run: str) -> bytes:
        """Prepare and commit a batch of an estate; the message's body."""
        receipt, body = self.prepare_batch(by, number)
        outcome = self.commit(by.user, receipt, run)
        assert not outcome.is_repeat
        return body

    def commit(self, user: str, receipt: pb.Receipt, run: str) -> pb.Outcome:
        """Commit a batch of an estate, as a Spark driver does."""
        request = pb.Decide(
            batch=receipt.batch, receipts=[receipt], run=run, keep=True,
            fingerprint=f"rows of {user} in {receipt.batch.number}",
        )  # fmt: skip
        answer = self.call(methods.COMMIT_BATCH, user, request.SerializeToString())
        assert answer.is_ok, f"{user} can't commit batch {receipt.batch.number}: {answer}"
        return pb.Outcome.FromString(answer.reply)
