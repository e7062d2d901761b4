from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import ConfigError
from broker_core.service.settings import OPTIONS, ServiceSettings
from broker_core.store.broker_conf import parse_properties_file

SHIPPED = Path(__file__).resolve().parents[3] / "conf" / "broker.conf"


def test_the_configuration_that_ships_has_the_defaults() -> None:
    loaded = ServiceSettings.load(SHIPPED)

    defaults = ServiceSettings()
    for option in OPTIONS.values():
        assert getattr(loaded, option.attribute) == getattr(defaults, option.attribute)
    assert loaded.unknown == ()


def test_the_configuration_that_ships_explains_every_setting_of_ours() -> None:
    text = SHIPPED.read_text("utf-8")

    named = parse_properties_file(text.replace("\n#", "\n"))
    assert OPTIONS.keys() <= named.keys()


def test_settings_of_the_store_and_of_the_server_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\ngrpcMaxCalls=7\nflushDiskType=SYNC_FLUSH\n", "utf-8")

    loaded = ServiceSettings.load(path)

    assert (loaded.store.broker_name, loaded.store.flush, loaded.max_calls) == ("b", "sync", 7)


def test_an_unknown_setting_is_told_with_the_nearest_one() -> None:
    loaded = ServiceSettings.of({"brokerNmae": "b", "sendThreadPoolQueueCapacity": "9"}, "x")

    assert loaded.warnings() == [
        "unknown setting brokerNmae; did you mean brokerName?",
        "unknown setting sendThreadPoolQueueCapacity; it is not used here.",
    ]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("grpcMaxCalls", "many", "expected a number from 1 to 10000"),
        ("grpcMaxCalls", "0", "expected a number from 1 to 10000"),
        ("grpcListenAddress", "8081", "expected host:port"),
        ("grpcListenAddress", "host:99999", "expected host:port"),
        ("flushDiskType", "SOMETIMES", "expected ASYNC_FLUSH or SYNC_FLUSH"),
    ],
)
def test_a_malformed_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ServiceSettings.of({name: value}, "broker.conf")
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8081", True),
        ("localhost:0", True),
        ("[::1]:8081", True),
        ("0.0.0.0:8081", False),
        ("[::]:8081", False),
        ("broker.example:8081", False),
    ],
)
def test_only_this_machine_is_loopback(address: str, expected: bool) -> None:
    assert ServiceSettings().listening_at(address).is_loopback is expected


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Can't read configuration"):
        ServiceSettings.load(tmp_path / "none.conf")
