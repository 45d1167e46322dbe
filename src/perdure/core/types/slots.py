"""Where the instances of a class keep things that no field names: slots, and bases written in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BUILTIN_NEW = type(object.__new__)


def slots_of(cls: Any) -> Iterator[str]:
    """The attributes that have a slot, as instances know them."""
    for one in getattr(cls, "__mro__", ()):
        slots = vars(one).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                yield f"_{one.__name__.lstrip('_')}{name}"
            elif not name.startswith("__"):
                yield name


def content_of(cls: Any) -> type | None:
    """The base whose instances have a content of their own, which no field shows: of a list, a
    dict or an exception, say. None where all that there is are attributes."""
    for one in cls.__mro__:
        new = vars(one).get("__new__")
        made_in_c = isinstance(new, _BUILTIN_NEW) and getattr(new, "__self__", None) is one
        if one is not object and made_in_c:
            return one  # type: ignore[no-any-return]
    return None
