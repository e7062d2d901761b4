"""What is closed by `with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Something that is closed at the end of a `with` block."""

    def close(self) -> None:
        """Give everything back."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
