"""Scenes to explore, and seeded bugs: where an exploration finds that a rule is missing."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.log_first.explore import Scene

READERS = Scene("a reader beside a writer", 2, writers=1, looks=True, deaths=1, faults=1)
UNDONE = Scene("a reader of what fails", 2, sizes=(1,), writers=1, syncs=True, looks=True, faults=1)
WRITERS = Scene("writers", 2, others=("many", "turn"), syncs=True, deaths=1, faults=2)
FULL = Scene("a full disk", 2, others=("fill",), deaths=1)
STRANGERS = Scene(
    "a foreign broker",
    2,
    sizes=(1,),
    writers=1,
    others=("flush", "stranger"),
    looks=True,
    strangers=1,
)
POWER = Scene(
    "loss of power",
    2,
    sizes=(1,),
    writers=1,
    others=("flush", "power", "stranger"),
    syncs=True,
    deaths=1,
    strangers=2,
)


class Seed(NamedTuple):
    """The scene in which a missing rule is found, and the invariant that finds it."""

    scene: Scene
    invariant: str


SEEDS: dict[str, Seed] = {
    "marks_before_write": Seed(READERS, "append_is_whole"),
    "crc_decides": Seed(WRITERS, "index_has_each_once"),
    "syncs_before_acknowledging": Seed(POWER, "acknowledged_is_kept"),
    "claims_room": Seed(FULL, "acknowledged_can_be_dispatched"),
    "bounds_tail": Seed(FULL, "tail_is_bounded"),
    "undo_marks_first": Seed(WRITERS, "failed_is_not_seen"),
    "undo_zeroes": Seed(UNDONE, "failed_is_not_seen"),
    "memory_is_compared": Seed(WRITERS, "index_has_each_once"),
    "take_over_dispatches": Seed(WRITERS, "index_has_each_once"),
    "recovery_marks_first": Seed(WRITERS, "index_has_each_once"),
    "turn_dispatches": Seed(WRITERS, "append_is_whole"),
    "queue_before_mark": Seed(READERS, "append_is_whole"),
    "index_is_rewound": Seed(WRITERS, "index_has_each_once"),
    "torn_rest_is_zeroed": Seed(WRITERS, "append_is_whole"),
    "flush_dispatches": Seed(POWER, "append_is_whole"),
    "page_before_queue": Seed(STRANGERS, "acknowledged_is_seen"),
    "reader_checks_crc": Seed(READERS, "append_is_whole"),
    "reader_checks_last": Seed(UNDONE, "failed_is_not_seen"),
    "files_win_if_longer": Seed(STRANGERS, "acknowledged_is_seen"),
}
