"""Campaigns: one actor's attacks in a world, one by one, and what is wrong with their outcome."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.record import Record, decode_record
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import unpack
from broker_core.wire.core.methods import Method
from tests.trust.attacks import Attack, requests_of
from tests.trust.ledger import Ledger
from tests.trust.line import NOBODY, Answer, Code
from tests.trust.requests import Requests
from tests.trust.world import World, may

APPENDING = (methods.APPEND, methods.APPEND_CHUNKS)
PREPARING = (methods.PREPARE, methods.PREPARE_CHUNKS)
DECIDING = (methods.COMMIT_BATCH, methods.ABORT_BATCH, methods.END)
ANSWERS = frozenset(
    (
        Code.OK,
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.OUT_OF_RANGE,
        Code.FAILED_PRECONDITION,
        Code.UNIMPLEMENTED,
        Code.PERMISSION_DENIED,
        Code.UNAVAILABLE,
    )
)
"""Statuses that a known user may get: none of them tells of a fault or of damage."""
SLOWEST_S = 90.0
"""Longer than any call; the first of all compiles loops."""
MOST_BYTES = 512 << 20
_TOGETHER = 100
"""What was prepared is committed together: a decision takes as long as four appends."""


@dataclass
class Campaign:
    """One actor's attacks; `complaints` says what was wrong, with the attack's name."""

    world: World
    actor: str
    ledger: Ledger
    complaints: list[str] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self._by = {
            is_stolen: requests_of(self.world, self.actor, is_stolen=is_stolen)
            for is_stolen in (False, True)
        }
        self._name = ""
        self._names: dict[str, str] = {}
        self._prepared: dict[bytes, list[pb.Receipt]] = {}

    def run(self, tried: Sequence[Attack]) -> None:
        """Try attacks one by one, and use what they gave."""
        before = _peak_bytes()
        for attack in tried:
            self._name = f"{self.actor}, {attack}"
            by = self._by[attack.is_stolen]
            messages = attack.make(by)
            answer = self._send(attack.method, messages, by)
            if answer.is_ok:
                self._use(attack.method, messages, answer, by)
        self._name = f"{self.actor}, commit of all that was prepared"
        for batch in list(self._prepared):
            self._commit(batch)
        if _peak_bytes() - before > MOST_BYTES:
            self._complain(f"memory grew by {_peak_bytes() - before} bytes")

    def _complain(self, what: str, name: str | None = None) -> None:
        self.complaints.append(f"{name or self._name}: {what}")

    def _send(self, method: Method, messages: tuple[bytes, ...], by: Requests) -> Answer:
        """Call, and look at everything that can be seen at once."""
        self.calls += 1
        log_end, started_s = self.world.log_end, time.monotonic()
        answer = self.world.call(method, self.actor, *messages)
        if time.monotonic() - started_s > SLOWEST_S:
            self._complain(f"took {time.monotonic() - started_s:.0f} s")
        self._judge(answer)
        grown = self.world.log_end - log_end
        if not answer.is_ok:
            if grown:
                self._complain(f"was refused ({answer}) and wrote {grown} bytes")
        elif grown > 8 * sum(map(len, messages)) + (2 << 16):
            self._complain(f"{sum(map(len, messages))} bytes made the log grow by {grown}")
        if grown:
            records = self._read_log()
            if answer.is_ok and method in APPENDING:
                self._compare(messages, records)
        if answer.is_ok and method in DECIDING:
            by.spent()
        return answer

    def _read_log(self) -> list[Record]:
        records, wrong = self.ledger.read(self.actor)
        for record, what in wrong:
            attempt = record.property_map.get("UNIQ_KEY", "")[:MAKER_CHARS]
            where = f"{record.topic!r}/{record.queue_id} at {record.physical_offset}"
            self._complain(f"{where}: {what}", self._names.get(attempt))
        return records

    def _judge(self, answer: Answer) -> None:
        for fault in self.world.watch.take():
            self._complain(f"the broker's log has {fault}")
        if self.actor == NOBODY:
            if answer.code is not Code.UNAUTHENTICATED:
                self._complain(f"nobody was answered {answer}")
        elif answer.code not in ANSWERS:
            self._complain(f"was answered {answer}")
        said = b"".join((*answer.replies, answer.details.encode()))
        for estate in self.world.victims(self.actor):
            if estate.secret in said and not may(self.actor, "subscribe", estate.topic):
                self._complain(f"was told a secret of {estate.user}")

    def _compare(self, messages: tuple[bytes, ...], stored: Sequence[Record]) -> None:
        """Complain unless what was sent is what is stored, but for what only the broker says."""
        sent = [
            decode_record(chunk.records[start : start + size].data)
            for chunk in map(unpack, messages)
            for start, size in zip(chunk.starts.tolist(), chunk.sizes.tolist(), strict=True)
        ]
        if [_essence(record) for record in sent] != [_essence(record) for record in stored]:
            self._complain("what is stored is not what was sent")

    # Use what was given: only then is it seen what it does

    def _use(
        self, method: Method, messages: tuple[bytes, ...], answer: Answer, by: Requests
    ) -> None:
        if method in PREPARING:
            head = pb.PrepareHead.FromString(bytes(unpack(messages[0]).head))
            prepared = pb.Prepared.FromString(answer.reply)
            receipt = pb.Receipt(batch=head.batch, attempt=head.attempt, prepared=[prepared])
            self._names[head.attempt] = self._name
            batch = head.batch.SerializeToString()
            waiting = self._prepared.setdefault(batch, [])
            waiting.append(receipt)
            if len(waiting) == _TOGETHER:
                self._commit(batch)
        elif method is methods.PREPARE_MESSAGE:
            half = pb.HalfMessage.FromString(answer.reply)
            self._read_back(pb.PrepareMessage.FromString(messages[0]), half)
            request = pb.End(half=half, fate="commit").SerializeToString()
            self._send(methods.END, (request,), by)

    def _commit(self, batch: bytes) -> None:
        """Commit what was prepared for a batch; one by one if not all of it can be."""
        receipts = self._prepared.pop(batch)
        by = self._by[False]
        request = by.decide(receipts[0])
        request.receipts.extend(receipts[1:])
        if self._send(methods.COMMIT_BATCH, (request.SerializeToString(),), by).is_ok:
            return
        for receipt in receipts:
            self._name = self._names[receipt.attempt]
            request = by.decide(receipt)
            answer = self._send(methods.COMMIT_BATCH, (request.SerializeToString(),), by)
            if not answer.is_ok:
                self._complain(f"was prepared, and can't be committed: {answer}")

    def _read_back(self, asked: pb.PrepareMessage, half: pb.HalfMessage) -> None:
        """Complain unless each text of a request is stored as one value, and nothing else is."""
        with self.world.process.pool.broker() as broker:
            broker.reader.refresh()
            record = broker.reader.record_at(half.physical_offset)
        wanted = {
            **asked.properties,
            "UNIQ_KEY": half.transaction_id,
            "__transactionId__": half.transaction_id,
            "TRAN_MSG": "true",
            "PGROUP": asked.group,
            "TAGS": asked.tags,
            "KEYS": " ".join(asked.keys),
            "PREPARED_BY": self.actor,
            "REAL_TOPIC": asked.topic,
            "REAL_QID": str(half.queue_id),
        }
        found = record.property_map
        if found != {name: value for name, value in wanted.items() if value}:
            self._complain(f"is stored with {found}")
        if record.body != asked.body:
            self._complain(f"is stored with body {record.body[:40]!r}")


def _essence(record: Record) -> tuple[object, ...]:
    return (record.topic, record.queue_id, record.flag, record.body, record.properties)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
