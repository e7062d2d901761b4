"""State of the model of the pending tail: a log, one queue, the index, the marker; who is at it.

A state is an immutable value. Records are counted, not measured: a record takes one place in the
log, one entry in the queue and one key in the index. Appends are numbered; an append has one record
or two. A call is under way from when it takes the store's lock to when it lets go of it, and does
one step at a time: what a process may die between. A reader looks in four steps, and keeps what it
saw of the tail between its looks, as store/pending_tail.py does.

Other fields are for the invariants: what was acknowledged, what failed and said so, what was seen.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.telling import described

BOUND = 2
"""Most records that are pending."""


class Record(NamedTuple):
    """A record of the log: part `part` of `parts` of an append, numbered `place` in its queue."""

    append: int
    part: int
    parts: int
    place: int


TORN = Record(-1, 0, 0, -1)
"""Half of a record."""
Cell = Record | None
"""A place of the log; None holds zeros."""

CLEAN, PENDING, APPENDING, DISPATCHING = "clean", "pending", "appending", "dispatching"


class Marker(NamedTuple):
    """The tail marker; `crc` are the records that it says are being written."""

    kind: str = CLEAN
    log_end: int = 1
    pending_end: int = 1
    dispatched_end: int = 1
    crc: tuple[Cell, ...] = ()

    @property
    def end(self) -> int:
        """The end of the log if what was being written counts."""
        return self.pending_end if self.kind == PENDING else self.log_end

    @property
    def has_pending(self) -> bool:
        """True if records may lack their entries and keys."""
        return self.kind == PENDING or self.dispatched_end < self.log_end


class Memory(NamedTuple):
    """Memory of a process between its calls: the marker as it left it, the queue's end.

    Without an end it goes on only once all is dispatched.
    """

    marker: Marker
    end: int | None = None


class Process(NamedTuple):
    """A writer; what it remembers is current until another one writes the marker."""

    memory: Memory | None = None
    is_current: bool = False


class Call(NamedTuple):
    """A call under way: the steps that are left, and the one that was just taken.

    `before` is the marker that an append which fails puts back, `start` where its records go.
    """

    who: int
    kind: str
    todo: tuple[str, ...]
    done: str = ""
    size: int = 0
    is_sync: bool = False
    append: int = -1
    start: int = 0
    place: int = 0
    before: Marker | None = None


class Tail(NamedTuple):
    """Knowledge that a reader has of the tail; see pending_tail.PendingTail."""

    page: Marker | None = None
    is_whole: bool = True
    start: int = 1
    end: int = 1
    records: tuple[Record, ...] = ()
    last_start: int = 1
    last_crc: tuple[Cell, ...] = ()


class Look(NamedTuple):
    """A look under way: the page that it read, and what was true when it began."""

    step: str
    page: Marker
    due: frozenset[int]
    gone: frozenset[int]
    seen: frozenset[int]
    end: int = 0
    """How far the records that it is about to read go."""
    entries: tuple[int, ...] | None = None
    """The queue's entries, where they are read before the page."""


class Action(NamedTuple):
    """One thing that happens; `str` of it is a line of a trace."""

    kind: str
    who: int = 0
    size: int = 1
    is_sync: bool = False
    how: str = ""

    def __str__(self) -> str:
        return described(self)


FIRST = Record(0, 0, 1, 0)


class State(NamedTuple):
    """Everything; see the module."""

    log: tuple[Cell, ...] = (FIRST,)
    queue: tuple[int, ...] = (0,)
    keys: tuple[int, ...] = (0,)
    marker: Marker = Marker()
    is_believed: bool = True
    room: int = 1
    is_full: bool = False
    synced: int = 1
    synced_queue: int = 1
    flushed: int = 1
    noted: tuple[int, int] = (0, 0)
    """The ends of log and queue that a flush under way makes durable."""
    processes: tuple[Process, ...] = (Process(), Process())
    call: Call | None = None
    look: Look | None = None
    tail: Tail = Tail()
    appends: int = 1
    acknowledged: frozenset[int] = frozenset([0])
    promised: frozenset[int] = frozenset([0])
    """Acknowledged so that loss of power takes nothing of it."""
    undone: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    """Those that were undone, and whose sender was told so."""
    seen: frozenset[int] = frozenset([0])
    excused: frozenset[int] = frozenset()
    result: tuple[Cell, ...] | None = None
    """The records that the look saw which just ended; `told` are its `due` and `gone`."""
    told: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    deaths: int = 0
    faults: int = 0
    strangers: int = 0


class Rules(NamedTuple):
    """The rules of the protocol; without one of them an exploration must find what goes wrong."""

    # log_first.py
    marks_before_write: bool = True
    crc_decides: bool = True
    syncs_before_acknowledging: bool = True
    claims_room: bool = True
    bounds_tail: bool = True
    undo_marks_first: bool = True
    undo_zeroes: bool = True
    # session.py, recovery
    memory_is_compared: bool = True
    take_over_dispatches: bool = True
    recovery_marks_first: bool = True
    turn_dispatches: bool = True
    queue_before_mark: bool = True
    index_is_rewound: bool = True
    torn_rest_is_zeroed: bool = True
    flush_dispatches: bool = True
    # pending_tail.py
    page_before_queue: bool = True
    reader_checks_crc: bool = True
    reader_checks_last: bool = True
    files_win_if_longer: bool = True


INTENDED = Rules()
