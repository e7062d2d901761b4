"""Apache RocketMQ's jars, and Java programs run with them.

Jars come from Maven by the pom.xml beside this file; Java sources are compiled once. Both are kept
below .peers at the project's root, which git ignores and which may be deleted at any time:

    .peers/rocketmq-5.5.0/*.jar      jars of one release, there entirely or not at all
    .peers/classes/KEY/*.class       one source and its neighbours, compiled against one release
    .peers/home                      where the clients of these programs put their logs
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".peers"
VERSION = "5.5.0"
JAVA_DIR = Path(__file__).resolve().parents[1] / "java"

_POM = Path(__file__).with_name("pom.xml")
# Programs here live for seconds: a small heap, one collector thread and the quick compiler.
_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")


class PeerError(Exception):
    """A peer or a Java program could not be fetched, started or run; the text says why."""


def missing() -> str | None:
    """Return one line that says what the interop tests lack on this machine, or None."""
    absent = [name for name in ("java", "javac", "mvn") if _find(name) is None]
    if not absent:
        return None
    return f"interop tests need {', '.join(absent)} on PATH (a JDK 17 or newer and Maven 3)"


def java() -> str:
    """Return the path of the Java launcher."""
    return _program("java")


def jars(version: str = VERSION) -> Path:
    """Return the directory with the jars of a release, fetched by Maven if it is not there yet."""
    return artifacts(f"rocketmq-{version}", _POM, f"-Drocketmq.version={version}")


def artifacts(name: str, pom: Path, *options: str) -> Path:
    """Return the directory with the jars that a pom names, fetched by Maven if need be.

    Safe to call from several processes at once: one fetches, the others wait for it.
    """
    directory = CACHE / name
    if not directory.is_dir():
        with _locked(name):
            if not directory.is_dir():
                _fetch(directory, pom, options)
    return directory


def java_tool(
    source: Path | str,
    *args: str,
    version: str = VERSION,
    stdin: str = "",
    timeout_s: float = 180,
) -> str:
    """Run a Java program to its end and return its standard output.

    Args:
        source: A .java file with a main method; a bare name is looked up in tests/interop/java.
        args: The program's arguments.
        version: The release whose jars are on the class path.
        stdin: Text for the program's standard input.
        timeout_s: After this many seconds the program is killed and PeerError raised.
    """
    command = java_command(source, *args, version=version)
    try:
        done = subprocess.run(
            command,
            check=False,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{source} did not end within {timeout_s:.0f} s"
        raise PeerError(text) from error
    if done.returncode != 0:
        text = f"{source} ended with status {done.returncode}:\n{done.stderr[-4000:]}"
        raise PeerError(text)
    return done.stdout


def java_process(
    source: Path | str,
    *args: str,
    version: str = VERSION,
    stderr: IO[str] | None = None,
    jvm: Sequence[str] = _JVM_OPTIONS,
) -> subprocess.Popen[str]:
    """Start a Java program and return it running, with text pipes for its input and output."""
    return subprocess.Popen(
        java_command(source, *args, version=version, jvm=jvm),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
    )


def java_command(
    source: Path | str, *args: str, version: str = VERSION, jvm: Sequence[str] = _JVM_OPTIONS
) -> list[str]:
    """Return the command line that runs a Java program, compiling it first if that is needed."""
    path = source if isinstance(source, Path) else JAVA_DIR / source
    classes = _compiled(path, version)
    home = CACHE / "home"
    home.mkdir(parents=True, exist_ok=True)
    class_path = f"{classes}{os.pathsep}{jars(version)}/*"
    return [java(), *jvm, f"-Duser.home={home}", "-cp", class_path, path.stem, *args]


def _compiled(source: Path, version: str) -> Path:
    """Return the directory with a source's classes and those of the neighbours it uses."""
    neighbours = sorted(source.parent.glob("*.java"))
    texts = b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in neighbours)
    key = hashlib.sha256(f"{version}\0{source.name}\0".encode() + texts).hexdigest()[:20]
    classes = CACHE / "classes" / f"{source.stem}-{version}-{key}"
    if not classes.is_dir():
        with _locked(classes.name):
            if not classes.is_dir():
                _compile(source, version, classes)
    return classes


def _compile(source: Path, version: str, classes: Path) -> None:
    partial = _fresh(classes)
    options = ["--release", "17", "-encoding", "UTF-8", "-nowarn", "-proc:none"]
    paths = ["-sourcepath", str(source.parent), "-cp", f"{jars(version)}/*", "-d", str(partial)]
    _run([_program("javac"), *options, *paths, str(source)], f"{source.name} does not compile")
    partial.rename(classes)


def _fetch(directory: Path, pom: Path, options: Sequence[str]) -> None:
    partial = _fresh(directory)
    command = [
        *(_program("mvn"), "--quiet", "--batch-mode", "-Dstyle.color=never", "-f", str(pom)),
        *options,
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={partial}",
    ]
    _run(command, f"Maven could not fetch the jars of {directory.name}")
    partial.rename(directory)


def _fresh(directory: Path) -> Path:
    """Return an empty sibling to fill and rename: the directory itself is never half there."""
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        text = f"{failure}:\n{(done.stdout + done.stderr)[-4000:]}"
        raise PeerError(text)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _program(name: str) -> str:
    path = _find(name)
    if path is None:
        raise PeerError(missing())
    return path


def _find(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and name != "mvn" and (found := shutil.which(name, path=f"{home}/bin")):
        return found
    return shutil.which(name)
