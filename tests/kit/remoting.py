"""Whole frames of the remoting protocol, for tests that compare what was captured."""

from __future__ import annotations

from pathlib import Path

from broker_core.wire.remoting.command import Command
from broker_core.wire.remoting.frame import FrameReader, MalformedFrameError

GOLDEN = Path(__file__).parents[1] / "golden" / "remoting"


def decode_frame(frame: bytes) -> Command:
    """Return the command of one whole frame; MalformedFrameError if it is none."""
    reader = FrameReader(max(len(frame), 8))
    commands: list[Command] = []
    at = 0
    while at < len(frame):
        space = reader.space()
        count = min(len(space), len(frame) - at)
        space[:count] = frame[at : at + count]
        commands += reader.feed(count)
        at += count
    if len(commands) != 1:
        raise MalformedFrameError(f"{len(frame)} bytes hold {len(commands)} whole frames, not one")
    return commands[0]
