"""The window: whatever a broker grants, everything is asked for, and handed on once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.clients.cluster.pull.window import PullSpan, PullWindow

Window = PullWindow[tuple[int, int]]


def window(end: int, first_span: int = 1000, in_flight: int = 8) -> Window:
    return PullWindow(0, end, first_span, in_flight, 1 << 20)


def accept(pulled: Window, span: PullSpan[tuple[int, int]], covered: int, size: int = 100) -> None:
    end = span.start + covered
    pulled.accept(span, end, (span.start, min(end, span.end)), size)


@given(st.data(), st.integers(0, 100), st.integers(1, 40))
def test_everything_is_handed_on_once_and_in_order(
    data: st.DataObject, end: int, first_span: int
) -> None:
    pulled = window(end, first_span)
    flying: list[PullSpan[tuple[int, int]]] = []
    handed: list[tuple[int, int]] = []

    while not pulled.is_finished:
        flying += pulled.spans_to_ask()
        assert flying, "something is always in flight until the end"
        span = flying.pop(data.draw(st.integers(0, len(flying) - 1), label="which answer"))
        event = data.draw(st.sampled_from(["answer", "answer", "answer", "fail", "lose"]))
        if event == "answer":
            # Filtered pulls may look further than they were asked to.
            accept(pulled, span, data.draw(st.integers(1, 2 * first_span), label="granted"))
        elif event == "fail":
            pulled.retry(span)
        else:
            pulled.retry_all()
            flying = []
        handed += [part for done in pulled.take() if (part := done.part)]

    assert [start for start, _ in handed] == [0, *(stop for _, stop in handed[:-1])][: len(handed)]
    assert (handed[-1][1] if handed else 0) == end


def test_first_request_is_alone_until_its_answer_tells_the_grant() -> None:
    pulled = window(10_000)

    (first,) = pulled.spans_to_ask()
    assert pulled.spans_to_ask() == []
    accept(pulled, first, 32)

    asked = pulled.spans_to_ask()
    assert [(span.start, span.end) for span in asked] == [
        (start, start + 32) for start in range(32, 32 + 8 * 32, 32)
    ]


def test_short_answer_is_filled_before_anything_behind_it() -> None:
    pulled = window(10_000)
    (first,) = pulled.spans_to_ask()
    accept(pulled, first, 32)
    asked = pulled.spans_to_ask()
    list(pulled.take())

    accept(pulled, asked[0], 20)

    assert [(span.start, span.end) for span in pulled.spans_to_ask()] == [(52, 64)]


def test_longer_spans_are_tried_after_many_full_answers() -> None:
    pulled = window(100_000)
    (first,) = pulled.spans_to_ask()
    accept(pulled, first, 32)

    lengths = set()
    for _ in range(40):
        for span in pulled.spans_to_ask():
            lengths.add(span.end - span.start)
            accept(pulled, span, span.end - span.start)
        list(pulled.take())

    assert lengths >= {32, 64, 128}


def test_large_answers_keep_fewer_in_flight() -> None:
    pulled = window(100_000)
    (first,) = pulled.spans_to_ask()
    accept(pulled, first, 32, size=400_000)
    list(pulled.take())

    assert len(pulled.spans_to_ask()) == 2


def test_what_waits_for_a_late_answer_is_limited() -> None:
    pulled = window(100_000)
    (first,) = pulled.spans_to_ask()
    accept(pulled, first, 32)
    list(pulled.take())
    late, *others = pulled.spans_to_ask()

    held = 0
    while others:
        for span in others:
            accept(pulled, span, span.end - span.start)
        held += len(others)
        others = pulled.spans_to_ask()

    assert list(pulled.take()) == []
    assert held <= 2 * 8
    assert pulled.first == late.start


@pytest.mark.parametrize("end", [0, 1])
def test_small_ranges_end(end: int) -> None:
    pulled = window(end)
    for span in pulled.spans_to_ask():
        accept(pulled, span, 1)
    list(pulled.take())

    assert pulled.is_finished
