"""Values that are open and belong to a run: named, so that who stores one is told what to do."""

from __future__ import annotations

from typing import Any

_held: dict[int, tuple[Any, str]] = {}
"""By identity: each is kept for as long as it is open, so that no other value gets its id."""


def hold(value: Any, name: str) -> None:
    """Notes that a value is what a resource of this name is open as."""
    _held[id(value)] = value, name


def let_go(value: Any) -> None:
    """The value is closed."""
    _held.pop(id(value), None)


def hint_of(value: Any) -> str:
    """Returns what to write instead of storing an open value; empty: it is none."""
    found = _held.get(id(value))
    name = found[1] if found is not None else getattr(type(value), "__perdure_resource__", "")
    if not name:
        return ""
    called = name if found is not None else value.name
    return (
        f"it is open in this process only: get it where it is used, by `{called}.get()` in a step "
        "or tool, and keep what it takes to open it again by `ticket.keep(…)` in its opener"
    )
