"""Judging: one actor's attacks in one world, compared with the world without them.

A failure names the attack. What can be seen right after a call is told with its name; for what is
seen only in the end, the shortest run of attacks that leads to it is searched for, in new worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.trust.aftermath import damage, go_on
from tests.trust.attacks import Attack
from tests.trust.campaign import Campaign
from tests.trust.ledger import Ledger
from tests.trust.observation import differences, observe
from tests.trust.world import Template, World

Choose = Callable[[World, str], list[Attack]]
"""Returns the attacks that an actor tries in a world; the same in every world."""
_SHOWN = 12


@dataclass
class Findings:
    """What came of some attacks: seen at once, and in the end."""

    tried: list[Attack] = field(default_factory=list)
    at_once: list[str] = field(default_factory=list)
    in_the_end: list[str] = field(default_factory=list)
    calls: int = 0

    @property
    def complaints(self) -> list[str]:
        return [*self.at_once, *self.in_the_end]


class Judge:
    """Runs attacks in worlds below a folder."""

    def __init__(
        self, base: Path, template: Template | None = None, *, over_port: bool = False
    ) -> None:
        self._base = base
        self._template = template
        self._over_port = over_port
        self._numbers = count()

    def verdict(self, actor: str, choose: Choose) -> str:
        """What an actor's attacks have done, in words; empty if nothing."""
        found = self.findings(actor, choose)
        complaints = found.complaints
        # What was seen at once has a name, and mostly is the cause of what is seen in the end.
        if found.in_the_end and not found.at_once:
            complaints.insert(0, f"after {actor}, {self._culprit(actor, choose, found.tried)}:")
        left = len(complaints) - _SHOWN
        more = [f"and {left} more"] if left > 0 else []
        return "\n".join([each[:600] for each in complaints[:_SHOWN]] + more)

    def findings(
        self, actor: str, choose: Choose, most: int | None = None, *, only_first: bool = False
    ) -> Findings:
        """Run the first `most` attacks in a new world.

        With `only_first` the end is not waited for if something was seen at once.
        """
        base = self._base / f"world-{next(self._numbers)}"
        found = Findings()
        made = World(base, self._template, over_port=self._over_port)
        try:
            found.tried = choose(made, actor)[:most]
            ledger = Ledger(made)
            campaign = Campaign(made, actor, ledger)
            before = observe(made, actor)
            campaign.run(found.tried)
            found.at_once, found.calls = campaign.complaints, campaign.calls
            if not (only_first and found.at_once):
                found.in_the_end += differences(before, observe(made, actor))
                found.in_the_end += go_on(made, actor, ledger)
        finally:
            found.in_the_end += _closed(made)
        return found

    def _culprit(self, actor: str, choose: Choose, tried: Sequence[Attack]) -> str:
        """The last attack of the shortest run that leads to what is seen in the end."""
        low, high = 0, len(tried)
        while high - low > 1:
            middle = (low + high) // 2
            if self.findings(actor, choose, middle).in_the_end:
                high = middle
            else:
                low = middle
        return f"{tried[high - 1]} ({high} of {len(tried)})"


def _closed(made: World) -> list[str]:
    """Close a world; what is wrong with its store then."""
    try:
        made.close()
    except Exception as error:  # noqa: BLE001 - a broker that can't be closed is a finding
        return [f"the broker can't be closed: {error!r}"]
    return damage(made.root)
