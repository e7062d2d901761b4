from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.legal_names import check_group, check_topic, is_legal_topic, is_own_topic
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
)
from broker_core.errors import InvalidNameError


@pytest.mark.parametrize(
    "name",
    ["orders", "a", "%RETRY%g", "%DLQ%" + "g" * 120, "A|b-c_9", "x" * 127, "%RETRY%" + "g" * 248],
)
def test_names_of_rocketmq_are_legal(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "is empty"),
        ("a/b", "contains '/'"),
        ("..", r"contains '\.'"),
        ("../../etc", r"contains '\.'"),
        ("a b", "contains ' '"),
        ("a\0", r"contains '\\x00'"),
        ("a\n", r"contains '\\n'"),
        ("ключ", "contains 'к'"),
        ("x" * 128, "has 128 characters, 127 are allowed"),
        ("x" * 300, "has 300 characters, 127 are allowed"),
        ("%RETRY%" + "g" * 249, "has 256 characters, 255 are allowed"),
    ],
)
def test_other_names_are_refused_with_the_reason(name: str, what: str) -> None:
    with pytest.raises(InvalidNameError, match=f"Topic name .*{what}; use letters") as caught:
        check_topic(name)
    assert len(str(caught.value)) < 200


def test_a_group_has_the_same_alphabet() -> None:
    assert check_group("billing-1") == "billing-1"
    with pytest.raises(InvalidNameError, match="Group name"):
        check_group("a@b")


@given(st.text())
def test_a_legal_name_never_leaves_its_directory(name: str) -> None:
    if is_legal_topic(name):
        assert "/" not in name
        assert name not in {"", ".", ".."}
        assert "\0" not in name


@pytest.mark.parametrize(
    "name",
    [
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, BATCH_TOPIC, DISCARD_TOPIC),
        *("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "RMQ_SYS_"),
    ],
)
@pytest.mark.parametrize("form", [str, str.upper, str.lower])
def test_topics_that_the_broker_writes_are_its_own(name: str, form: Callable[[str], str]) -> None:
    assert is_own_topic(form(name))


@pytest.mark.parametrize(
    "name", ["RMQ_SYS_TRACE_TOPIC", "%RETRY%g", "%DLQ%g", "orders", "SCHEDULE_TOPIC", "RMQ_SYS"]
)
def test_other_topics_are_not_the_brokers_own(name: str) -> None:
    assert not is_own_topic(name)
