"""A process of its own that fills a store while others read it.

    python -m tests.kit.live_writer ADDRESS MESSAGES

Sends numbered messages round three topics `live-0` to `live-2` and all of their queues. After a
third of them every topic gets two more queues, after two thirds there is a fourth topic.
"""

from __future__ import annotations

import sys

from broker_core import open_broker

QUEUES = 8


def bodies(messages: int) -> list[str]:
    """What the process sends, sorted."""
    return sorted(f"live {number}" for number in range(messages))


def main(arguments: list[str]) -> None:
    """Send everything and end."""
    address, messages = arguments[0], int(arguments[1])
    topics, queues = [f"live-{number}" for number in range(3)], QUEUES
    with open_broker(address, mode="rw") as broker:
        for number in range(messages):
            if number == messages // 3:
                queues = QUEUES + 2
                for topic in topics:
                    broker.add_queues(topic, queues)
            if number == messages * 2 // 3:
                topics.append("live-3")
                broker.create_topic("live-3", queues=queues)
            topic = topics[number % len(topics)]
            broker.send(topic, f"live {number}".encode(), queue_id=number // 7 % queues)


if __name__ == "__main__":
    main(sys.argv[1:])
