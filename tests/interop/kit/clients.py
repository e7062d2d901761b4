"""The official Java client, as two functions: send all kinds of messages, and read everything back.

Both programs lie in tests/interop/java; their headers say what they print.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.interop.kit import peers
from tests.interop.kit.servers import Broker


class Query(NamedTuple):
    """One question to `dump`: a kind that Dump.java knows, a topic, and what that kind needs."""

    kind: str
    topic: str
    text: str
    time_ms: str = ""

    def line(self) -> str:
        """Return the question as a line of Dump's input."""
        return "\t".join(field for field in self if field)


def dump(broker: Broker, queries: Iterable[Query] = ()) -> dict[str, Any]:
    """Return all that a running broker holds, in the form of the fixtures' expected documents.

    Answers stand under "queries" in the order of the questions: byKey, byId, byTime, byTag, bySql.
    The client is that of 5.5.0, whatever the broker is.
    """
    questions = "".join(query.line() + "\n" for query in queries)
    addresses = (broker.name_server.address, broker.address)
    document: dict[str, Any] = json.loads(peers.java_tool("Dump.java", *addresses, stdin=questions))
    return document


def produce(
    broker: Broker, seed: int, *steps: str, version: str = peers.VERSION
) -> list[dict[str, Any]]:
    """Send by steps such as "plain:orders:4:100"; return what was acknowledged, in order."""
    addresses = (broker.name_server.address, broker.address)
    lines = peers.java_tool("Produce.java", *addresses, str(seed), *steps, version=version)
    return [json.loads(line) for line in lines.splitlines()]


def queries_of(expected: Mapping[str, Any]) -> list[Query]:
    """Return the questions that an expected document answers, but those of push consumers."""
    answers = expected["queries"]
    return [
        *(
            Query("unique" if answer["unique"] else "key", answer["topic"], answer["key"])
            for answer in answers["byKey"]
        ),
        *(
            Query("time", answer["topic"], str(answer["queueId"]), str(answer["timestamp"]))
            for answer in answers["byTime"]
        ),
        *(Query("tag", answer["topic"], answer["expression"]) for answer in answers["byTag"]),
        *(Query("sql", answer["topic"], answer["expression"]) for answer in answers["bySql"]),
    ]
