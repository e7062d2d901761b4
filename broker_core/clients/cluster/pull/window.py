"""The window of a range being pulled: what to ask next, and what can be handed on.

A queue's offsets are dense, so a range can be cut into spans that are asked for all at once, though
a broker grants only so many messages an answer, and does not say how many. The window learns it: a
span is as long as answers have been; an answer that covers less leaves a rest, which is cut anew
and asked for before anything behind it; and now and then a longer span tries for more.

    handed on      held, waiting for those before      in flight       not asked yet
    ───────────────┬───────────────────────────────────┬───────────────┬─────────────
                   first span                                          cursor

Spans lie in order without gaps, from the first offset not handed on up to the cursor. All is plain
values; nothing here knows of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Part = TypeVar("Part")

_TRY_MORE_AFTER = 64
"""So many answers in a row that covered all they were asked for, and a longer span is tried."""
_SMOOTHING = 0.25
_HELD = 2
"""So many times as many spans as may be in flight may wait for one that is late."""


@dataclass(eq=False, slots=True)
class PullSpan(Generic[Part]):
    """The messages [start, end), asked for with one request; done when `part` is there."""

    start: int
    end: int
    is_asked: bool = False
    part: Part | None = None


class PullWindow(Generic[Part]):
    """The state of one range. `Part` is what an answer is kept as."""

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
        """Whether everything has been handed on."""
        return not self._spans and self._cursor >= self._end

    @property
    def first(self) -> int:
        """The first offset that has not been handed on."""
        return self._spans[0].start if self._spans else self._cursor

    def spans_to_ask(self) -> list[PullSpan[Part]]:
        """The spans to ask for now, in order; they count as asked from here on."""
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
            self._cursor = covered_end
        else:
            at = self._spans.index(span) + 1
            self._spans[at:at] = self._cut(covered_end, end)

    def retry(self, span: PullSpan[Part]) -> None:
        """Ask for a span again: its request came to nothing."""
        span.is_asked = False

    def retry_all(self) -> None:
        """Ask again for everything in flight: the connection was lost."""
        for span in self._spans:
            span.is_asked = span.part is not None

    def take(self) -> Iterator[PullSpan[Part]]:
        """Hand on the spans that are done and have only handed-on ones before them."""
        while self._spans and self._spans[0].part is not None:
            yield self._spans.pop(0)

    def _limit(self) -> int:
        """How many spans may be in flight: one until an answer has been measured."""
        if not self._is_measured:
            return 1
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
            self._full_answers += 1
            if self._full_answers >= _TRY_MORE_AFTER:
                self._span *= 2
                self._full_answers = 0
