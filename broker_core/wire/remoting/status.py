"""Answers that are no success, as errors: by their code, and for two codes by their remark.

Servers answer many things with SYSTEM_ERROR or NO_PERMISSION and tell the reason in the remark
only; the words that matter are listed here, once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from broker_core.errors import (
    AuthenticationError,
    BrokerError,
    FilterSyntaxError,
    IllegalMessageError,
    MessageNotFoundError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from broker_core.wire.remoting.command import Command, ResponseCode, code_name

_MAX_REMARK_CHARS = 300


class _Meaning(NamedTuple):
    error: type[BrokerError]
    advice: str = ""


_BY_CODE: dict[int, _Meaning] = {
    ResponseCode.SYSTEM_ERROR: _Meaning(UnavailableError),
    ResponseCode.SYSTEM_BUSY: _Meaning(UnavailableError, "It is overloaded; try again later."),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: _Meaning(
        UnsupportedError, "Is this the port of a server of that kind, and is it 4.9 or later?"
    ),
    ResponseCode.FLUSH_DISK_TIMEOUT: _Meaning(UnavailableError),
    ResponseCode.SLAVE_NOT_AVAILABLE: _Meaning(UnavailableError, "The master may have moved."),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: _Meaning(UnavailableError),
    ResponseCode.MESSAGE_ILLEGAL: _Meaning(IllegalMessageError),
    ResponseCode.SERVICE_NOT_AVAILABLE: _Meaning(
        UnavailableError, "Its disk may be full, or it is shutting down."
    ),
    ResponseCode.VERSION_NOT_SUPPORTED: _Meaning(UnsupportedError),
    ResponseCode.NO_PERMISSION: _Meaning(PermissionDeniedError),
    ResponseCode.TOPIC_NOT_EXIST: _Meaning(TopicNotFoundError),
    ResponseCode.QUERY_NOT_FOUND: _Meaning(MessageNotFoundError),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: _Meaning(FilterSyntaxError),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: _Meaning(
        PermissionDeniedError,
        "With rejectPullConsumerEnable only the consumerGroup TOOLS_CONSUMER may pull.",
    ),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: _Meaning(
        RequestError,
        "Create the consumer group, or set consumerGroup to one that exists (TOOLS_CONSUMER does).",
    ),
    ResponseCode.INVALID_PARAMETER: _Meaning(RequestError),
    ResponseCode.FLOW_CONTROL: _Meaning(UnavailableError, "Try again later."),
    ResponseCode.NOT_LEADER_FOR_QUEUE: _Meaning(UnsupportedError, "Static topics can't be read."),
    ResponseCode.GO_AWAY: _Meaning(UnavailableError, "It is shutting down."),
}
_OTHER = _Meaning(BrokerError)

# In this order: the first pattern that is found counts. "signature" comes before "AclException",
# which stands in front of both kinds of remark.
_BY_REMARK: tuple[tuple[re.Pattern[str], _Meaning], ...] = (
    (
        re.compile(r"does not support consumer to filter message by SQL92", re.IGNORECASE),
        _Meaning(
            UnsupportedError,
            "Set enablePropertyFilter=true in its broker.conf, or filter by tags or in Spark.",
        ),
    ),
    (
        re.compile(
            r"signature|secret ?key|access ?key|authenticat|no acl config|password",
            re.IGNORECASE,
        ),
        _Meaning(AuthenticationError, "Check accessKey and secretKey."),
    ),
    (
        re.compile(r"AclException|authoriz|no (default )?permission|not permitted", re.IGNORECASE),
        _Meaning(PermissionDeniedError, "Ask for this right on the cluster."),
    ),
    (
        re.compile(r"queueId.*illegal|illegal.*queueId|queueId.*range", re.IGNORECASE),
        _Meaning(RequestError),
    ),
    (
        re.compile(r"size exceeded|message is illegal|properties.*too (large|long)", re.IGNORECASE),
        _Meaning(IllegalMessageError),
    ),
)
_TOLD_IN_WORDS = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION})


def require_success(answer: Command, peer: str) -> Command:
    """Return the answer if it is a success, else raise its error.

    `peer` names the server in messages, like "Broker broker-a (host:port)".
    """
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, peer)
    return answer


def refusal(answer: Command, peer: str) -> BrokerError:
    """Return the error that stands for an answer."""
    meaning = _meaning(answer)
    name = code_name(ResponseCode, answer.code)
    text = f"{peer} answered {name}{_remark(answer)}"
    return meaning.error(f"{text} {meaning.advice}".rstrip())


def _meaning(answer: Command) -> _Meaning:
    if answer.code in _TOLD_IN_WORDS:
        for pattern, meaning in _BY_REMARK:
            if pattern.search(answer.remark):
                return meaning
    return _BY_CODE.get(answer.code, _OTHER)


def _remark(answer: Command) -> str:
    """Return the server's remark on one line, 300 characters at most."""
    text = " ".join(answer.remark.split())
    if len(text) > _MAX_REMARK_CHARS:
        text = text[:_MAX_REMARK_CHARS] + "…"
    return f": {text.rstrip('.')}." if text else "."
