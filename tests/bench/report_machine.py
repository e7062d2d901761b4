"""The facts of the machine that a recorded run was made on; none of them names it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("pyspark", "pyarrow", "numpy", "grpcio")


def facts() -> dict[str, str]:
    """What a reader needs to compare figures with those of another machine."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "kernel": f"{platform.system()} {re.split(r'[^0-9.]', platform.release())[0]}",
        "Python": platform.python_version(),
        "Java": _java(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    models = re.findall(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return models[0] if models else platform.machine()


def _memory() -> str:
    total = re.search(r"^MemTotal:\s*(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return f"{int(total[1]) / 2**20:.1f} GiB" if total else "unknown"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    found = re.search(r'version "([^"]+)"', said.stderr)
    return found[1] if found else "unknown"


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""
