"""Frames: what real servers sent, what is refused, and that no cut of the stream matters."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire.remoting.command import Command, CommandFlag
from broker_core.wire.remoting.frame import (
    FrameReader,
    HeaderForm,
    MalformedFrameError,
    encode_frame,
)
from tests.kit.remoting import GOLDEN, decode_frame

CAPTURES = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in GOLDEN.glob("*.json")
}
FRAMES = [
    pytest.param(bytes.fromhex(frames[side]), id=f"{capture}: {name}, {side}")
    for capture, exchanges in CAPTURES.items()
    for name, frames in exchanges.items()
    for side in ("request", "answer")
]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
commands = st.builds(
    Command,
    code=st.integers(0, 2**15 - 1),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.sampled_from([0, 1, 2]),
    ext=st.dictionaries(texts, texts, max_size=6),
    body=st.binary(max_size=2000),
    remark=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    version=st.integers(0, 2**15 - 1),
)
forms = st.sampled_from(list(HeaderForm))


def received(frame: bytes, *cuts: int, limit: int = 1 << 20) -> list[Command]:
    reader = FrameReader(limit)
    found: list[Command] = []
    bounds = [0, *sorted(cut % (len(frame) + 1) for cut in cuts), len(frame)]
    for start, stop in pairwise(bounds):
        at = start
        while at < stop:
            space = reader.space()
            count = min(len(space), stop - at)
            space[:count] = frame[at : at + count]
            found += reader.feed(count)
            at += count
    return found


def header_frame(header: bytes, form: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), form << 24 | len(header)) + header + body


def test_known_answers_are_read() -> None:
    exchanges = CAPTURES["rocketmq-5.5.0-json"]

    pulled = decode_frame(bytes.fromhex(exchanges["pull"]["answer"]))
    route = decode_frame(bytes.fromhex(exchanges["route"]["answer"]))

    assert (pulled.code, pulled.is_response, pulled.version) == (0, True, 513)
    assert (pulled.ext["nextBeginOffset"], pulled.ext["maxOffset"]) == ("4", "4")
    assert bytes(pulled.body[4:8]).hex() == "daa320a7"
    assert json.loads(bytes(route.body))["queueDatas"][0]["readQueueNums"] == 1


@pytest.mark.parametrize("frame", FRAMES)
def test_real_frames_of_either_form_survive_a_round_trip(frame: bytes) -> None:
    command = decode_frame(frame)

    again = decode_frame(encode_frame(command, HeaderForm(frame[4])))

    assert again == command


@pytest.mark.parametrize("capture", CAPTURES)
def test_requests_are_written_byte_for_byte_as_servers_took_them(capture: str) -> None:
    frames = [bytes.fromhex(frames["request"]) for frames in CAPTURES[capture].values()]

    written = [encode_frame(decode_frame(frame), HeaderForm(frame[4])) for frame in frames]

    assert written == frames


@given(commands, forms)
def test_what_is_written_is_read(command: Command, form: HeaderForm) -> None:
    assert decode_frame(encode_frame(command, form)) == command


@given(st.lists(st.tuples(commands, forms), max_size=4), st.lists(st.integers(0), max_size=6))
def test_no_cut_of_the_stream_matters(
    stream: list[tuple[Command, HeaderForm]], cuts: list[int]
) -> None:
    frames = b"".join(encode_frame(command, form) for command, form in stream)

    assert received(frames, *cuts) == [command for command, _ in stream]


def test_frame_larger_than_the_staging_buffer_keeps_its_own_memory() -> None:
    large = Command(0, 7, CommandFlag.RESPONSE, {"a": "b"}, bytes(range(256)) * 4096)
    small = Command(0, 8, CommandFlag.RESPONSE, {}, b"small")

    found = received(encode_frame(large) + encode_frame(small), 100_000, 200_001, limit=4 << 20)

    assert [(command.opaque, bytes(command.body)) for command in found] == [
        (7, large.body),
        (8, b"small"),
    ]


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request", "1213486160 bytes", id="another protocol"),
        pytest.param(struct.pack(">iI", -1, 0), "-1 bytes", id="negative length"),
        pytest.param(struct.pack(">iI", 3, 0), "3 bytes", id="no room for the mark"),
        pytest.param(struct.pack(">iI", 2**31 - 1, 0), "limit is 1048576", id="huge length"),
        pytest.param(struct.pack(">iI", 1 << 20, 0), "limit is 1048576", id="just over the limit"),
        pytest.param(struct.pack(">iI", 100, 0xFFFFFF), "header of 16777215", id="endless header"),
        pytest.param(struct.pack(">iI", 100, 2 << 24), "form 2", id="unknown form"),
        pytest.param(header_frame(b""), "can't be read", id="empty JSON header"),
        pytest.param(header_frame(b"[]"), "no JSON object", id="no object"),
        pytest.param(header_frame(b'{"code":"x"}'), "code", id="code is text"),
        pytest.param(header_frame(b'{"opaque":99999999999}'), "opaque", id="opaque too wide"),
        pytest.param(header_frame(b'{"extFields":[1]}'), "extFields", id="fields are no object"),
        pytest.param(header_frame(b"\xff\xfe{}"), "can't be read", id="not UTF-8"),
        pytest.param(header_frame(b"[" * 100_000), "can't be read", id="nested without end"),
        pytest.param(header_frame(bytes(5), 1), "can't be read", id="binary header cut short"),
        pytest.param(
            header_frame(bytes(13) + struct.pack(">i", -5), 1), "-5 bytes", id="negative remark"
        ),
        pytest.param(
            header_frame(bytes(17) + struct.pack(">i", 1 << 30), 1), "1073741824", id="huge fields"
        ),
        pytest.param(
            header_frame(bytes(17) + struct.pack(">ih", 2, -1), 1), "-1 bytes", id="negative name"
        ),
    ],
)
def test_nonsense_is_refused_with_its_numbers(frame: bytes, complaint: str) -> None:
    with pytest.raises(MalformedFrameError, match=complaint):
        received(frame)


def test_too_many_fields_are_refused() -> None:
    header = json.dumps({"extFields": {str(number): "v" for number in range(5000)}}).encode()

    with pytest.raises(MalformedFrameError, match="4096"):
        received(header_frame(header))


def test_announced_length_alone_takes_no_memory() -> None:
    reader = FrameReader(1 << 30)
    reader.space()[:8] = struct.pack(">iI", (1 << 30) + 1, 0)
    tracemalloc.start()

    with pytest.raises(MalformedFrameError):
        reader.feed(8)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@given(st.binary(max_size=400), st.lists(st.integers(0), max_size=4))
def test_any_bytes_give_commands_or_one_kind_of_error(data: bytes, cuts: list[int]) -> None:
    try:
        found = received(data, *cuts, limit=4096)
    except MalformedFrameError:
        return
    assert sum(len(command.body) for command in found) <= len(data)


@given(commands, forms, st.data())
def test_a_flipped_byte_gives_a_command_or_one_kind_of_error(
    command: Command, form: HeaderForm, data: st.DataObject
) -> None:
    frame = bytearray(encode_frame(command, form))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(MalformedFrameError):
        assert len(received(bytes(frame), limit=8192)) <= 1
