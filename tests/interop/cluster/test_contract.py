"""What holds for every kind of broker holds for a cluster: the contract suite on a real one.

Each test has a namespace of its own, so that all of them share one broker. Left out is what a
cluster does in its own way, or not at all: exactly-once transactions, deletion of files, where a
delayed message waits, properties that brokers add to single messages, and the instant at which one
client sees what another has sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.types import Mode
from tests.contract.test_messages import (  # noqa: F401  # collected here
    test_a_batch_is_appended_as_a_whole,
    test_a_batch_with_a_bad_message_leaves_nothing,
    test_a_group_has_the_offsets_it_committed,
    test_a_queue_that_is_not_there_is_refused,
    test_a_queue_that_never_was_can_not_be_read,
    test_a_range_that_is_not_there_names_what_is,
    test_an_empty_range_is_empty,
    test_an_unknown_column_is_refused,
    test_batches_keep_their_limits_and_say_how_far_they_came,
    test_bodies_that_rocketmq_refuses_are_refused,
    test_messages_without_a_queue_go_round,
    test_negative_offsets_and_other_brokers_are_refused,
    test_offsets_are_found_by_time,
    test_offsets_of_a_queue_count_up,
    test_one_sharding_key_is_one_queue,
    test_parts_of_a_range_make_the_whole,
    test_reserved_properties_are_refused,
)
from tests.contract.test_query import (  # noqa: F401  # collected here
    priced,
    test_a_filter_leaves_what_it_says,
    test_a_filter_that_drops_everything_still_advances,
    test_a_filter_that_is_none_says_where,
    test_a_message_is_found_by_either_id,
    test_an_id_of_nothing_finds_nothing,
    test_messages_are_found_by_key,
    test_offsets_survive_a_filter,
    test_tags_and_sql_at_once_are_refused,
)
from tests.contract.test_topics import (  # noqa: F401  # collected here
    test_a_broker_opened_for_reading_changes_nothing,
    test_a_deleted_topic_is_gone_and_starts_anew,
    test_a_missing_topic_is_the_same_error_everywhere,
    test_a_topic_is_made_once,
    test_a_topic_that_was_made_is_described_and_listed,
    test_names_are_sorted,
    test_names_that_are_none_are_refused_and_nothing_is_made,
    test_numbers_of_queues_have_limits,
    test_queues_are_only_added,
)
from tests.interop.cluster.opening import opened
from tests.interop.kit.servers import Broker, NameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_namespaces = itertools.count()


@dataclass
class Place:
    """A namespace of a cluster, which can be opened any number of times."""

    address: str
    namespace: str
    _opened: ExitStack = field(default_factory=ExitStack)

    def open(self, mode: Mode = "rw") -> ClusterBroker:
        client = opened(self.address, mode=mode, namespace=self.namespace)
        return self._opened.enter_context(client)

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(scope="module")
def cluster(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch: Path = tmp_path_factory.mktemp("cluster")
    with (
        NameServer(scratch) as name_server,
        Broker(scratch / "store", name_server, scratch) as broker,
    ):
        yield name_server.address
        broker.kill()
        name_server.kill()


@pytest.fixture
def place(cluster: str) -> Iterator[Place]:
    made = Place(cluster, f"n{next(_namespaces)}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def broker(place: Place) -> ClusterBroker:
    return place.open()
