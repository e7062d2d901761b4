"""How much either end takes at once: what it asks of gRPC, and what it checks itself."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.codec.layout import MAX_BODY_BYTES, RECORD_HEADROOM_BYTES
from broker_core.wire.core.append_result import ROW_BYTES

_MEGABYTE = 1 << 20
_SMALLEST_RECORD_BYTES = 91
_HEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of one body, of the records in one chunk, of the records in one append."""

    message_bytes: int = MAX_BODY_BYTES
    chunk_bytes: int = 4 * _MEGABYTE
    append_bytes: int = 128 * _MEGABYTE

    @property
    def request_bytes(self) -> int:
        """The largest message that a server needs to take: a chunk, or one record alone."""
        return self._with_arrays(self.chunk_bytes)

    @property
    def reply_bytes(self) -> int:
        """The largest message that a client needs to take: a chunk, or a large append's answer."""
        rows = self.append_bytes // _SMALLEST_RECORD_BYTES
        return max(self._with_arrays(self.chunk_bytes), rows * ROW_BYTES + _HEAD_BYTES)

    def _with_arrays(self, record_bytes: int) -> int:
        largest = max(record_bytes, self.message_bytes + RECORD_HEADROOM_BYTES)
        return largest + largest // _SMALLEST_RECORD_BYTES * 12 + _HEAD_BYTES
