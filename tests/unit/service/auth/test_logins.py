"""Logins: wrong ones cost little, tell nothing, and never hold up a user who is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker_core import open_broker
from broker_core.errors import AuthenticationError, UnavailableError
from broker_core.service.auth import credentials as module
from broker_core.service.auth.credentials import MOST_LOGINS, Credentials, LoginTurns
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import SERVICE
from tests.contract.test_messages import outgoing
from tests.kit.raw_calls import raw_channel, wait_until, write_credentials
from tests.kit.served import served

WRONG = [("owner", "wrong"), ("nobody", "hush"), ("owner", "x" * 8000), ("n" * 4000, "y" * 4000)]


class Hashing:
    """Stands in for scrypt: counts how many run at once, and can be held up."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.costs: list[tuple[int, int, int]] = []
        self.at_once = self.most_at_once = 0
        self._real = module._scrypt

    def __call__(self, secret: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.costs.append((cost, block, parallel))
        try:
            assert self.go.wait(60)
            return self._real(secret, salt, cost, block, parallel)
        finally:
            self.at_once -= 1


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
    found = Hashing()
    monkeypatch.setattr(module, "_scrypt", found)
    yield found
    found.go.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_credentials(tmp_path / "credentials.json")


@pytest.mark.parametrize(("name", "secret"), WRONG, ids=["secret", "name", "long", "very long"])
def test_few_wrong_logins_are_looked_at_and_the_rest_is_refused_at_once(
    path: Path, hashing: Hashing, name: str, secret: str
) -> None:
    credentials = Credentials(path)
    credentials.check("owner", "hush")
    hashing.go.clear()
    outcomes: list[type[Exception]] = []

    def log_in() -> None:
        try:
            credentials.check(name, secret)
        except (AuthenticationError, UnavailableError) as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=log_in) for _ in range(50)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(outcomes) == 50 - MOST_LOGINS, "refusals")
    # A known user passes while a secret is being hashed, and others wait for it.
    assert credentials.check("owner", "hush").name == "owner"
    assert outcomes == [UnavailableError] * (50 - MOST_LOGINS)
    hashing.go.set()
    for thread in threads:
        thread.join(60)

    assert outcomes[50 - MOST_LOGINS :] == [AuthenticationError] * MOST_LOGINS
    assert hashing.most_at_once == 1


def test_one_hash_is_enough_for_many_first_calls_of_a_user(path: Path, hashing: Hashing) -> None:
    credentials = Credentials(path)
    hashing.go.clear()
    names: list[str] = []
    threads = [
        threading.Thread(target=lambda: names.append(credentials.check("owner", "hush").name))
        for _ in range(MOST_LOGINS)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: hashing.at_once == 1, "a secret being hashed")
    hashing.go.set()
    for thread in threads:
        thread.join(60)

    assert names == ["owner"] * MOST_LOGINS
    assert len(hashing.costs) == 1


def test_a_name_that_does_not_exist_costs_as_much_as_one_that_does(
    tmp_path: Path, hashing: Hashing
) -> None:
    """Users' secrets may have been made at different costs; unknown names have those too."""
    path = write_credentials(tmp_path / "credentials.json", {"cheap": [], "dear": []})
    text = path.read_text("utf-8")
    before, middle, after = text.partition('"dear", "secret": "scrypt:2:')
    assert middle
    path.write_text(before + middle[:-2] + "64:" + after, "utf-8")
    credentials = Credentials(path)

    def costs_of(name: str) -> list[tuple[int, int, int]]:
        del hashing.costs[:]
        for _ in range(3):
            with pytest.raises(AuthenticationError):
                credentials.check(name, "wrong")
        return hashing.costs[:]

    assert costs_of("cheap") == [(2, 8, 1)] * 3
    assert costs_of("dear") == [(64, 8, 1)] * 3
    unknown = [costs_of(f"unknown-{number}") for number in range(40)]
    assert all(len(set(costs)) == 1 and len(costs) == 3 for costs in unknown)
    assert {costs[0] for costs in unknown} == {(2, 8, 1), (64, 8, 1)}


def test_what_is_remembered_is_bounded_by_the_users_of_the_file(path: Path) -> None:
    now = [0.0]
    credentials = Credentials(path, monotonic=lambda: now[0])
    for name in ("owner", "reader", "stranger"):
        credentials.check(name, "hush")
    write_credentials(path, {"owner": []})
    now[0] = 2.0
    credentials.check("owner", "hush")

    assert list(credentials._known) == ["owner"]


