"""Calls of a broker with nothing in between: as many as a hostile client likes, and silent ones."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
from numpy.typing import NDArray

from broker_core.codec.record import Record, encode_record
from broker_core.service.main import BrokerProcess
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.frames import pack_records

Rules = Sequence[tuple[str, str]]
RULES: Mapping[str, Rules] = {
    "owner": [("orders*", "publish"), ("orders*", "subscribe")],
    "norule": [],
    "reader": [("orders", "subscribe")],
    "stranger": [("mal*", "publish")],
    "admin": [("*", "admin")],
}
"""Users by what they may do; the secret of each is `hush`."""


def cheap_secret(secret: str = "hush", salt: bytes = b"salt") -> str:
    """A hashed secret that costs nothing to compare."""
    raw = hashlib.scrypt(secret.encode(), salt=salt, n=2, r=8, p=1, dklen=32)
    salt_text, text = (base64.b64encode(each).decode() for each in (salt, raw))
    return f"scrypt:2:8:1:{salt_text}:{text}"


def write_credentials(
    path: Path, rules: Mapping[str, Rules] = RULES, secret: str | None = None
) -> Path:
    """Write a credentials file, in one step as an operator should."""
    users = [
        {
            "name": name,
            "secret": secret or cheap_secret(),
            "rules": [{"topics": topics, "rights": [right]} for topics, right in granted],
        }
        for name, granted in rules.items()
    ]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"users": users}), "utf-8")
    new.replace(path)
    return path


def head_of(method: str, total: int) -> bytes:
    """The head of an append or a prepare that announces so many bytes."""
    if method.startswith("Prepare"):
        batch = pb.Batch(owner="query:q", name="", number=1)
        return pb.PrepareHead(batch=batch, attempt="a", total_bytes=total).SerializeToString()
    head = pb.AppendHead(total_bytes=total)
    head.request.client, head.request.sequence, head.request.attempt = b"c" * 16, 1, 1
    return head.SerializeToString()


def first_chunk(method: str, total: int, topic: str = "mal") -> bytes:
    """The first chunk of more, with one small record."""
    record = encode_record(Record(topic, 0, 0, 0, b"x", b""))
    sizes = sizes_of(len(record))
    return pack_records(head_of(method, total), sizes, memoryview(record), has_more=True)


def sizes_of(*sizes: int) -> NDArray[np.int32]:
    """Sizes of records as chunks carry them."""
    return np.array(sizes, np.int32)


@contextmanager
def raw_channel(process: BrokerProcess) -> Iterator[grpc.Channel]:
    """A connection of its own, with calls of any shape."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(process.address.removeprefix("grpc://"), options) as channel:
        yield channel


class RawCall:
    """One call that sends some messages and then nothing, without an end."""

    def __init__(
        self, channel: grpc.Channel, path: str, user: str | None, *messages: bytes
    ) -> None:
        self._over = threading.Event()
        metadata = [("authorization", f"Bearer {user}.hush")] if user else []
        stub = channel.stream_stream(path)
        self.replies = stub(self._requests(messages), metadata=metadata, timeout=60)

    def _requests(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        yield from messages
        self._over.wait(60)

    @property
    def is_over(self) -> bool:
        return bool(self.replies.done())

    def end(self) -> None:
        self.replies.cancel()
        self._over.set()


@contextmanager
def call_without_window(
    process: BrokerProcess, path: str, user: str | None, message: bytes
) -> Iterator[socket.socket]:
    """A connection with one call whose reply has no window to come in: it is never taken."""
    settings = struct.pack(">HI", 4, 0)  # SETTINGS_INITIAL_WINDOW_SIZE
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    if user:
        fields["authorization"] = f"Bearer {user}.hush"
    head = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )
    body = struct.pack(">BI", 0, len(message)) + message
    with socket.create_connection(("127.0.0.1", process.port), 30) as connection:
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _http2_frame(4, 0, 0, settings)
            + _http2_frame(1, 4, 1, head)
            + _http2_frame(0, 1, 1, body)
        )
        yield connection


def _http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Look every few milliseconds; fail with what was waited for."""
    until_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until_s, f"{what} did not come true"
        time.sleep(0.005)
