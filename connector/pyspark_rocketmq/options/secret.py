"""A text that must not be seen: passwords and tokens on their way to a client."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Secret:
    """Holds a text and shows none of it, also in a traceback that prints variables.

    >>> Secret("hush")
    Secret(***)
    """

    _text: str = field(repr=False)

    def reveal(self) -> str:
        """The text itself; call it where it is handed to a client and nowhere else."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__
