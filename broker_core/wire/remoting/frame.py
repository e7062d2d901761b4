"""Frames: the bytes of commands on the wire, in both directions.

All integers are big-endian, all text is UTF-8.

    totalLength   i32   bytes that follow this field: 4 + header + body
    headerMark    i32   top 8 bits: form of the header (0 JSON, 1 binary); low 24: its length
    header
    body                the rest of totalLength, maybe nothing

A JSON header is an object; members that are null are left out, unknown ones are ignored:

    code, flag, opaque, version   32-bit integers
    language                      text, "PYTHON"
    remark                        text, if any
    extFields                     object, text to text, if any

A binary header:

    code i16, language i8, version i16, opaque i32, flag i32
    remark       i32 length, text
    extFields    i32 length of all, then entries: i16 length, name, i32 length, value

Problem. TCP cuts the stream anywhere, and any peer may send anything, from HTTP to a length of
2 GiB. Pull answers are the bulk of all bytes, so their bodies should not be copied more than once.

Invariants.
- Every size that a peer announces is checked before memory is taken for it: one frame takes
  `max_frame_bytes` at most, RocketMQ's own 16 MiB by default, the leading length included.
- A frame is read by its own mark: servers of 5.x answer in the form that they are set up for,
  whatever was asked.
- Bytes that are no frame end in MalformedFrameError and in nothing else; the stream can't be used
  after it, for the start of the next frame is unknown.
- An extension field without name or value counts as absent in a binary header, so such fields are
  dropped on reading and never written.

Outline. FrameReader hands out space to receive into. Frames that fit pass through one staging
buffer of 256 KiB, and their bodies are copied out of it; a larger frame gets a buffer of its own,
in which its body stays. `encode_frame` writes either form; clients here write JSON, which every
server reads.

Rejected. A buffer for each frame: answers of a default broker have 32 messages, and many of them
arrive in one read. json.dumps for headers: most fields of a pull are equal from pull to pull, so
their JSON is made once (`share`) and joined.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from enum import IntEnum
from json.encoder import encode_basestring as _quoted
from operator import itemgetter

import numpy as np

from broker_core.errors import UnavailableError
from broker_core.wire.remoting.command import (
    LANGUAGE,
    LANGUAGE_CODE,
    Body,
    Command,
    SharedFields,
)

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""RocketMQ's own limit, the leading length included."""
MAX_EXT_FIELDS = 4096
_STAGING_BYTES = 256 * 1024