def test_who_was_known_is_looked_at_again_without_hashing(path: Path, hashing: Hashing) -> None:
    now = [0.0]
    credentials = Credentials(path, monotonic=lambda: now[0])
    known = credentials.check("owner", "hush")
    hashed = len(hashing.costs)

    assert credentials.check_again("owner", "hush") is known
    with pytest.raises(UnavailableError, match="were changed"):
        credentials.check_again("owner", "other")
    write_credentials(path, {})
    now[0] = 2.0
    with pytest.raises(AuthenticationError, match="not right any more"):
        credentials.check_again("owner", "hush")
    assert len(hashing.costs) == hashed


FLOODS: dict[str, Callable[[int], tuple[str, str]]] = {
    "one machine with many names": lambda number: (f"n{number}", "10.0.0.1/32"),
    "one machine with the user's name": lambda number: ("owner", "10.0.0.1/32"),
    "the same machine with some names": lambda number: (f"n{number % 4}", "10.0.0.9/32"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_first_login_is_next_however_many_wrong_ones_there_are(
    path: Path, hashing: Hashing, flood: str
) -> None:
    credentials = Credentials(path)
    outcomes: list[str] = []
    refused = threading.Semaphore(0)

    def log_in(name: str, secret: str, origin: str) -> None:
        try:
            outcomes.append(credentials.check(name, secret, origin).name)
        except AuthenticationError:
            outcomes.append("wrong")
        except UnavailableError:
            refused.release()

    # Some have had their turns before.
    for number in range(12):
        log_in(FLOODS[flood](number)[0], "wrong", FLOODS[flood](number)[1])
    del outcomes[:]
    hashing.go.clear()
    threads = [
        threading.Thread(target=log_in, args=(name, "wrong", origin))
        for name, origin in map(FLOODS[flood], range(3 * MOST_LOGINS))
    ]
    for thread in threads:
        thread.start()
    for _ in range(2 * MOST_LOGINS):
        assert refused.acquire(timeout=30)
    wait_until(lambda: hashing.at_once == 1, "a secret being hashed")
    first = threading.Thread(target=log_in, args=("owner", "hush", "10.0.0.9/32"))
    first.start()
    assert refused.acquire(timeout=30)  # one of the flood, whose place it takes
    hashing.go.set()
    for thread in (first, *threads):
        thread.join(60)

    assert outcomes.index("owner") <= 1  # after the one that was under way
    assert outcomes.count("wrong") == MOST_LOGINS - 1
    assert hashing.most_at_once == 1


def test_turns_that_were_had_long_ago_do_not_count() -> None:
    turns = LoginTurns()
    for number in range(1000):
        with turns.turn(f"10.0.0.{number % 256}/32", f"n{number}"):
            pass

    assert len(turns._names) == sum(turns._origins.values()) == module._REMEMBERED_LOGINS


def test_a_served_user_sends_beside_any_number_of_wrong_logins(
    tmp_path: Path, path: Path, hashing: Hashing
) -> None:
    settings = {"grpcCredentialsFile": str(path), "grpcMaxCalls": "32"}
    with served(tmp_path / "store", settings) as process:
        with open_broker(process.address, "rw", token="admin.hush") as admin:
            admin.create_topic("orders", queues=1)
        with (
            open_broker(process.address, "rw", retry_ms=0, token="owner.hush") as owner,
            raw_channel(process) as raw,
        ):
            hashing.go.clear()
            hello = raw.unary_unary(f"/{SERVICE}/Hello")
            request = pb.HelloRequest(protocol=1).SerializeToString()
            calls: list[Any] = [
                hello.future(request, metadata=[("authorization", f"Bearer x{number}.y")])
                for number in range(100)
            ]
            wait_until(lambda: sum(not call.done() for call in calls) == MOST_LOGINS, "refusals")

            assert owner.append(outgoing(b"served")).queue_ids.tolist() == [0]
            hashing.go.set()
            codes = {call.code() for call in calls}
        # Beyond the threads gRPC refuses, beyond the logins the broker does.
        assert codes <= {
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
        assert hashing.most_at_once == 1
