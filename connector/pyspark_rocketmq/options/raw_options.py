"""The options of one query as Spark hands them over: texts, looked up without regard to case.

RawOptions finds an option's text and parses it with the parser of the option table. It also writes
the sentences for the log about options that are unknown here or have no effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark_rocketmq.options import names
from pyspark_rocketmq.options.table import TABLE, Scope

_BY_LOWER = {name.lower(): option for name, option in TABLE.items()}

# Options of Spark's own, which it adds to those of a source or sink.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "__default__"})

_OF_KAFKA = {
    "kafka.bootstrap.servers": f"use {names.BROKER}",
    "kafka.group.id": f"use {names.CONSUMER_GROUP}",
    "kafka.auto.offset.reset": f"use {names.STARTING_OFFSETS}",
    "groupidprefix": f"use {names.CONSUMER_GROUP}",
    "includeheaders": f"use {names.INCLUDE_PROPERTIES}",
    "kafkaconsumer.polltimeoutms": f"use {names.PULL_TIMEOUT}",
    "partition.metadata.cache.ttl.ms": "queues are looked up for every batch, at no cost",
}


class RawOptions:
    """The options of one read or write, looked up by name without regard to case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {key.lower(): str(value) for key, value in options.items()}

    def has(self, name: str) -> bool:
        """Return True if the user gave the option."""
        return name.lower() in self._texts

    def text(self, name: str) -> str:
        """Return the text that the user gave."""
        return self._texts[name.lower()]

    def value(self, name: str) -> Any:
        """Return the parsed value, or the default."""
        option = TABLE[name]
        return option.parse(option.name, self.text(name)) if self.has(name) else option.default

    def among(self, options: Iterable[str]) -> list[str]:
        """Return those of the options that the user gave, in the order of the argument."""
        return [name for name in options if self.has(name)]

    def advice(self, scope: Scope) -> list[str]:
        """Return a sentence about every option without effect here, and the one to use instead."""
        return [
            sentence for key in sorted(self._texts) if (sentence := _advice(key, scope)) is not None
        ]


def _advice(key: str, scope: Scope) -> str | None:
    if key in _BY_LOWER:
        option = _BY_LOWER[key]
        is_used = bool(option.scope & scope)
        return None if is_used else f"Option {option.name} has no effect here and is ignored."
    if key in _OF_SPARK:
        return None
    if key in _OF_KAFKA:
        return f"Option {key} is Kafka's and is ignored: {_OF_KAFKA[key]}."
    if key.startswith("kafka."):
        return f"Option {key} is a Kafka client's setting and is ignored."
    nearest = difflib.get_close_matches(key, _BY_LOWER, n=1)
    hint = f" Did you mean {_BY_LOWER[nearest[0]].name}?" if nearest else ""
    return f"Option {key} is unknown and ignored.{hint}"
