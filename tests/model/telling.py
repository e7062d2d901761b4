"""How models tell of actions and scenes."""

from __future__ import annotations

from typing import Any


def described(action: Any) -> str:
    """Return a line of a trace: the kind of an action, a named tuple, and what is special of it."""
    parts = [
        f"{name}={value!r}"
        for name, value in zip(action._fields, action, strict=True)
        if value != action._field_defaults.get(name) and name != "kind"
    ]
    return f"{action.kind}({', '.join(parts)})"


def name_of(value: object) -> str:
    """Return the name of a scene, for the id of a test; nothing for anything else."""
    return str(getattr(value, "name", ""))
