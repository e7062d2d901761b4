"""Lookup of decisions where others have made many of the same tag, or of its hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions import decision_lookup
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import (
    BatchAttempt,
    Decision,
    JournalRecord,
    parse_body,
    stream_tag,
)
from broker_core.types import BatchRef
from tests.kit.transactions import ManualClock, open_store

OWN, OTHER = BatchRef("query:Aa", "", 1), BatchRef("query:BB", "", 1)
TAG = stream_tag(OWN)
MANY = 100

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", ManualClock()) as opened:
        opened.transactions._require_topics()
        yield opened


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The physical offsets of records that were parsed."""
    found: list[int] = []

    def counting(body: bytes, physical_offset: int) -> JournalRecord:
        found.append(physical_offset)
        return parse_body(body, physical_offset)

    monkeypatch.setattr(decision_lookup, "parse_body", counting)
    monkeypatch.setattr(decision_lookup, "_SOUGHT_ENTRIES", 32)
    return found


def decided(user: str, batch: BatchRef = OWN, run: str = "r") -> Decision:
    return Decision(batch, run=run, is_done=True, user=user)


def append(broker: EmbeddedBroker, *records: JournalRecord) -> None:
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records(records, 0, host))


def run_of(broker: EmbeddedBroker, user: str, *, exactly: bool = False) -> str | None:
    lookup = DecisionLookup(broker.reader)
    found = lookup.decision(TAG, user) if exactly else lookup.decision_for(TAG, user)
    return None if found is None else found.decision.run


@pytest.mark.parametrize("others", [OWN, OTHER], ids=["same tag", "same hash"])
def test_decisions_of_others_are_passed_over_without_being_parsed(
    broker: EmbeddedBroker, parsed: list[int], others: BatchRef
) -> None:
    append(broker, decided("", run="nobody's"), decided("owner", run="old"))
    append(broker, *[decided("owner", run=f"r-{number}") for number in range(3)])
    append(broker, *[decided("stranger", others, run="theirs")] * MANY)

    assert run_of(broker, "owner") == "r-2"
    assert run_of(broker, "owner", exactly=True) == "r-2"
    assert run_of(broker, "neighbour") == "nobody's"
    assert run_of(broker, "neighbour", exactly=True) is None
    assert len(parsed) < MANY


def test_a_caller_without_a_name_finds_the_newest_of_all(broker: EmbeddedBroker) -> None:
    append(broker, decided("owner", run="old"), decided("stranger", run="new"))
    append(broker, *[decided("stranger", OTHER)] * MANY)

    assert run_of(broker, "") == "new"
    assert run_of(broker, "", exactly=True) is None


def test_an_attempt_is_found_behind_many_records_of_its_hash(
    broker: EmbeddedBroker, parsed: list[int]
) -> None:
    append(broker, BatchAttempt(OWN, "Aa", "owner"))
    append(broker, *[BatchAttempt(OTHER, "BB", "stranger")] * MANY)

    found = DecisionLookup(broker.reader).attempt("Aa")

    assert found == BatchAttempt(OWN, "Aa", "owner")
    assert len(parsed) < MANY


def test_what_makes_no_sense_is_passed_over_among_many(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, decided("owner", run="sound"))
    with monkeypatch.context() as patch:
        patch.setattr(Decision, "body", lambda _: b"{}")
        append(broker, decided("owner"))
    append(broker, *[decided("stranger")] * MANY)

    assert run_of(broker, "owner") == "sound"
