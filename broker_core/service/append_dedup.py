"""Append retries: an append that a client asks for again, after a lost answer, is done once.

**Problem.** A connection breaks after an append was sent. The client can't tell whether it was
done; if it asks again and it was, messages are doubled, and if it does not ask again they may be
lost. The server may have been restarted in between.

**Invariants.** A client names each append (16 random bytes and a sequence) and numbers its
attempts from 1.

- While this server runs, an append that it did within the window, or is doing, is not done again:
  a retry waits for the first attempt and gets its answer.
- After a restart the window is gone, but the log is not. A batch is in it as a whole or not at all,
  so the unique key of its first message, looked up in the index, tells whether it was done. The
  same holds for an append that has left the window.
- An append that can't be found out (gone from the window or another server's, without a unique key
  or without an index, or with a key of very many other messages) is refused with UnavailableError,
  which says so, instead of being done twice.
- The window of a client is its last 1,000 appends; no other client's appends push them out. A user
  has 100,000 in all: beyond that the client that was heard of longest ago is forgotten. Users do
  not push out each other's, and a name is one user's: others can't ask for its outcome.

**Outline.** `once` claims a name in `_doing`, or waits for the thread that has it. The first
attempt appends without a look at the index: it can't have been done before. A later attempt is
simply done if the window still reaches back to it and does not hold it: it never came. Otherwise
the index is searched, and queue, body checksum and born timestamp of the first record are compared
with all that it leads to, newest first: others may have used the key since, or one of equal hash.
What is kept of an append is its first physical
offset and its count; the answer's offsets are read from the log.

**Rejected.** *Keeping answers.* An answer takes 24 bytes for each message, 100,000 large appends
would take gigabytes. *A durable table of names.* One more write for each append, for a question
that is asked after a crash only, and that the log can answer.

Not to be confused with `is_repeat` of a batch (broker/transactions), which is about a query that
commits a batch again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.broker.admission.records import admit
from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.property_names import UNIQ_KEY
from broker_core.codec.record import Record, decode_record
from broker_core.codec.spans import starts_of
from broker_core.errors import (
    CorruptRecordError,
    OffsetRangeError,
    RequestError,
    UnavailableError,
)
from broker_core.types import AppendResult, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.admission.records import Records
    from broker_core.broker.transactions.ownership import Permit
    from broker_core.codec.fields import RecordFields
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.group_commit import Appended
    from broker_core.store.reader import StoreReader

CLIENT_WINDOW = 1_000
USER_WINDOW = 100_000
"""Appends of a client and of a user that are remembered; each takes a few hundred bytes."""
_ANY_SEQUENCE = 1 << 64
MOST_CANDIDATES = 10_000
"""Records of one hash that are compared. One client never uses a key twice, but others may use it
too, or keys whose hash is the same; beyond this many it can't be told whether one is the append."""


class AppendName(NamedTuple):
    """The name that a client gives to one append."""

    client: bytes
    sequence: int


class AppendAttempt(NamedTuple):
    """One attempt at an append; `instance` is the server that the first attempt was sent to."""

    name: AppendName
    number: int
    instance: bytes

    @property
    def is_retry(self) -> bool:
        """True if an earlier attempt may have been done."""
        return self.number > 1


class _Done(NamedTuple):
    """An append in the log: `records` of them from a physical offset on, one after another."""

    physical_offset: PhysicalOffset
    records: int


@dataclass(slots=True)
class _ClientWindow:
    """The last appends of a client; all up to the sequence `forgotten` may be missing."""

    done: OrderedDict[int, _Done] = field(default_factory=OrderedDict)
    forgotten: int = -1

    def add(self, sequence: int, done: _Done, most: int) -> int:
        """Remember an append; return by how many the window grew."""
        before = len(self.done)
        self.done[sequence] = done
        while len(self.done) > most:
            self.forgotten = max(self.forgotten, self.done.popitem(last=False)[0])
        return len(self.done) - before


