"""Errors of brokers, in reads and writes: ROCKETMQ_BROKER and ROCKETMQ_TOPIC_NOT_FOUND.

One function per condition. It returns the error and the caller raises it; the sentences are in
pyspark_rocketmq/conditions.py. `client_cache.translate` chooses the function for an error of
broker_core.
"""

from __future__ import annotations

from pyspark_rocketmq.errors import (
    BrokerFailedError,
    BrokerUnavailableError,
    SubscriptionError,
)

# ROCKETMQ_BROKER


def failed(broker: str, action: str, reason: object) -> BrokerFailedError:
    """Report a broker that refused, with its reason."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.FAILED", {"broker": broker, "action": action, "reason": str(reason)}
    )


def store_damaged(broker: str, action: str, reason: object) -> BrokerFailedError:
    """Report bytes of a store that contradict its format."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.STORE_DAMAGED", {"broker": broker, "action": action, "reason": str(reason)}
    )


def unavailable(broker: str, action: str, attempts: int, reason: object) -> BrokerUnavailableError:
    """Report a broker that did not answer in all attempts."""
    return BrokerUnavailableError(
        "ROCKETMQ_BROKER.UNAVAILABLE",
        {"broker": broker, "action": action, "attempts": attempts, "reason": str(reason)},
    )


def unsupported(broker: str, action: str, reason: object) -> BrokerFailedError:
    """Report an action that this kind of broker does not have."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.UNSUPPORTED", {"broker": broker, "action": action, "reason": str(reason)}
    )


# ROCKETMQ_TOPIC_NOT_FOUND


def topic_not_found(topic: str, broker: str, option: str) -> SubscriptionError:
    """Report a topic that an option names and the broker does not have."""
    return SubscriptionError(
        "ROCKETMQ_TOPIC_NOT_FOUND", {"topic": topic, "broker": broker, "option": option}
    )
