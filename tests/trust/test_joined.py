"""Appends that become one: joining requests never changes what becomes of each of them.

Two users' requests and a hostile one are appended as one group, and one by one in another store.
Each must get the same answer, and each message that was acknowledged lies where its sender was
told, once. trust.md, 35 (c).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.broker.admission.records import Records
from broker_core.codec.fields import locate
from broker_core.codec.property_names import HALF_TOPIC, SCHEDULE_TOPIC
from broker_core.codec.record import Record, decode_record, encode_record
from broker_core.codec.spans import gather_spans
from broker_core.errors import BrokerError
from broker_core.service.auth.method_rules import publish_permit
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.core.write import join_chunks
from broker_core.service.group_commit import GroupCommit, Job
from broker_core.store.check.store import check
from broker_core.store.settings import StoreSettings
from broker_core.wire.core.frames import Flag, pack_records, unpack
from tests.kit.hostile_records import QUEUE_IDS, Facts, record_mutations
from tests.kit.raw_calls import sizes_of
from tests.kit.records import records as any_records
from tests.kit.transactions import SMALL_FILES
from tests.trust.attacks import OWN_TOPICS
from tests.trust.ledger import FORGED
from tests.trust.requests import MARK, plain_record
from tests.trust.world import QUEUES, RULES, UnsyncedFiles

TOPICS = {"owner": "orders", "neighbour": "next", "wide": "any"}
CROWD = 70
"""More records than are admitted one by one."""

NO_RECORDS = Records(np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=np.int32))
_FLAGS_AT = 5

Place = tuple[str, int, int]
"""Topic, queue and offset of a message."""


@dataclass(frozen=True)
class Request:
    """What one user sends at once."""

    user: str
    label: str
    records: tuple[bytes, ...] = field(repr=False)
    flags: int = int(Flag.DENSE)
    has_sizes: bool = True

    @property
    def chunk(self) -> bytes:
        """Its records as one chunk, with the flags, and with or without their number and sizes."""
        raw = b"".join(self.records)
        sizes = sizes_of(*map(len, self.records) if self.has_sizes else ())
        packed = bytearray(pack_records(b"", sizes, raw))
        packed[_FLAGS_AT] = self.flags
        return bytes(packed)


@dataclass(repr=False)
class Store:
    """A store that requests are appended to, and what their senders were told."""

    pool: BrokerPool
    told: dict[Place, tuple[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit = GroupCommit(self.pool, max_bytes=1 << 30)

    def append(self, group: Sequence[Request]) -> list[str]:
        """Append requests as one group; the answer to each, without the places."""
        jobs = [self._job(request) for request in group]
        waiting = [job for job in jobs if self._is_admitted(job)]
        self.commit._do(waiting)
        return [self._answer(*each) for each in zip(group, jobs, strict=True)]

    def _job(self, request: Request) -> Job:
        raw = b"".join(request.records)
        user = UserIdentity(
            request.user,
            tuple(Rule(topics, frozenset({Right(right)})) for topics, right in RULES[request.user]),
        )
        born_host = bytes([10, 0, 0, len(request.user), 0, 0, 0, 0])
        job = Job(NO_RECORDS, permit=publish_permit(user))
        try:
            job.records = join_chunks(unpack(request.chunk), [], len(raw), born_host)
        except BrokerError as error:
            job.error = error
        return job

    def _is_admitted(self, job: Job) -> bool:
        """Check a large request before it waits, as `GroupCommit.append` does."""
        if job.error is not None:
            return False
        if len(job.records) <= CROWD // 2:
            return True
        try:
            job.batch = self.commit._as_batch(self.commit._admitted([job])).make_ready()
        except BrokerError as error:
            job.error = error
        return job.error is None

    def _answer(self, request: Request, job: Job) -> str:
        if job.error is not None:
            return f"{type(job.error).__name__}: {job.error}".replace(
                str(self.pool.writer.root), ""
            )
        assert job.result is not None
        for raw, queue, offset in zip(
            request.records,
            map(int, job.result.queue_ids),
            map(int, job.result.queue_offsets),
            strict=True,
        ):
            topic, body = _topic_and_body(raw)
            place = (topic, queue, offset)
            assert place not in self.told, f"{request.label}: {place} was given to two messages"
            self.told[place] = (request.label, body)
        return f"stored in queues {[int(each) for each in job.result.queue_ids]}"

    def stored(self) -> dict[Place, bytes]:
        """All messages of the topics, by their places, with bodies as they are stored."""
        found: dict[Place, bytes] = {}
        with self.pool.broker() as broker:
            for topic, queue in product(TOPICS.values(), range(QUEUES)):
                broker.reader.refresh()
                bounds = broker.reader.queue_range(topic, queue)
                for frames in broker.reader.frames(topic, queue, *bounds):
                    bodies = gather_spans(locate(frames).bodies).to_pylist()
                    for offset, body in zip(frames.offsets.tolist(), bodies, strict=True):
                        found[topic, queue, offset] = body
        return found


def _topic_and_body(raw: bytes) -> tuple[str, bytes]:
    record = decode_record(raw)
    return record.topic, record.body


@dataclass(repr=False)
class Pair:
    """Two stores: in one requests are joined, in the other each is alone."""

    joined: Store
    alone: Store

    def append(self, group: Sequence[Request]) -> None:
        """Append a group both ways, and compare the answers."""
        together = self.joined.append(group)
        by_itself = [self.alone.append([request])[0] for request in group]
        where = f"{' + '.join(each.user for each in group)}: {[each.label for each in group]}"

        assert together == by_itself, where
        for request, answer in zip(group, together, strict=True):
            if request.label == "honest":
                assert answer.startswith("stored"), f"{where}: {request.user} got {answer}"

    def compare(self) -> None:
        """Compare what is stored: with what was told, and with each other."""
        for store in (self.joined, self.alone):
            found = store.stored()
            for place, (label, body) in store.told.items():
                if place[0] in TOPICS.values():
                    assert found.get(place) == body, f"{label}: {place} holds something else"
            told = {place for place in store.told if place[0] in TOPICS.values()}
            assert found.keys() == told
        assert _counted(self.joined) == _counted(self.alone)


def _counted(store: Store) -> Counter[tuple[str, int, bytes]]:
    return Counter((topic, queue, body) for (topic, queue, _), body in store.stored().items())


@contextmanager
def opened(base: Path) -> Iterator[Pair]:
    """Two new stores, compared and checked in the end."""
    roots = [base / name for name in ("joined", "alone")]
    pools = [_open(root) for root in roots]
    made = Pair(*map(Store, pools))
    try:
        yield made
        made.compare()
    finally:
        for pool in pools:
            pool.close()
    assert [problem for root in roots for problem in check(root)] == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with opened(tmp_path_factory.mktemp("pair")) as made:
        yield made


def _open(root: Path) -> BrokerPool:
    made = StoreSettings.load(SMALL_FILES)
    pool = BrokerPool.open(root, made, create=True, files=UnsyncedFiles())
    with pool.broker() as broker:
        for topic in TOPICS.values():
            broker.create_topic(topic, QUEUES)
        with suppress(BrokerError):
            broker.transactions.check_back()  # makes the broker's own topics
    return pool


NUMBERS = iter(range(1 << 30))


def plain(user: str) -> Record:
    number = next(NUMBERS)
    properties = {"UNIQ_KEY": f"{number:032X}", "TAGS": user}
    body = MARK + f"{user} {number}".encode()
    return plain_record(TOPICS[user], number % QUEUES, body, properties)


def honest(user: str, count: int = 2) -> Request:
    return Request(user, "honest", tuple(encode_record(plain(user)) for _ in range(count)))


FACTS = Facts(
    own_topics=[name for topic in OWN_TOPICS for name in (topic, topic.lower())],
    topics=["orders", "next"],
    prepared_offsets=[0, 91],
    forged=FORGED,
    mark=MARK,
)
MUTATIONS = list(record_mutations(FACTS))


def hostile(label: str, apply: Callable[[Record], bytes], crowd: int = 0) -> Request:
    """A request with one hostile record, alone or in the middle of plain ones."""
    beside = [encode_record(plain("wide")) for _ in range(crowd)]
    raw = apply(plain("wide"))
    return Request("wide", label, (*beside[: crowd // 2], raw, *beside[crowd // 2 :]))


def in_order(order: Sequence[str], request: Request, count: int = 2) -> list[Request]:
    return [request if user == request.user else honest(user, count) for user in order]


def test_a_hostile_request_beside_another_is_what_it_is_alone(pair: Pair) -> None:
    """Every hostile record, beside one of two users by turns, before and behind."""
    orders = cycle(permutations(("owner", "wide", "neighbour"), 2))
    pairs = (order for order in orders if "wide" in order)
    for mutation, order in zip(MUTATIONS, pairs, strict=False):
        pair.append(in_order(order, hostile(mutation.label, mutation.apply)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_is_so_in_every_order_of_three(tmp_path: Path, either_way: None) -> None:
    with opened(tmp_path) as pair:
        for mutation, order in product(MUTATIONS, permutations(TOPICS)):
            pair.append(in_order(order, hostile(mutation.label, mutation.apply)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("crowd", "count"), [(CROWD, 1), (0, CROWD), (CROWD, CROWD)])
def test_it_is_so_with_large_requests(
    tmp_path: Path, either_way: None, crowd: int, count: int
) -> None:
    with opened(tmp_path) as pair:
        for mutation, order in zip(MUTATIONS, cycle(permutations(TOPICS)), strict=False):
            request = hostile(mutation.label, mutation.apply, crowd)
            pair.append(in_order(order, request, count))


@pytest.mark.parametrize("has_sizes", [True, False])
def test_whatever_a_chunk_says_it_is_others_are_where_they_would_be(
    tmp_path: Path, has_sizes: bool
) -> None:
    """Every set of flags, on bytes as long as another's record and made for the other's topic."""
    with opened(tmp_path) as pair:
        for flags in range(1 << 8):
            aimed = encode_record(plain("owner"))
            forged = Request("neighbour", f"flags {flags}", (aimed,), flags, has_sizes)
            pair.append([honest("wide"), forged, honest("owner")])


def test_a_group_that_one_request_spoils_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(commit: GroupCommit, group: Sequence[Job], error: Exception) -> None:
        del commit
        for job in group:
            job.error = error

    monkeypatch.setattr(GroupCommit, "_do_one_by_one", spoil)
    wrong = next(each for each in MUTATIONS if each.label == "queueId=-1")
    with pytest.raises(AssertionError, match="owner"), opened(tmp_path) as pair:
        pair.append(in_order(("owner", "wide", "neighbour"), hostile(wrong.label, wrong.apply)))


# Requests that hypothesis makes up

_TOPICS = st.sampled_from([*TOPICS.values(), SCHEDULE_TOPIC, HALF_TOPIC, "missing"])
_QUEUE_IDS = st.sampled_from([0, 0, 0, 1, *QUEUE_IDS])
_RECORDS = st.builds(
    lambda record, queue_id, is_plain: replace(
        record,
        queue_id=queue_id,
        body=MARK + record.body,
        sys_flag=0 if is_plain else record.sys_flag,
        born_host=record.born_host[:8] if is_plain else record.born_host,
        store_host=record.store_host[:8] if is_plain else record.store_host,
    ),
    any_records(_TOPICS),
    _QUEUE_IDS,
    st.sampled_from([True, True, False]),
)
_MADE_UP = st.builds(
    lambda found: Request(
        "wide",
        f"made up, for {[(each.topic, each.queue_id) for each in found]}",
        tuple(map(encode_record, found)),
    ),
    st.lists(_RECORDS, min_size=1, max_size=3),
)
_GROUPS = st.lists(
    st.one_of(_MADE_UP, st.sampled_from(["owner", "neighbour"]).map(honest)), min_size=2, max_size=6
)


@pytest.mark.property
@settings(max_examples=40)
@given(_GROUPS)
def test_whatever_one_user_sends_others_are_where_they_would_be(
    pair: Pair, group: list[Request]
) -> None:
    pair.append(group)  # and in the end the fixture compares what is stored
