"""The other end of a connection: a server on loopback that answers as a test tells it to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable

from broker_core.types import Closing
from broker_core.wire.remoting.command import Command, CommandFlag
from broker_core.wire.remoting.frame import FrameReader, HeaderForm, encode_frame
from broker_core.wire.remoting.route import Endpoint

Answer = Command | bytes | None
"""A command is framed, bytes are sent as they are, None hangs up."""
Handler = Callable[[Command], Iterable[Answer]]


def answer(
    request: Command,
    code: int = 0,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    remark: str = "",
) -> Command:
    """A response to a request."""
    return Command(code, request.opaque, CommandFlag.RESPONSE, ext or {}, body, remark)


class Peer(Closing):
    """Listens from construction on; `requests` are all that came, over all connections.

    `answered` counts those that have been dealt with.
    """

    def __init__(self, handler: Handler, form: HeaderForm = HeaderForm.JSON) -> None:
        self.requests: list[Command] = []
        self.connections = 0
        self.answered = 0
        self._handler = handler
        self._form = form
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname())
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Close all connections there are; new ones are taken."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with contextlib.suppress(OSError), connection:
            while count := connection.recv_into(reader.space()):
                for request in reader.feed(count):
                    self.requests.append(request)
                    for item in self._handler(request):
                        if item is None:
                            return
                        is_raw = isinstance(item, bytes)
                        connection.sendall(item if is_raw else encode_frame(item, self._form))  # type: ignore[arg-type]  # told apart
                    self.answered += 1
