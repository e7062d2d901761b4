"""The demo's generator: a separate process that sends orders to a store, one by one.

    python examples/demo_orders.py BROKER COUNT ORDERS_PER_SECOND

An order is a message with a tag (its state), a key (its id) and properties for SQL92 filters.
Order n is placed n seconds after midnight, independent of the clock.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator

from broker_core import open_broker

REGIONS = ("eu", "us", "asia")
TAGS = ("paid", "paid", "paid", "cancelled")


def orders(count: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield tag and content of made-up orders; every run yields equal ones."""
    chance = random.Random(1)
    for number in range(count):
        yield (
            chance.choice(TAGS),
            {
                "order": f"o-{number:05}",
                "second": number,
                "region": chance.choice(REGIONS),
                "price": chance.randrange(1, 100),
            },
        )


def main(address: str, count: int, per_second: float) -> None:
    started = time.monotonic()
    with open_broker(address, mode="rw") as broker:
        for number, (tag, order) in enumerate(orders(count)):
            broker.send(
                "orders",
                json.dumps(order).encode(),
                tags=tag,
                keys=[str(order["order"])],
                properties={"region": str(order["region"]), "price": str(order["price"])},
            )
            time.sleep(max(0.0, started + number / per_second - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
