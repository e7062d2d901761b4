"""The public surface: names that users may import, and the cost of importing them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import broker_core
import pyspark_rocketmq
from broker_core import api
from tests.kit.paths import ROOT
from tests.kit.stores import create

HEAVY = ("numpy", "pyarrow", "numba", "llvmlite", "grpc", "google", "rich", "pandas", "pyspark")


def modules_after(script: str) -> list[str]:
    """The names of all modules that a new process has loaded when a script has run."""
    told = f"{script}\nimport sys, json; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stderr.splitlines()[-1])
    return loaded


def heavy(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}.intersection(HEAVY)


def command(*words: str) -> str:
    """A script that runs `rocketmq-broker` to its end, and goes on."""
    return (
        "from broker_core.cli import main\n"
        f"try:\n    main({list(words)!r}, prog_name='rocketmq-broker')\n"
        "except SystemExit as end:\n    assert not end.code"
    )


@pytest.mark.parametrize("package", [broker_core, pyspark_rocketmq])
def test_every_public_name_can_be_had(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]

    assert names == sorted(set(names), key=lambda name: (not name[0].isupper(), name))
    assert [name for name in names if not hasattr(package, name)] == []
    assert set(names) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018 - on purpose


def test_everything_that_the_protocol_mentions_is_public() -> None:
    tree = ast.parse(Path(api.__file__).read_text("utf-8"))
    mentioned = {each.name for each in tree.body if isinstance(each, ast.ClassDef)}
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("broker_core"):
            mentioned.update(name.name for name in each.names)

    assert mentioned - set(broker_core.__all__) == set()


def test_every_error_is_public() -> None:
    from broker_core import errors

    raised = {name for name in vars(errors) if name.endswith("Error")}

    assert raised - set(broker_core.__all__) == set()


def test_the_spark_half_has_what_its_users_import() -> None:
    expected = {"DefaultSource", "LagListener", "SqlFilter", "open_broker", "register"}

    assert expected <= set(pyspark_rocketmq.__all__)
    assert pyspark_rocketmq.open_broker is broker_core.open_broker


def test_importing_the_spark_half_loads_nothing_else() -> None:
    loaded = modules_after("import pyspark_rocketmq")

    assert heavy(loaded) == set()
    assert [name for name in loaded if name.startswith("broker_core")] == []


def test_the_spark_half_can_be_imported_where_there_is_no_spark() -> None:
    script = "import sys; sys.modules['pyspark'] = None; import pyspark_rocketmq"
    without = f"{script}; pyspark_rocketmq.open_broker; pyspark_rocketmq.SqlFilter('a = 1')"

    assert "pyspark_rocketmq" in modules_after(without)


def test_looking_for_the_source_loads_spark_and_none_of_our_machinery() -> None:
    loaded = modules_after("import pyspark_rocketmq; pyspark_rocketmq.DefaultSource.name()")

    assert {name for name in loaded if name.startswith("pyspark_rocketmq")} == {
        "pyspark_rocketmq",
        "pyspark_rocketmq.data_source",
    }
    assert heavy(loaded).isdisjoint({"numba", "grpc"})


def test_importing_the_core_loads_errors_and_types_only() -> None:
    loaded = modules_after("import broker_core")

    assert heavy(loaded) == set()
    assert {name for name in loaded if name.startswith("broker_core")} == {
        "broker_core",
        "broker_core.errors",
        "broker_core.types",
    }


def test_help_loads_no_heavy_module() -> None:
    loaded = modules_after(command("--help"))

    assert heavy(loaded) == set()
    assert sum(name.startswith("broker_core") for name in loaded) < 35


def test_listing_the_topics_of_a_store_loads_what_reading_needs(tmp_path: Path) -> None:
    create(tmp_path / "store").close()

    loaded = modules_after(command("topics", "list", "--broker", str(tmp_path / "store")))

    assert heavy(loaded) <= {"numpy", "pyarrow"}
    assert sum(name.startswith("broker_core") for name in loaded) < 86
