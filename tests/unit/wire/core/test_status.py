"""Both status tables are complete, and errors survive the way."""

from __future__ import annotations

import grpc
import pytest

from broker_core import errors
from broker_core.wire.core.status import (
    FROM_CODE,
    TO_CODE,
    code_of,
    detail_of,
    error_of,
    foreign_error,
)


def all_errors() -> list[type[errors.BrokerError]]:
    found, rest = [], [errors.BrokerError]
    while rest:
        kind = rest.pop()
        found.append(kind)
        rest += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


def example(kind: type[errors.BrokerError]) -> errors.BrokerError:
    numbers: dict[type[errors.BrokerError], tuple[object, ...]] = {
        errors.OffsetRangeError: (3, 9),
        errors.FilterSyntaxError: (2, 7),
        errors.CorruptRecordError: ("store/commitlog/0", 4711),
    }
    return kind("What happened, and what to do.", *numbers.get(kind, ()))


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_what_it_was(kind: type[errors.BrokerError]) -> None:
    sent = example(kind)

    arrived = error_of(detail_of(sent))

    assert type(arrived) is kind
    assert str(arrived) == str(sent)
    assert arrived.args == sent.args
    assert TO_CODE[kind] is code_of(sent)


@pytest.mark.parametrize("code", list(grpc.StatusCode), ids=lambda code: code.name)
def test_every_code_means_an_error(code: grpc.StatusCode) -> None:
    assert code in FROM_CODE
    assert str(foreign_error(code, "words")) == "words"


def test_an_error_of_a_private_class_travels_as_its_parent() -> None:
    class _ParticularError(errors.TopicNotFoundError):
        pass

    arrived = error_of(detail_of(_ParticularError("gone")))

    assert type(arrived) is errors.TopicNotFoundError


def test_a_condition_of_a_newer_broker_is_still_an_error() -> None:
    detail = detail_of(errors.BrokerError("new")).replace(b"BrokerError", b"BrakerError")

    assert str(error_of(detail)) == "new"


def test_messages_stay_small_enough_for_metadata() -> None:
    assert len(detail_of(errors.RequestError("x" * 100_000))) < 4000
