"""Rights: the one place that asks whether a caller may do what it asks for.

Every method has one rule in RULES, and a server with a method without a rule does not start. Most
rules need no more than the request: core/rpc.py asks them before the handler runs, so a handler
can't forget. Four kinds of rule need what only the handler, or the core, has:

    records   Append and Prepare: the topics are known when the records have been admitted.
              Admission calls what `publish_permit` returned, before anything is written. A caller
              who may publish nowhere is refused before room for the records is taken.
    visible   Topics: the answer holds only topics that the caller has a right on.
    readable  Message: a message of a topic that the caller can't read is answered as not found,
              so that ids tell nothing about other topics.
    caller    Transactions: the core is told who asks (`caller_of`), and compares it with what the
              stored half messages and decisions say (broker/transactions/ownership.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from broker_core.broker.transactions.ownership import NOBODY_ELSE, Caller
from broker_core.service.auth.user_rights import ANYONE, Right, UserIdentity
from broker_core.wire.core import methods
from broker_core.wire.core.methods import Method

RightsRule = Callable[[UserIdentity, Any], None]
"""Raises PermissionDeniedError unless an identity may ask for this request."""
Permit = Callable[[Collection[str]], None]
"""Raises PermissionDeniedError unless the caller may publish to all of these topics."""


def publish_permit(identity: UserIdentity) -> Permit | None:
    """Return the check of topics that records are for; None if there is nothing to check.

    A list of topics costs a search through the records: without credentials none is made.
    """
    return None if identity is ANYONE else lambda topics: identity.require(Right.PUBLISH, topics)


def caller_of(identity: UserIdentity) -> Caller:
    """Return what the core needs to know of a caller to tell what is theirs (ownership.py)."""
    if identity is ANYONE:
        return NOBODY_ELSE
    return Caller(
        identity.name,
        None if identity.may_everywhere(Right.PUBLISH) else publish_permit(identity),
        is_admin=identity.may_everywhere(Right.ADMIN),
    )


def visible(identity: UserIdentity, topics: Iterable[str]) -> list[str]:
    """Return those of some topics that a caller has any right on."""
    return [topic for topic in topics if identity.may_see(topic)]


def readable(identity: UserIdentity, topics: Iterable[str]) -> list[str]:
    """Return those of some topics that a caller may read."""
    return [topic for topic in topics if identity.may(Right.SUBSCRIBE, topic)]


# Rules


def _anybody(identity: UserIdentity, request: Any) -> None:
    del identity, request


_by_handler = _anybody
"""The handler asks, with one of the functions above: see the head of this file."""


def _topic(right: Right) -> RightsRule:
    return lambda identity, request: identity.require(right, [request.topic])


def _somewhere(right: Right) -> RightsRule:
    return lambda identity, request: identity.require_somewhere(right)


def _everywhere(right: Right) -> RightsRule:
    return lambda identity, request: identity.require_everywhere(right)


def _sight(identity: UserIdentity, request: Any) -> None:
    identity.require_sight(request.topic)


def _create_topic(identity: UserIdentity, request: Any) -> None:
    right = Right.PUBLISH if request.for_sending else Right.ADMIN
    identity.require(right, [request.topic])


RULES: Mapping[Method, RightsRule] = {
    methods.HELLO: _anybody,
    methods.STATS: _everywhere(Right.ADMIN),
    methods.TOPICS: _by_handler,  # visible
    methods.DESCRIBE: _sight,
    methods.CREATE_TOPIC: _create_topic,
    methods.ADD_QUEUES: _topic(Right.ADMIN),
    methods.DELETE_TOPIC: _topic(Right.ADMIN),
    methods.OFFSETS: _topic(Right.SUBSCRIBE),
    methods.OFFSET_AT: _topic(Right.SUBSCRIBE),
    methods.CONSUMER_OFFSETS: _topic(Right.SUBSCRIBE),
    methods.COMMIT_OFFSET: _topic(Right.SUBSCRIBE),
    methods.AWAIT: _topic(Right.SUBSCRIBE),
    methods.PULL: _topic(Right.SUBSCRIBE),
    methods.QUERY: _topic(Right.SUBSCRIBE),
    methods.MESSAGE: _by_handler,  # readable
    methods.APPEND: _somewhere(Right.PUBLISH),  # and publish_permit
    methods.APPEND_CHUNKS: _somewhere(Right.PUBLISH),  # and publish_permit
    methods.DELETE_BEFORE: _everywhere(Right.ADMIN),
    methods.IS_DECIDED: _somewhere(Right.PUBLISH),
    methods.PREPARE: _somewhere(Right.PUBLISH),  # and publish_permit
    methods.PREPARE_CHUNKS: _somewhere(Right.PUBLISH),  # and publish_permit
    methods.COMMIT_BATCH: _somewhere(Right.PUBLISH),  # and caller_of
    methods.ABORT_BATCH: _somewhere(Right.PUBLISH),  # and caller_of
    methods.PREPARE_MESSAGE: _topic(Right.PUBLISH),
    methods.END: _somewhere(Right.PUBLISH),  # and caller_of: rights of what is stored
    methods.LISTEN: _somewhere(Right.PUBLISH),
    methods.CHECK_BACK: _everywhere(Right.ADMIN),
}
