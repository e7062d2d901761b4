from __future__ import annotations

from tools.architecture import PAGE, PICTURE, layers, missing_steps, picture, source_of


def test_the_picture_is_what_the_contracts_say() -> None:
    assert PICTURE.read_text("utf-8") == picture()
    assert [room for row in layers() for room in row if not source_of(room).is_file()] == []


def test_every_step_of_the_walks_exists() -> None:
    assert missing_steps(PAGE.read_text("utf-8")) == []


def test_a_step_that_does_not_exist_is_found() -> None:
    page = (
        "| 1 | `tools/architecture.py` | `missing_steps` | there |\n"
        "| 2 | `tools/architecture.py` | `gone` | not there |\n"
        "| 3 | `tools/gone.py` | `main` | not there |\n"
        "| 4 | `broker_core/types.py` | `QueueRef.gone` | not there |\n"
    )

    assert missing_steps(page) == [
        "tools/architecture.py: gone",
        "tools/gone.py: main",
        "broker_core/types.py: QueueRef.gone",
    ]
    assert missing_steps("no table") == ["there are no walks"]
