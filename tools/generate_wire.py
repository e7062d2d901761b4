"""Make broker_pb2.py and broker_pb2.pyi from broker.proto: `python -m tools.generate_wire`.

The module wraps the compiled descriptor through protobuf's public interface. protoc's own module
refuses every runtime older than protoc, and would force its version on all users of this library.
The type stubs are protoc's. `--check` exits with 1 if a file is stale. Needs grpcio-tools, a
dependency of development only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

HERE = Path(__file__).resolve().parent.parent / "broker_core" / "wire" / "core"
PROTO = "broker.proto"
_HEADER = '''"""Messages of broker.proto. Made by tools/generate_wire.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# A pool of its own: another library's file of the same name would clash in the default one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
'''
_TYPES_HEADER = "# mypy: disable-error-code=type-arg\n"
_LINE_BYTES = 64


def generate() -> dict[str, str]:
    """Return the generated files by name."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        arguments = ["protoc", f"-I{HERE}", f"--pyi_out={out}"]
        arguments += [f"--descriptor_set_out={out / 'set'}", str(HERE / PROTO)]
        if protoc.main(arguments):
            message = f"protoc refused {PROTO}"
            raise SystemExit(message)
        compiled = descriptor_pb2.FileDescriptorSet.FromString((out / "set").read_bytes())
        types = _TYPES_HEADER + (out / "broker_pb2.pyi").read_text("utf-8")
    module = _module(compiled.file[0])
    return {"broker_pb2.py": module, "broker_pb2.pyi": types}


def _module(file: FileDescriptorProto) -> str:
    descriptor = file.SerializeToString(deterministic=True)
    pieces = [descriptor[at : at + _LINE_BYTES] for at in range(0, len(descriptor), _LINE_BYTES)]
    lines = [f"    {piece!r}" for piece in pieces] + [")"]
    lines += [
        f"{message.name} = message_factory.GetMessageClass(\n"
        f'    _POOL.FindMessageTypeByName("{file.package}.{message.name}")\n)'
        for message in file.message_type
    ]
    return _HEADER + "\n".join(lines) + "\n"


def stale() -> list[str]:
    """Return the names of files that are not what broker.proto says."""
    return [
        name
        for name, content in generate().items()
        if not (HERE / name).exists() or (HERE / name).read_text("utf-8") != content
    ]


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say which are stale."""
    if arguments == ["--check"]:
        old = stale()
        if old:
            sys.stderr.write(f"stale: {', '.join(old)}; python -m tools.generate_wire\n")
        return 1 if old else 0
    for name, content in generate().items():
        (HERE / name).write_text(content, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
