"""`./run`: what it prints, when it sets up again, which Java it takes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = ["demo", "test", "check", "interop", "bench", "notebooks"]


@pytest.fixture(scope="module")
def run() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("project_run", str(ROOT / "run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up by name
    loader.exec_module(module)
    return module


def java_home(home: Path, release: str) -> Path:
    """A folder that looks like a Java of this version."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{release}"\n')
    return home


@pytest.mark.parametrize("arguments", [[], ["no-such-target"]], ids=["none", "unknown"])
def test_anything_but_a_target_prints_the_list_and_exits_2(arguments: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "run", *arguments], capture_output=True, text=True, check=False
    )

    listed = [line.split()[0] for line in answer.stderr.splitlines() if line.startswith("  ")]
    assert answer.returncode == 2
    assert listed[: len(TARGETS)] == TARGETS


@pytest.mark.parametrize(
    ("release", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25)]
)
def test_java_version_is_read_from_the_release_file(
    run: ModuleType, tmp_path: Path, release: str, major: int
) -> None:
    assert run.java_version(java_home(tmp_path / "jvm", release)) == major


def test_folder_without_java_has_version_0(run: ModuleType, tmp_path: Path) -> None:
    assert run.java_version(tmp_path) == 0


def test_java_home_wins_when_new_enough(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "mine", "21.0.1")))

    assert run.find_java() == tmp_path / "mine"


def test_java_home_that_is_too_old_is_passed_over(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = java_home(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "mine", "11.0.2")))
    monkeypatch.setenv("PATH", str(other / "bin"))

    assert run.find_java() == other


def test_environment_is_ready_only_for_the_lock_it_was_made_from(
    run: ModuleType, tmp_path: Path
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy==2.0\n")
    made = run.Environment(tmp_path / "venv", lock)
    made.python.parent.mkdir(parents=True)
    made.python.write_text("")
    made.stamp.write_text(f"{made.place()}\n{made.content()}\n")

    before = made.ready()
    lock.write_text("numpy==2.1\n")
    after = made.ready()

    assert (before, after) == (True, False)


def test_environment_whose_python_is_gone_is_not_ready(run: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy==2.0\n")
    made = run.Environment(tmp_path / "venv", lock)
    made.folder.mkdir()
    made.stamp.write_text(f"{made.place()}\n{made.content()}\n")

    assert not made.ready()


def test_project_in_a_path_with_a_blank_is_reached_by_a_link(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "a b"
    project.mkdir()
    monkeypatch.setattr(run, "ROOT", project)
    monkeypatch.setattr(run.tempfile, "tempdir", str(tmp_path))

    first, second = run.plain_root(), run.plain_root()

    assert first == second
    assert " " not in str(first)
    assert first.resolve() == project.resolve()


def test_link_that_leads_elsewhere_is_replaced(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "a b"
    project.mkdir()
    monkeypatch.setattr(run, "ROOT", project)
    monkeypatch.setattr(run.tempfile, "tempdir", str(tmp_path))
    link = run.plain_root()
    link.unlink()
    link.symlink_to(tmp_path)

    assert run.plain_root().resolve() == project.resolve()