_LENGTHS = struct.Struct(">iI")
_BINARY_HEAD = struct.Struct(">hbhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_HEADER_MASK = 0xFFFFFF
_FROM_JSON = json.JSONDecoder().raw_decode
_INT_LIMIT = 1 << 31
_DEFAULTS = {"code": 0, "opaque": 0, "flag": 0, "version": 0}
_INTEGERS = itemgetter(*_DEFAULTS)


class HeaderForm(IntEnum):
    """The two forms of a frame's header."""

    JSON = 0
    BINARY = 1


class RemotingProtocolError(UnavailableError):
    """A peer does not speak the remoting protocol, or breaks it. Not retryable."""

    retryable = False


class MalformedFrameError(ValueError):
    """Bytes are no frame; the connection adds the peer's address."""


def share(fields: Mapping[str, str]) -> SharedFields:
    """Return extension fields for many requests, with their JSON."""
    return SharedFields(fields, _json_members(fields))


def encode_frame(command: Command, form: HeaderForm = HeaderForm.JSON, shared: str = "") -> bytes:
    """Return the bytes of a command; `shared` is the JSON of more extension fields, from `share`.

    >>> encode_frame(Command(105, 1, 0, {"topic": "T"}, b""), HeaderForm.BINARY).hex(" ", -4)
    '00000025 01000021 00690301 db000000 01000000 00000000 00000000 0c000574 6f706963 00000001 54'
    """
    is_json = form is HeaderForm.JSON
    # `shared` is JSON: callers that write binary headers put all fields into the command.
    header = _json_header(command, shared) if is_json else _binary_header(command)
    total = 4 + len(header) + len(command.body)
    return _LENGTHS.pack(total, form << 24 | len(header)) + header + command.body


def _json_header(command: Command, shared: str) -> bytes:
    remark = f',"remark":{_quoted(command.remark)}' if command.remark else ""
    fields = ",".join(filter(None, (shared, _json_members(command.ext))))
    ext = f',"extFields":{{{fields}}}' if fields else ""
    return (
        f'{{"code":{command.code:d},"flag":{command.flag:d},"language":"{LANGUAGE}",'
        f'"opaque":{command.opaque},"version":{command.version}{remark}{ext}}}'
    ).encode()


def _json_members(fields: Mapping[str, str]) -> str:
    return ",".join([f"{_quoted(name)}:{_quoted(value)}" for name, value in fields.items()])


def _binary_header(command: Command) -> bytes:
    remark = command.remark.encode()
    entries = b"".join(_binary_entry(*entry) for entry in command.ext.items() if all(entry))
    head = _BINARY_HEAD.pack(
        command.code, LANGUAGE_CODE, command.version, command.opaque, command.flag
    )
    return b"".join((head, _INT.pack(len(remark)), remark, _INT.pack(len(entries)), entries))


def _binary_entry(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return _SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text


class FrameReader:
    """Received bytes on their way to commands, however the stream was cut.

    Receive into `space()`, then `feed` the number of bytes that came.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._staging[self._end :]

    def feed(self, count: int) -> list[Command]:
        """Return the commands that `count` more bytes complete.

        MalformedFrameError ends the stream.
        """
        if self._large is not None:
            return self._feed_large(self._large, count)
        commands = []
        self._end += count
        while self._end - self._start >= _LENGTHS.size:
            size = self._frame_bytes()
            if size > self._end - self._start:
                # The rest comes with later reads; into the staging buffer if it fits there.
                if size > len(self._staging):
                    self._begin_large(size)
                break
            at, self._start = self._start, self._start + size
            commands.append(_command(self._staging[at : at + size], copies=True))
        self._make_room()
        return commands

    def _feed_large(self, frame: memoryview, count: int) -> list[Command]:
        self._filled += count
        if self._filled < len(frame):
            return []
        self._large = None
        return [_command(frame, copies=False)]

    def _frame_bytes(self) -> int:
        """Return the checked length of the frame that begins in the staging buffer."""
        total, mark = _LENGTHS.unpack_from(self._staging, self._start)
        header = mark & _HEADER_MASK
        if total < 4 or total + 4 > self._max_frame_bytes:
            raise MalformedFrameError(
                f"a frame of {total} bytes is announced, the limit is {self._max_frame_bytes}"
                f" (max_frame_bytes)"
            )
        if header > total - 4:
            raise MalformedFrameError(f"a frame of {total} bytes claims a header of {header}")
        if mark >> 24 not in (HeaderForm.JSON, HeaderForm.BINARY):
            raise MalformedFrameError(f"header form {mark >> 24} is unknown (known: 0 and 1)")
        return int(total) + 4

    def _begin_large(self, size: int) -> None:
        received = self._end - self._start
        # np.empty, for a bytearray would be zeroed first.
        self._large = np.empty(size, dtype=np.uint8).data
        self._large[:received] = self._staging[self._start : self._end]
        self._filled = received
        self._start = self._end = 0

    @property
    def _is_full(self) -> bool:
        return self._end == len(self._staging)

    def _make_room(self) -> None:
        """Move the rest in the staging buffer to its front, when little space is behind it."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start > len(self._staging) // 2 or (self._start and self._is_full):
            rest = bytes(self._staging[self._start : self._end])
            self._staging[: len(rest)] = rest
            self._start, self._end = 0, len(rest)


def _command(frame: memoryview, *, copies: bool) -> Command:
    _, mark = _LENGTHS.unpack_from(frame)
    end = _LENGTHS.size + (mark & _HEADER_MASK)
    header = bytes(frame[_LENGTHS.size : end])
    body: Body = bytes(frame[end:]) if copies else frame[end:]
    try:
        if mark >> 24 == HeaderForm.JSON:
            return _read_json(header, body)
        return _read_binary(header, body)
    except (ValueError, struct.error, RecursionError) as error:
        text = f"its header of {len(header)} bytes can't be read ({error})"
        raise MalformedFrameError(text) from error


def _read_json(header: bytes, body: Body) -> Command:
    # raw_decode skips no blanks, and tells where the value ends: nothing may follow it.
    text = header.decode().strip()
    found, end = _FROM_JSON(text)
    if not isinstance(found, dict) or end != len(text):
        raise MalformedFrameError("it is no JSON object")
    ext = found.get("extFields") or {}
    if not isinstance(ext, dict) or len(ext) > MAX_EXT_FIELDS:
        raise MalformedFrameError(f"extFields is no object of at most {MAX_EXT_FIELDS} members")
    code, opaque, flag, version = numbers = _INTEGERS(_DEFAULTS | found)
    # `type is int`: JSON's true would pass isinstance.
    for value in numbers:
        if type(value) is not int or not -_INT_LIMIT <= value < _INT_LIMIT:
            raise MalformedFrameError(
                f"code, opaque, flag or version, {value}, is no 32-bit integer"
            )
    fields = {name: str(value) for name, value in ext.items() if value is not None and value != ""}
    return Command(code, opaque, flag, fields, body, str(found.get("remark") or ""), version)


def _read_binary(header: bytes, body: Body) -> Command:
    code, _, version, opaque, flag = _BINARY_HEAD.unpack_from(header)
    remark, at = _binary_text(header, _BINARY_HEAD.size, _INT)
    (length,) = _INT.unpack_from(header, at)
    end = at + _INT.size + length
    if length < 0 or end > len(header):
        raise MalformedFrameError(f"extFields takes {length} bytes of a header of {len(header)}")
    at += _INT.size
    ext: dict[str, str] = {}
    while at < end:
        name, at = _binary_text(header, at, _SHORT)
        value, at = _binary_text(header, at, _INT)
        if name and value:
            ext[name] = value
        if at > end or len(ext) > MAX_EXT_FIELDS:
            raise MalformedFrameError("an extension field reaches beyond extFields")
    return Command(code, opaque, flag, ext, body, remark, version)


def _binary_text(header: bytes, at: int, length_type: struct.Struct) -> tuple[str, int]:
    (length,) = length_type.unpack_from(header, at)
    start = at + length_type.size
    if length < 0 or start + length > len(header):
        raise MalformedFrameError(f"a text of {length} bytes in a header of {len(header)}")
    return header[start : start + length].decode(), start + length