class _UserWindow:
    """The last appends of a user's clients, those heard of longest ago first."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, _ClientWindow] = OrderedDict()
        self._has_forgotten = False
        self._held = 0

    def get(self, name: AppendName) -> _Done | None:
        """Return an append that is remembered."""
        client = self._clients.get(name.client)
        return None if client is None else client.done.get(name.sequence)

    def reaches(self, name: AppendName) -> bool:
        """Tell whether an append would be remembered if it had been done."""
        client = self._clients.get(name.client)
        return not self._has_forgotten if client is None else name.sequence > client.forgotten

    def add(self, name: AppendName, done: _Done, client_window: int, user_window: int) -> None:
        """Remember an append, and forget what is beyond the limits."""
        client = self._clients.get(name.client)
        if client is None:
            # Once a client was forgotten, a new one may be that one come back, and any of its
            # appends may have been done: retries of what is not remembered ask the log.
            forgotten = _ANY_SEQUENCE if self._has_forgotten else -1
            client = self._clients[name.client] = _ClientWindow(forgotten=forgotten)
        self._clients.move_to_end(name.client)
        self._held += client.add(name.sequence, done, client_window)
        while self._held > user_window and len(self._clients) > 1:
            self._held -= len(self._clients.popitem(last=False)[1].done)
            self._has_forgotten = True


class AppendDedup:
    """The appends that were done lately, and those that are being done. Thread-safe."""

    def __init__(
        self,
        pool: BrokerPool,
        client_window: int = CLIENT_WINDOW,
        user_window: int = USER_WINDOW,
    ) -> None:
        self._pool = pool
        self._windows = (client_window, user_window)
        self._lock = threading.Lock()
        self._done: dict[str, _UserWindow] = {}
        # What ends a wait for an append that is under way; made by the first who waits.
        self._doing: dict[tuple[str, AppendName], threading.Event | None] = {}

    def once(
        self,
        attempt: AppendAttempt,
        records: Records,
        append: Callable[[], Appended],
        wait_s: float | None = None,
        *,
        user: str = "",
        permit: Permit | None = None,
    ) -> Appended:
        """Append unless it was done; return where the messages lie.

        `wait_s` is how long to wait for an earlier attempt that is under way. `permit` is asked
        before the log is: the answer to a retry tells of messages in it.
        """
        name, key = attempt.name, (user, attempt.name)
        while True:
            with self._lock:
                window = self._done.get(user)
                if window is None:
                    window = self._done[user] = _UserWindow()
                done = window.get(name)
                under_way = None
                if done is None and key in self._doing:
                    under_way = self._doing[key] = self._doing[key] or threading.Event()
                elif done is None:
                    self._doing[key] = None
                    never_came = attempt.instance == self._pool.instance and window.reaches(name)
                    break
            if done is not None:
                return self._read(done)
            if under_way is not None and not under_way.wait(wait_s):
                message = "The same append is still under way; ask again for its outcome."
                raise UnavailableError(message)
        # From here on the name is this thread's. If the append fails, the name is given back, and
        # the next attempt tries again.
        try:
            is_new = never_came or not attempt.is_retry
            found = None if is_new else self._found(records, permit)
            result: Appended = append() if found is None else found
            self._remember(user, name, result)
            return result
        finally:
            with self._lock:
                ended = self._doing.pop(key)
            if ended is not None:
                ended.set()

    def _remember(self, user: str, name: AppendName, result: Appended) -> None:
        if not len(result.sizes):
            return
        done = _Done(PhysicalOffset(int(result.physical_offsets[0])), len(result.sizes))
        with self._lock:
            self._done[user].add(name, done, *self._windows)

    def _read(self, done: _Done) -> AppendResult:
        self._pool.writer.commit()  # a transient pool may still hold the messages in memory
        with self._pool.broker() as broker:
            return read_append_result(broker.reader, done.physical_offset, done.records)

    def _found(self, records: Records, permit: Permit | None) -> AppendResult | None:
        """Return where an append lies that is in the log; None if it is not there."""
        if not len(records):
            return None
        with self._pool.broker() as broker:
            admit(broker.door, [records], [permit])
        first = decode_record(records.data[: int(records.sizes[0])].data, verify=False)
        unique_key = first.property_map.get(UNIQ_KEY)
        if unique_key is None or not self._pool.settings.index_enabled:
            raise _untold("they have no unique keys, or the store has no index")
        self._pool.writer.commit()  # a transient pool may still hold the messages in memory
        with self._pool.broker() as broker:
            reader, most = broker.reader, MOST_CANDIDATES
            found = reader.lookup(first.topic, unique_key, most + 1, is_complete=True)
            firsts = [at for at in found[:most] if _is_same(reader, at, first, unique_key)]
            for at in firsts:
                result = self._whole(reader, at, records)
                if result is not None:
                    return result
        if len(found) > most:
            raise _untold(f"more than {most} messages have their key, or one of the same hash")
        if firsts:
            # A client never uses a unique key for two appends.
            message = (
                "Whether this append was done can't be told: the log has its first message, and "
                "behind it others than it sends. Nothing was written; send it under another name, "
                "with unique keys of its own."
            )
            raise RequestError(message)
        return None

    def _whole(self, reader: StoreReader, at: int, records: Records) -> AppendResult | None:
        """Return where an append lies whose first record is at an offset; None if others follow."""
        try:
            stored = _stored(reader, at, len(records))
        except OffsetRangeError:
            return None
        nowhere = np.zeros(len(records), dtype=np.int64)
        starts = starts_of(records.sizes)
        sent = locate(FrameBatch(records.data, starts, records.sizes, nowhere))
        grown = _column(stored, "size") - records.sizes
        # A store with checksums of properties adds as many bytes to each record.
        is_same = bool((grown == grown[0]).all()) and (
            int(grown[0]) == 0 or self._pool.settings.append_property_crc
        )
        for name in ("queueId", "bodyCrc"):
            is_same = is_same and bool((_column(stored, name) == sent.integer(name)).all())
        return _result(stored) if is_same else None


def read_append_result(reader: StoreReader, physical_offset: int, count: int) -> AppendResult:
    """Return where `count` records lie of which the first begins at `physical_offset`."""
    return _result(_stored(reader, physical_offset, count))


def _stored(reader: StoreReader, physical_offset: int, count: int) -> list[RecordFields]:
    """Return the fields of `count` records of the log from an offset on."""
    parts = []
    left = count
    for stretch in reader.log.walk(physical_offset):
        taken = min(left, len(stretch.starts))
        rows = slice(0, taken)
        frames = FrameBatch(
            buffer=stretch.buffer,
            starts=stretch.starts[rows],
            sizes=stretch.sizes[rows],
            offsets=np.zeros(taken, dtype=np.int64),
            name=str(stretch.segment.path),
        )
        parts.append(locate(frames))
        left -= taken
        if not left:
            break
    if left:
        message = f"{left} of {count} messages appended at {physical_offset} are gone."
        raise OffsetRangeError(message)
    return parts


def _column(parts: Sequence[RecordFields], name: str) -> NDArray[np.int64]:
    return np.concatenate([part.integer(name) for part in parts]).astype(np.int64)


def _result(parts: Sequence[RecordFields]) -> AppendResult:
    return AppendResult(
        queue_ids=_column(parts, "queueId").astype(np.int32),
        queue_offsets=_column(parts, "queueOffset"),
        physical_offsets=_column(parts, "physicalOffset"),
        sizes=_column(parts, "size").astype(np.int32),
        store_timestamp_ms=int(parts[0].integer("storeTimestamp")[0]),
    )


def _untold(why: str) -> UnavailableError:
    message = (
        f"The connection broke while messages were appended, and whether they were can't be told: "
        f"{why}. Look for them before sending them again."
    )
    return UnavailableError(message)


def _is_same(reader: StoreReader, physical_offset: int, first: Record, unique_key: str) -> bool:
    """Tell whether the record at a physical offset is the one that was sent."""
    try:
        record = reader.record_at(physical_offset)
    except (CorruptRecordError, OffsetRangeError):
        return False
    return (
        record.topic == first.topic
        and record.queue_id == first.queue_id
        and record.property_map.get(UNIQ_KEY) == unique_key
        and record.crc == first.crc
        and record.born_timestamp == first.born_timestamp
    )
