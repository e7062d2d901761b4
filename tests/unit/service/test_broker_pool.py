from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import UnavailableError
from broker_core.service.broker_pool import BrokerPool
from broker_core.store.settings import StoreSettings
from tests.contract.test_messages import outgoing
from tests.kit.served import SMALL_FILES
from tests.kit.stores import deleted_maps


@pytest.fixture
def pool(tmp_path: Path) -> BrokerPool:
    opened = BrokerPool.open(tmp_path / "store", StoreSettings.load(SMALL_FILES), create=True)
    with opened.broker() as broker:
        broker.create_topic("orders", queues=1)
        broker.append(outgoing(*[b"x" * 1000 for _ in range(200)]))
    return opened


def test_brokers_are_lent_one_at_a_time_and_used_again(pool: BrokerPool) -> None:
    with pool.broker() as one, pool.broker() as other:
        assert one is not other
    with pool.broker() as again:
        assert again in (one, other)
    pool.close()


def test_after_it_was_closed_nothing_is_lent(pool: BrokerPool) -> None:
    pool.close()

    with pytest.raises(UnavailableError, match="is stopping"), pool.broker():
        pass


def test_deleted_files_are_let_go_of(pool: BrokerPool) -> None:
    with pool.broker() as broker:
        assert broker.read("orders").num_rows == 200
        broker.delete_before(1 << 30)

    pool.trim()

    assert deleted_maps(pool.writer.root) == []
    pool.close()
