from __future__ import annotations

import pytest

from broker_core import FilterSyntaxError, MessageNotFoundError, RequestError
from broker_core.api import Broker
from broker_core.codec.schema import ALL_COLUMNS
from broker_core.filter.pipeline import MessageFilter
from tests.contract.test_messages import wanted


@pytest.fixture
def priced(broker: Broker) -> Broker:
    """Ten messages: tags A and B in turn, prices 0 to 9, key even or odd."""
    broker.create_topic("orders", queues=1)
    for number in range(10):
        broker.send(
            "orders",
            b"%d" % number,
            tags="AB"[number % 2],
            keys=["even" if number % 2 == 0 else "odd", f"n-{number}"],
            properties={"price": str(number)},
        )
    return broker


def bodies(broker: Broker, **how: str) -> list[bytes]:
    found: list[bytes] = broker.read("orders", **how).column("body").to_pylist()  # type: ignore[arg-type]  # only texts are given
    return found


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"tags": "A"}, [b"0", b"2", b"4", b"6", b"8"]),
        ({"tags": "A || B"}, [b"%d" % number for number in range(10)]),
        ({"tags": "*"}, [b"%d" % number for number in range(10)]),
        ({"tags": "C"}, []),
        ({"sql": "price > 6"}, [b"7", b"8", b"9"]),
        ({"sql": "TAGS = 'B' AND price BETWEEN 2 AND 6"}, [b"3", b"5"]),
        ({"sql": "color IS NOT NULL"}, []),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_filter_leaves_what_it_says(
    priced: Broker, how: dict[str, str], expected: list[bytes]
) -> None:
    assert bodies(priced, **how) == expected


def test_a_filter_that_drops_everything_still_advances(priced: Broker) -> None:
    frames = list(priced.pull(wanted(2, 9), message_filter=MessageFilter.of(tags="C")))

    assert sum(map(len, frames)) == 0
    assert frames[-1].next_offset == 9


def test_offsets_survive_a_filter(priced: Broker) -> None:
    frames = list(priced.pull(wanted(0, 10), message_filter=MessageFilter.of(sql="price > 6")))

    assert [at for batch in frames for at in batch.offsets.tolist()] == [7, 8, 9]


def test_a_filter_that_is_none_says_where(priced: Broker) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        priced.read("orders", sql="price > > 5")
    assert (caught.value.line, caught.value.column) == (1, 9)


def test_tags_and_sql_at_once_are_refused(priced: Broker) -> None:
    with pytest.raises(RequestError, match="not both"):
        priced.read("orders", tags="A", sql="price > 5")


def test_messages_are_found_by_key(priced: Broker) -> None:
    found = priced.query("orders", key="odd")

    assert found.column("body").to_pylist() == [b"1", b"3", b"5", b"7", b"9"]
    assert found.column_names == list(ALL_COLUMNS)
    assert priced.query("orders", key="n-4").column("keys").to_pylist() == ["even n-4"]
    assert priced.query("orders", key="nobody").num_rows == 0
    assert priced.query("orders", key="even", limit=2).num_rows == 2


def test_a_message_is_found_by_either_id(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    sent = broker.send("orders", b"hello")

    by_unique_id = broker.message(sent.msg_id)
    by_place = broker.message(sent.offset_msg_id)

    assert by_unique_id.column("body").to_pylist() == [b"hello"]
    assert by_unique_id == by_place
    assert broker.query("orders", key=sent.msg_id) == by_place


@pytest.mark.parametrize("message_id", ["", "nonsense", "0" * 32, "7F00000100002A9F" + "F" * 16])
def test_an_id_of_nothing_finds_nothing(broker: Broker, message_id: str) -> None:
    broker.create_topic("orders", queues=1)
    broker.send("orders", b"hello")

    with pytest.raises(MessageNotFoundError):
        broker.message(message_id)
