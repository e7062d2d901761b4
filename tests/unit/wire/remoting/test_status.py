"""Answers that are no success: which error each is, in words."""

from __future__ import annotations

import pytest

from broker_core.errors import (
    AuthenticationError,
    BrokerError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from broker_core.wire.remoting.command import Command, ResponseCode
from broker_core.wire.remoting.status import refusal


@pytest.mark.parametrize(
    ("code", "remark", "kind", "said"),
    [
        (2, "[TIMEOUT_CLEAN_QUEUE] broker busy", UnavailableError, "overloaded"),
        (3, "request type 11 not supported", UnsupportedError, "port"),
        (16, "the topic[t] pulling message is forbidden", PermissionDeniedError, "forbidden"),
        (16, "authentication failed: check signature failed.", AuthenticationError, "secretKey"),
        (1, "AclException: check signature failed for user", AuthenticationError, "secretKey"),
        (1, "AclException: No default permission for T", PermissionDeniedError, "right"),
        (1, "queueId[9] is illegal, topic:[T]", RequestError, "illegal"),
        (1, "java.lang.NullPointerException", UnavailableError, "NullPointer"),
        (17, "topic not exist", TopicNotFoundError, "not exist"),
        (999, "something new", BrokerError, "999"),
    ],
)
def test_answers_are_told_in_words(
    code: int, remark: str, kind: type[BrokerError], said: str
) -> None:
    error = refusal(Command(code, 1, 1, {}, b"", remark), "Broker b (h:1)")

    assert type(error) is kind
    assert said in str(error)
    assert str(error).startswith("Broker b (h:1) answered")


def test_endless_remark_is_cut() -> None:
    error = refusal(Command(1, 1, 1, {}, b"", "x\n" * 10_000), "Broker b (h:1)")

    assert len(str(error)) < 500
    assert "\n" not in str(error)


@pytest.mark.parametrize("code", ResponseCode)
def test_every_code_has_an_error_but_success(code: ResponseCode) -> None:
    assert isinstance(refusal(Command(code, 1, 1, {}, b""), "b"), BrokerError)
