"""The places where instances keep things that no field names: slots, and bases written in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BUILTIN_NEW = type(object.__new__)


def slots_of(cls: Any) -> Iterator[str]:
    """Yields the attributes that have a slot, by the names that instances know."""
    for one in getattr(cls, "__mro__", ()):
        slots = vars(one).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                yield f"_{one.__name__.lstrip('_')}{name}"
            elif not name.startswith("__"):
                yield name


def content_of(cls: Any) -> type | None:
    """Returns the base whose instances have content that no field shows: of a list, a dict or an
    exception, say. None where instances have only attributes."""
    for one in cls.__mro__:
        new = vars(one).get("__new__")
        made_in_c = isinstance(new, _BUILTIN_NEW) and getattr(new, "__self__", None) is one
        if one is not object and made_in_c:
            return one  # type: ignore[no-any-return]
    return None
