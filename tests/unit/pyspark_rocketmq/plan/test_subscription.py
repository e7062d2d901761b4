from __future__ import annotations

import pytest

from broker_core.types import QueueRef
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.plan.offsets import QueueKey, parse_assignment
from pyspark_rocketmq.plan.subscription import Assigned, Pattern, Topics

A0, A1 = QueueRef("a", "broker-a", 0), QueueRef("a", "broker-a", 1)
Z0 = QueueRef("a", "broker-z", 0)


def test_named_topics_are_needed_whether_they_exist_or_not() -> None:
    assert Topics("subscribe", ("b", "a")).needed(["a"]) == ["a", "b"]


def test_a_pattern_is_searched_not_anchored() -> None:
    found = Pattern("subscribePattern", "topic").needed(["my-topic-2", "topic", "other"])

    assert found == ["my-topic-2", "topic"]


@pytest.mark.parametrize(
    "topic",
    [
        "%RETRY%group",
        "%DLQ%group",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
    ],
)
def test_a_pattern_never_matches_a_system_topic_which_can_be_named(topic: str) -> None:
    assert Pattern("subscribePattern", ".*").needed([topic, "mine"]) == ["mine"]
    assert Topics("subscribe", (topic,)).needed([topic]) == [topic]


def test_a_pattern_leaves_out_the_topic_that_a_broker_names_after_itself() -> None:
    own = QueueRef("broker-a", "broker-a", 0)

    assert Pattern("subscribePattern", ".*").select([own, A0]) == [A0]
    assert Topics("subscribe", ("broker-a",)).select([own]) == [own]


def test_a_pattern_may_match_nothing() -> None:
    assert Pattern("subscribePattern", "x").needed(["a"]) == []


def test_queues_come_out_sorted() -> None:
    assert Topics("subscribe", ("a",)).select([Z0, A1, A0]) == [A0, A1, Z0]


def test_assigned_queues_that_do_not_exist_are_left_out() -> None:
    assigned = Assigned("assign", parse_assignment("assign", '{"a":{"broker-a":[1,7]}}'))

    assert assigned.needed([]) == ["a"]
    assert assigned.select([A0, A1, Z0]) == [A1]


def test_an_assignment_without_broker_needs_a_topic_on_one_broker() -> None:
    assigned = Assigned("assign", frozenset({QueueKey("a", "", 0)}))

    assert assigned.select([A0, A1]) == [A0]
    with pytest.raises(OptionError, match=r"AMBIGUOUS_BROKER.*assign"):
        assigned.select([A0, Z0])
