"""What is built can be installed elsewhere, and the README's first stream then runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.kit.fixtures import open_archive

ROOT = Path(__file__).resolve().parents[2]
FIRST_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source archive of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment elsewhere that has the wheel, and borrows what it depends on from here."""
    return environment(tmp_path_factory.mktemp("elsewhere") / "env", dist)


@pytest.fixture(scope="module")
def sparkless(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as `python`, without pyspark, which is an extra."""
    return environment(tmp_path_factory.mktemp("sparkless") / "env", dist, "pyspark", "py4j")


def environment(folder: Path, dist: Path, *without: str) -> Path:
    """Make an environment that has the wheel, and all packages of this one but some."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    # The pip of this environment, working for that one, so that no network is needed.
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", "--quiet", str(wheel)], check=True)
    borrow(python, without)
    return python


def borrow(python: Path, without: tuple[str, ...]) -> None:
    """Let an environment see the packages of this one, but not the checkout."""
    (theirs,) = python.parent.parent.glob("lib/python3*/site-packages")
    (ours,) = {Path(path) for path in sys.path if path.endswith("site-packages")}
    is_project = re.compile(r"broker_core|pyspark_rocketmq|_virtualenv|.*\.pth$")
    for entry in ours.iterdir():
        link = theirs / entry.name
        is_left_out = re.split(r"[-.]", entry.name)[0] in without
        if not is_project.match(entry.name) and not is_left_out and not link.exists():
            link.symlink_to(entry)


def outside(python: Path, folder: Path, *arguments: str) -> str:
    """Run that Python as in an activated environment, where the checkout can't be found."""
    keep = ("HOME", "JAVA_HOME", "LANG", "PATH", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "TMPDIR")
    env = {name: value for name, value in os.environ.items() if name in keep}
    env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", "")])
    done = subprocess.run(
        [python, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_stream_of_the_readme_runs_from_the_wheel(python: Path, tmp_path: Path) -> None:
    found = FIRST_BLOCK.search((ROOT / "README.md").read_text("utf-8"))
    assert found is not None
    script = tmp_path / "first_stream.py"
    script.write_text(found[1].replace("/tmp/", f"{tmp_path}/"), "utf-8")

    said = outside(python, tmp_path, str(script))

    assert "o-1" in said
    assert "68 65 6C 6C 6F" in said  # hello, as the console shows binary columns


def test_the_package_comes_from_the_wheel_with_types_and_command(
    python: Path, tmp_path: Path
) -> None:
    code = "import broker_core, pyspark_rocketmq as p; print(broker_core.__file__, p.__file__)"
    places = outside(python, tmp_path, "-c", code).split()

    assert all(Path(place).is_relative_to(python.parent.parent) for place in places)
    assert all((Path(place).parent / "py.typed").exists() for place in places)
    assert "serve" in outside(python, tmp_path, str(python.with_name("rocketmq-broker")), "--help")


def test_everything_but_the_source_works_without_spark(sparkless: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util, pyspark_rocketmq as p;"
        "assert importlib.util.find_spec('pyspark') is None;"
        "broker = p.open_broker('store', mode='rw', create=True);"
        "broker.create_topic('orders'); broker.send('orders', b'hello'); broker.close();"
        "print(p.SqlFilter('a = 1').verdicts([{'a': '1'}]))"
    )
    command = str(sparkless.with_name("rocketmq-broker"))

    assert "['true']" in outside(sparkless, tmp_path, "-c", code)
    assert "orders" in outside(sparkless, tmp_path, command, "topics", "list", "--broker", "store")


def test_the_wheel_says_what_it_is(dist: Path, python: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import distribution as d;"
        "print(d('pyspark-rocketmq').read_text('METADATA'))"
    )

    facts = HeaderParser().parsestr(outside(python, tmp_path, "-c", code))

    assert facts["Name"] == "pyspark-rocketmq"
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts.get_all("Provides-Extra") == ["spark"]
    needed = [line for line in facts.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert not any(line.startswith("pyspark") for line in needed)
    classifiers = facts.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert "Programming Language :: Python :: 3.11" in classifiers


def test_a_wheel_can_be_built_from_the_source_archive(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with open_archive(archive) as packed:
        packed.extractall(tmp_path)
    (source,) = tmp_path.iterdir()

    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path / "again"),
    ]
    subprocess.run(build, cwd=source, check=True, capture_output=True)

    (again,) = (tmp_path / "again").glob("*.whl")
    (first,) = dist.glob("*.whl")
    assert again.read_bytes() == first.read_bytes()
