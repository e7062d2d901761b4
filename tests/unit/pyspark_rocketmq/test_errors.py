from __future__ import annotations

import inspect
import pickle
import re
import string
import typing
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from broker_core.types import QueueRef
from pyspark_rocketmq import errors
from pyspark_rocketmq.conditions import CATALOGUE
from pyspark_rocketmq.errors import broker_errors, option_errors, sink_errors, source_errors
from pyspark_rocketmq.options.table import TABLE

QUEUE = QueueRef("orders", "broker-a", 3)
CONSTRUCTORS = [
    function
    for area in (option_errors, source_errors, broker_errors, sink_errors)
    for name, function in inspect.getmembers(area, inspect.isfunction)
    if function.__module__ == area.__name__ and not name.startswith("_")
]


def build(constructor: Callable[..., errors.ConnectorError]) -> errors.ConnectorError:
    """Call a constructor with plausible values for its parameters, by their types."""
    hints = typing.get_type_hints(
        constructor, {**vars(errors), "QueueRef": QueueRef, "Iterable": Iterable, "Any": Any}
    )
    samples: dict[Any, Any] = {
        QueueRef: QUEUE,
        int: 7,
        bool: True,
        str: "text",
        str | None: "text",
        object: "reason",
        Iterable[QueueRef]: [QUEUE],
        Iterable[str]: ["one", "two"],
        Iterable[Any]: [QUEUE],
    }
    arguments = {name: samples[hint] for name, hint in hints.items() if name != "return"}
    return constructor(**arguments)


@pytest.mark.parametrize("constructor", CONSTRUCTORS, ids=lambda each: each.__name__)
def test_every_constructor_fills_in_its_sentence(
    constructor: Callable[..., errors.ConnectorError],
) -> None:
    error = build(constructor)

    text = str(error)

    assert text.startswith(f"[{error.condition}] ")
    assert text.endswith(f" SQLSTATE: {error.sqlstate}")
    assert "{" not in re.sub(r"\{\"", "", text.replace('":{', ""))


@pytest.mark.parametrize("constructor", CONSTRUCTORS, ids=lambda each: each.__name__)
def test_every_error_survives_pickling(constructor: Callable[..., errors.ConnectorError]) -> None:
    error = build(constructor)

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_every_condition_has_exactly_one_constructor() -> None:
    built = [build(constructor).condition for constructor in CONSTRUCTORS]

    assert sorted(built) == sorted(CATALOGUE)


def test_conditions_are_sorted_and_well_formed() -> None:
    conditions = list(CATALOGUE)

    assert conditions == sorted(conditions)
    assert all(re.fullmatch(r"ROCKETMQ_[A-Z_]+(\.[A-Z_]+)?", name) for name in conditions)
    assert all(re.fullmatch(r"[0-9A-Z]{5}", each.sqlstate) for each in CATALOGUE.values())


def test_messages_mention_only_options_that_exist() -> None:
    texts = [
        "".join(text for text, *_ in string.Formatter().parse(each.message))
        for each in CATALOGUE.values()
    ]
    mentioned = {name for text in texts for name in re.findall(r"\b([a-z]+[A-Z]\w+)=", text)}

    assert mentioned
    assert mentioned <= TABLE.keys()


def test_every_data_loss_message_says_how_to_tolerate_it() -> None:
    losses = [each for name, each in CATALOGUE.items() if name.startswith("ROCKETMQ_DATA_LOSS.")]

    assert len(losses) == 8
    assert all("Set failOnDataLoss=false to " in each.message for each in losses)


def test_expired_offsets_read_as_designed() -> None:
    error = source_errors.offset_expired(QUEUE, start=750, earliest=900, lost=150)

    assert str(error) == (
        "[ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED] Queue orders/broker-a/3 starts at 900, but 750 is "
        "needed; 150 messages are gone. Set failOnDataLoss=false to continue from 900. "
        "SQLSTATE: 22000"
    )


def test_long_values_are_shortened() -> None:
    text = errors.shown("x" * 1000)

    assert len(text) < 340
    assert text.endswith("… (1000 characters)")


def test_every_class_has_one_root() -> None:
    classes = [
        each
        for _name, each in inspect.getmembers(errors, inspect.isclass)
        if each.__module__ == errors.__name__
    ]

    assert all(issubclass(each, errors.ConnectorError) for each in classes)
    assert all(each.__name__.endswith("Error") for each in classes)
