"""Remoting commands: requests, answers, and the numbers of both.

A command is a header (code, flag, opaque, extension fields as text) and a body. `code` is a
RequestCode in a request and a ResponseCode in an answer. `opaque` ties an answer to its request; it
is chosen by the connection that sends the request, and each side counts its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import NamedTuple

Body = bytes | memoryview

LANGUAGE = "PYTHON"
LANGUAGE_CODE = 3
VERSION = 475
"""5.3.1: new enough for standard JSON in routes (401), too old to be sent GO_AWAY (476)."""
RELEASE_5 = 413
"""5.0.0: some answers of older brokers need a second look."""
TEMPLATE_TOPIC = "TBW102"
"""The topic whose settings brokers take for topics that they create by themselves."""


class CommandFlag(IntFlag):
    """Bits of a header's `flag`."""

    RESPONSE = 1
    ONEWAY = 2


# A plain number: `is_response` runs for every answer, and IntFlag's & is slow.
_RESPONSE = int(CommandFlag.RESPONSE)


class RequestCode(IntEnum):
    """Requests of the clients here; `Request.name` shows others as numbers."""

    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    VIEW_MESSAGE_BY_ID = 33
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ROUTE_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 200
    GET_TOPIC_STATS_INFO = 202
    GET_ALL_TOPIC_LIST_FROM_NAME_SERVER = 206
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAME_SERVER = 216
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320


class ResponseCode(IntEnum):
    """Results of requests, as servers number them."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


class SharedFields(NamedTuple):
    """Extension fields that many requests have in common, with their JSON, encoded once."""

    fields: Mapping[str, str]
    members: str


class Request(NamedTuple):
    """A request before a connection numbers and signs it. Empty extension fields are left out."""

    code: int
    ext: Mapping[str, str] = {}
    body: bytes = b""
    shared: SharedFields | None = None

    @property
    def name(self) -> str:
        """Name of the request, as RocketMQ's sources spell it."""
        return code_name(RequestCode, self.code)


class Command(NamedTuple):
    """A command as it travels. `version` is the release of the sender, as a number."""

    code: int
    opaque: int
    flag: int
    ext: Mapping[str, str]
    body: Body
    remark: str = ""
    version: int = VERSION

    @property
    def is_response(self) -> bool:
        """True for an answer, False for a request."""
        return bool(self.flag & _RESPONSE)


def code_name(kind: type[IntEnum], code: int) -> str:
    """Return the name of a code, or its number if it has none here.

    >>> code_name(ResponseCode, 17), code_name(ResponseCode, 999)
    ('TOPIC_NOT_EXIST', '999')
    """
    try:
        return kind(code).name
    except ValueError:
        return str(code)
