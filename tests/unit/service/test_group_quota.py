"""The quota of consumer groups: one user's many leave room for the others'."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.errors import RequestError
from broker_core.service.group_quota import GroupQuota
from broker_core.store.settings import StoreSettings
from tests.kit.raw_calls import write_credentials
from tests.kit.served import served


def test_a_user_makes_a_quarter_of_the_groups_of_a_topic_and_of_all() -> None:
    quota = GroupQuota()
    settings = StoreSettings.load({"maxConsumerGroupsPerTopic": 8, "maxConsumerOffsets": 12})
    for topic in ("a", "a", "b"):
        quota.take("reader", topic, settings)

    with pytest.raises(RequestError, match="made 2 consumer groups in topic a"):
        quota.take("reader", "a", settings)
    with pytest.raises(RequestError, match="made 3 consumer groups in all topics"):
        quota.take("reader", "b", settings)
    quota.take("owner", "a", settings)
    quota.give_back("reader", "b")
    quota.take("reader", "b", settings)
    for _ in range(20):
        quota.take("", "a", settings)


def test_a_reader_does_not_keep_others_from_their_groups(tmp_path: Path) -> None:
    users = {
        "reader": [("t", "subscribe")],
        "owner": [("t", "subscribe")],
        "admin": [("*", "admin")],
    }
    credentials = write_credentials(tmp_path / "users.json", users)
    settings = {"maxConsumerGroupsPerTopic": "8", "grpcCredentialsFile": str(credentials)}
    with served(tmp_path / "store", settings) as process:
        clients = {
            name: open_broker(process.address, mode="rw", access_key=name, secret_key="hush")
            for name in users
        }
        try:
            clients["admin"].create_topic("t", queues=2)
            for number in range(2):
                clients["reader"].commit_offset(f"g{number}", "t", 0, 0)
            with pytest.raises(RequestError, match="the limit for one user"):
                clients["reader"].commit_offset("g2", "t", 0, 0)
            for queue_id in range(2):
                clients["reader"].commit_offset("g1", "t", queue_id, 0)  # it has that group
            clients["owner"].commit_offset("own", "t", 0, 0)
        finally:
            for client in clients.values():
                client.close()
