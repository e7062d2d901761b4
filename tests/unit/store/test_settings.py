from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import ConfigError, CorruptRecordError
from broker_core.store.settings import StoreSettings
from tests.kit import fixtures


def test_defaults_are_those_of_apache() -> None:
    settings = StoreSettings.load(None)

    assert settings.commit_log_file_bytes == 1073741824
    assert settings.consume_queue_file_bytes == 6000000
    assert settings.index_file_bytes == 420000040
    assert settings.delay_levels_ms[2] == 10_000
    assert len(settings.delay_levels_ms) == 18


def test_a_broker_conf_is_read(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# sizes\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue = 2001\n"
        "flushDiskType=SYNC_FLUSH\nbrokerName=b\nnamesrvAddr=127.0.0.1:9876\n",
        encoding="utf-8",
    )

    settings = StoreSettings.load(conf)

    assert settings.commit_log_file_bytes == 65536
    assert settings.consume_queue_file_bytes == 2020
    assert (settings.flush, settings.broker_name) == ("sync", "b")


def test_a_mapping_may_hold_numbers_and_booleans() -> None:
    settings = StoreSettings.load({"maxHashSlotNum": 500, "messageIndexEnable": False})

    assert (settings.index_slots, settings.index_enabled) == (500, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mappedFileSizeCommitLog", "1g"),
        ("mappedFileSizeCommitLog", str(1 << 31)),
        ("mappedFileSizeConsumeQueue", "0"),
        ("flushDiskType", "MAYBE"),
        ("messageIndexEnable", "yes"),
        ("brokerIP1", "localhost"),
        ("messageDelayLevel", "1x"),
    ],
)
def test_a_malformed_setting_is_named_with_an_example(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} in config= is '{value}', expected .*example"):
        StoreSettings.load({name: value})


def test_a_missing_broker_conf_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf"):
        StoreSettings.load(tmp_path / "none.conf")


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_sizes_come_from_the_files(tmp_path: Path, name: str) -> None:
    settings = StoreSettings().agreeing_with(fixtures.extract(name, tmp_path))

    assert settings.commit_log_file_bytes == 65536
    assert settings.consume_queue_file_bytes == 2000
    assert (settings.index_slots, settings.index_entries) == (500, 400)


def test_a_configuration_that_agrees_with_the_files_is_accepted(tmp_path: Path) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)

    settings = StoreSettings.load(fixtures.SIZES).agreeing_with(root)

    assert settings.commit_log_file_bytes == 65536


@pytest.mark.parametrize("name", sorted(fixtures.SIZES))
def test_a_configuration_that_contradicts_the_files_is_refused(tmp_path: Path, name: str) -> None:
    root = fixtures.extract("crash-5.5", tmp_path)
    config = fixtures.SIZES | {name: fixtures.SIZES[name] * 2}

    with pytest.raises(
        ConfigError, match=f"{name}={config[name]}, but the files .* {config[name] // 2}"
    ):
        StoreSettings.load(config).agreeing_with(root)


def test_paths_below_the_configured_root_follow_the_store() -> None:
    settings = StoreSettings.load(
        {"storePathRootDir": "/old/store", "storePathCommitLog": "/old/store/commitlog, /disk2/log"}
    )

    assert settings.commit_log_directories(Path("/new")) == (
        Path("/new/commitlog"),
        Path("/disk2/log"),
    )


def test_a_damaged_index_file_does_not_hide_the_others(tmp_path: Path) -> None:
    root = fixtures.extract("basic-5.5", tmp_path)
    newest = sorted((root / "index").iterdir())[-1]
    data = bytearray(newest.read_bytes())
    data[40:200] = b"\x7f" * 160
    newest.write_bytes(data)

    settings = StoreSettings().agreeing_with(root)

    assert (settings.index_slots, settings.index_entries) == (500, 400)


def test_index_files_that_can_not_tell_their_slots_are_reported(tmp_path: Path) -> None:
    root = fixtures.extract("basic-5.5", tmp_path)
    for path in (root / "index").iterdir():
        path.write_bytes(b"\x7f" * path.stat().st_size)

    with pytest.raises(CorruptRecordError, match="how many slots"):
        StoreSettings().agreeing_with(root)
    assert StoreSettings.load(fixtures.SIZES).agreeing_with(root).index_slots == 500
