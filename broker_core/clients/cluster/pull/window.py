"""The pull window: which spans of a range to ask for next, and which can be handed on.

Problem. A broker grants 32 messages or 256 KiB an answer by default (8 or 64 KiB from disk), as its
operator has set it, and does not say which limit holds. One pull after another would wait for the
network most of the time. A queue's offsets are dense, so a range can be cut into spans that are
asked for together; but a span longer than the grant is answered in part, and one that is shorter
wastes a request.

    handed on      held, waiting for those before      in flight       not asked yet
    ───────────────┬───────────────────────────────────┬───────────────┬─────────────
                   first span                                          cursor

Invariants.
- Spans lie in order without gaps, from the first offset not handed on up to the cursor.
- Every offset of the range is handed on once, in order, whatever is answered, fails or is lost.
- At most `max_in_flight` spans are in flight, and about `max_bytes` bytes, by the mean size of
  answers; two spans at least, or large answers would come one after another.
- The cursor moves only while there are fewer spans than twice as many as may be in flight: answers
  that wait for a late one before them take bounded memory.

Outline. The first span goes out alone, longer than a usual grant; its answer tells the grant. An
answer that covers less than its span makes later spans that short, and leaves a rest, which is cut
anew and asked for before anything behind it. After 64 answers in a row that covered their span,
spans double: the grant may have grown (messages from memory instead of from disk). All is plain
values; nothing here knows of sockets. puller.py does the asking.

Rejected. Asking a broker for its configuration, to know the grant: clusters with ACLs may refuse
that to readers. Longer spans after each full answer: at the broker's limit every other answer would
be short, and its rest, asked for later, would hold up all that came behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Part = TypeVar("Part")

_TRY_MORE_AFTER = 64
"""Answers in a row that covered their whole span before longer spans are tried."""
_SMOOTHING = 0.25
_HELD = 2
"""Spans that may exist, as a multiple of those that may be in flight."""


@dataclass(eq=False, slots=True)
class PullSpan(Generic[Part]):
    """The messages [start, end), asked for by one request; done when `part` is there."""

    start: int
    end: int
    is_asked: bool = False
    part: Part | None = None


class PullWindow(Generic[Part]):
    """The window over one range. `Part` is the type that answers are kept as."""

    def __init__(
        self, start: int, end: int, first_span: int, max_in_flight: int, max_bytes: int
    ) -> None:
        self._cursor = start
        self._end = end
        self._span = first_span
        self._max_in_flight = max_in_flight
        self._max_bytes = max_bytes
        self._spans: list[PullSpan[Part]] = []
        self._is_measured = False
        self._full_answers = 0
        self._answer_bytes = 0.0

    @property
    def is_finished(self) -> bool:
        """True once everything has been handed on."""
        return not self._spans and self._cursor >= self._end

    @property
    def first(self) -> int:
        """First offset that has not been handed on."""
        return self._spans[0].start if self._spans else self._cursor

    def spans_to_ask(self) -> list[PullSpan[Part]]:
        """Return the spans to ask for now, in order; they count as asked from here on."""
        limit = self._limit()
        room = limit - sum(span.is_asked and span.part is None for span in self._spans)
        asking = [span for span in self._spans if not span.is_asked][: max(0, room)]
        while len(asking) < room and len(self._spans) < _HELD * limit and self._cursor < self._end:
            span: PullSpan[Part] = PullSpan(self._cursor, min(self._end, self._cursor + self._span))
            self._cursor = span.end
            self._spans.append(span)
            asking.append(span)
        for span in asking:
            span.is_asked = True
        return asking

    def accept(self, span: PullSpan[Part], covered_end: int, part: Part, size_bytes: int) -> None:
        """Keep an answer that covers [span.start, covered_end); the rest is asked for again."""
        assert span.start < covered_end, "an answer covers something"
        self._learn(span, covered_end, size_bytes)
        end, span.end = span.end, min(span.end, covered_end)
        span.part = part
        if covered_end >= end:
            return
        if span is self._spans[-1]:
            # Nothing behind it has been asked for: the rest is cut with what follows.
            self._cursor = covered_end
        else:
            at = self._spans.index(span) + 1
            self._spans[at:at] = self._cut(covered_end, end)

    def retry(self, span: PullSpan[Part]) -> None:
        """Let a span be asked for again: its request failed."""
        span.is_asked = False

    def retry_all(self) -> None:
        """Let everything in flight be asked for again: the connection was lost."""
        for span in self._spans:
            span.is_asked = span.part is not None

    def take(self) -> Iterator[PullSpan[Part]]:
        """Yield the spans that are done and have no others before them, and drop them."""
        while self._spans and self._spans[0].part is not None:
            yield self._spans.pop(0)

    def _limit(self) -> int:
        """Return how many spans may be in flight: one until an answer has been measured."""
        if not self._is_measured:
            return 1
        # In bytes, not in spans: an operator may have raised the grant from 256 KiB to 16 MiB.
        by_bytes = int(self._max_bytes / max(1.0, self._answer_bytes))
        return max(2, min(self._max_in_flight, by_bytes))

    def _cut(self, start: int, end: int) -> list[PullSpan[Part]]:
        return [PullSpan(at, min(end, at + self._span)) for at in range(start, end, self._span)]

    def _learn(self, span: PullSpan[Part], covered_end: int, size_bytes: int) -> None:
        covered = min(covered_end, span.end) - span.start
        if not self._is_measured:
            self._answer_bytes = float(size_bytes)
        self._answer_bytes += (size_bytes - self._answer_bytes) * _SMOOTHING
        self._is_measured = True
        if covered < span.end - span.start:
            self._span = covered
            self._full_answers = 0
        elif covered >= self._span:
            # Rests of short answers are shorter than a span: that they are covered proves nothing.
            self._full_answers += 1
            if self._full_answers >= _TRY_MORE_AFTER:
                self._span *= 2
                self._full_answers = 0
