"""Private attributes of pydantic models: they are not stored, the class makes them."""

from __future__ import annotations

from typing import Any

from perdure.core.types.late_fields import equal
from perdure.missing import MISSING


def private_of(value: Any) -> dict[str, Any]:
    """All private attributes of an instance."""
    return getattr(value, "__pydantic_private__", None) or {}


def private_default(info: Any) -> Any:
    """Returns the initial value of a pydantic model's private attribute; MISSING if other fields
    decide it. Newer versions of pydantic call no factory in `get_default`."""
    if info.default_factory is None:
        return info.get_default()
    try:
        return info.default_factory()
    except TypeError:
        return MISSING


def as_good(given: Any, made: Any, depth: int = 0) -> bool:
    """Returns True if the value that the class makes replaces the given one: a lock is equal to no
    other lock, but a new one is just as good."""
    if equal(given, made):
        return True
    by_identity: Any = object.__eq__
    if type(given) is not type(made) or type(given).__eq__ is not by_identity or depth > 3:
        return False
    kept, new = getattr(given, "__dict__", {}), getattr(made, "__dict__", {})
    return kept.keys() == new.keys() and all(
        as_good(item, new[name], depth + 1) for name, item in kept.items()
    )


def renew(target: Any, made: Any, kept: frozenset[str]) -> None:
    """Gives an instance the private values that its class's own code made when the same instance
    was made anew. Equally good values stay: a lock may be held.

    Args:
        kept: attributes that live in memory only, and stay as well.
    """
    private = private_of(target)
    for name, item in private_of(made).items():
        if name not in kept and not as_good(private.get(name, MISSING), item):
            private[name] = item
