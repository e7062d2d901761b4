"""Frames of ours are read by RocketMQ's own classes, and theirs by ours, in both forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.wire.remoting.command import Command
from broker_core.wire.remoting.frame import HeaderForm, encode_frame
from tests.interop.kit import peers
from tests.kit.remoting import decode_frame

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SOURCE = Path(__file__).with_name("Frames.java")
COMMANDS = [
    Command(105, 1, 0, {"topic": "orders", "acceptStandardJsonOnly": "true"}, b""),
    Command(
        310, 2**31 - 1, 0, {"a": "group", "i": "TAGS\x01A\x02k\x01v\x02", "b": "t"}, b"\x00\xff"
    ),
    Command(0, 77, 1, {"nextBeginOffset": "9223372036854775807"}, b"x" * 5000, "FOUND", 513),
    Command(17, 5, 1, {}, b"", 'no "topic" Bücher 订单 🚀 \\ /'),
    Command(12, 6, 2, {"key": "Schlüssel 键", "名": "値"}, b""),
]
FORMS = {HeaderForm.JSON: "JSON", HeaderForm.BINARY: "ROCKETMQ"}
CASES = [(command, form) for command in COMMANDS for form in FORMS]


def test_both_sides_write_what_the_other_reads(apache: None) -> None:
    questions = [_encode_line(command, FORMS[form]) for command, form in CASES]
    questions += [f"decode\t{encode_frame(command, form).hex()}" for command, form in CASES]

    theirs = _ask(questions)

    encoded, decoded = theirs[: len(CASES)], theirs[len(CASES) :]
    assert [decode_frame(bytes.fromhex(frame)) for frame in encoded] == [case for case, _ in CASES]
    assert decoded == [_decoded_line(command) for command, _ in CASES]


def test_binary_frames_are_the_same_byte_for_byte(apache: None) -> None:
    # Java writes its fields in the order of a hash table, so with one field there is one way.
    command = Command(30, 9, 0, {"queueId": "3"}, b"body", "remark", 475)

    (frame,) = _ask([_encode_line(command, "ROCKETMQ")])

    assert bytes.fromhex(frame) == encode_frame(command, HeaderForm.BINARY)


def _ask(questions: list[str]) -> list[str]:
    output = peers.java_tool(SOURCE, stdin="\n".join(questions) + "\n")
    return [line[2:] for line in output.splitlines() if line.startswith("> ")]


def _encode_line(command: Command, form: str) -> str:
    numbers = (command.code, command.opaque, command.flag, command.version)
    ext = [f"{name}={value}" for name, value in command.ext.items()]
    texts = (command.remark, bytes(command.body).hex(), *ext)
    return "\t".join(["encode", form, *map(str, numbers), *texts])


def _decoded_line(command: Command) -> str:
    numbers = (command.code, command.opaque, command.flag, command.version)
    ext = [f"{name}={value}" for name, value in sorted(command.ext.items())]
    texts = ("PYTHON", command.remark, bytes(command.body).hex(), *ext)
    return "\t".join([*map(str, numbers), *texts])
