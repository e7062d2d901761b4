"""The quotas of groups and topics: one user's many leave room for the others'."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.errors import RequestError
from broker_core.service.core import write
from broker_core.service.group_quota import GroupQuota, TopicQuota
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


def test_a_topic_that_could_not_be_made_counts_for_nobody() -> None:
    quota = TopicQuota(8)
    with pytest.raises(OSError, match="full"), quota.making("stranger", "a"):
        raise OSError("full")
    for topic in ("b", "c", "c"):
        with quota.making("stranger", topic):
            pass

    with pytest.raises(RequestError, match="stranger has made 2"), quota.making("stranger", "d"):
        pass
    for topic in "defg":
        with quota.making("", topic):
            pass


def test_a_sender_does_not_keep_others_from_their_first_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MOST_TOPICS_BY_SENDING", 8)
    settings = {
        "grpcCredentialsFile": str(write_credentials(tmp_path / "users.json")),
        "autoCreateTopicEnable": "true",
    }
    with served(tmp_path / "store", settings) as process:
        with open_broker(process.address, "rw", token="stranger.hush") as stranger:
            for topic in ("mal1", "mal2", "mal1"):
                stranger.send(topic, b"x")
            with pytest.raises(RequestError, match="the limit for one user"):
                stranger.send("mal3", b"x")
            stranger.send("mal2", b"x")
        with open_broker(process.address, "rw", token="owner.hush") as owner:
            owner.send("orders", b"x")
