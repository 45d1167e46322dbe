"""Whether two values are the same in every attribute; the library's own comparison is not used."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Any

import msgspec


def difference(given: Any, back: Any, at: str = "value", *, odd: bool = False) -> str | None:
    """Where they differ and how; None if they are alike.

    Args:
        odd: something was given that is not declared there.
    """
    if type(given) is int and type(back) is float and given == back:
        return None  # documented: an int where a float is declared
    if odd and isinstance(given, enum.Enum) and type(back) in (str, int) and given == back:
        return None  # documented: a StrEnum where a text is declared
    if type(given) is not type(back):
        return f"{at}: {given!r} came back as {back!r}"
    if isinstance(given, enum.Enum):
        return None if given is back else f"{at}: {given!r} came back as {back!r}"
    if isinstance(given, dict):
        return _items(list(given.items()), list(back.items()), at, odd)
    if isinstance(given, list | tuple):
        return _items(given, back, at, odd) or _attributes(given, back, at, odd)
    if isinstance(given, set | frozenset):
        known = sorted(map(repr, given)), sorted(map(repr, back))
        return None if known[0] == known[1] else f"{at}: {given!r} came back as {back!r}"
    if dataclasses.is_dataclass(given) or isinstance(given, msgspec.Struct) or _is_model(given):
        return _attributes(given, back, at, odd)
    if isinstance(given, float | complex | Decimal | dt.datetime | dt.time):
        return None if repr(given) == repr(back) else f"{at}: {given!r} came back as {back!r}"
    return None if given == back else f"{at}: {given!r} came back as {back!r}"


def _is_model(value: Any) -> bool:
    return hasattr(type(value), "__pydantic_fields__")


def _items(given: Any, back: Any, at: str, odd: bool) -> str | None:
    if len(given) != len(back):
        return f"{at}: {given!r} came back as {back!r}"
    found = (
        difference(a, b, f"{at}[{i}]", odd=odd)
        for i, (a, b) in enumerate(zip(given, back, strict=True))
    )
    return next((one for one in found if one), None)


def _attributes(given: Any, back: Any, at: str, odd: bool) -> str | None:
    mine, theirs = attributes(given), attributes(back)
    if mine.keys() != theirs.keys():
        return f"{at} has {sorted(mine)} and came back with {sorted(theirs)}"
    found = (difference(item, theirs[name], f"{at}.{name}", odd=odd) for name, item in mine.items())
    return next((one for one in found if one), None)


def attributes(value: Any) -> dict[str, Any]:
    """All that an instance has but what its class says is not stored."""
    found = dict(getattr(value, "__dict__", {}))
    for one in type(value).__mro__:
        slots = vars(one).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                found[name] = getattr(value, name)
    if dataclasses.is_dataclass(value):  # msgspec leaves a default to the class
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        found |= {name: getattr(value, name) for name in names}
    if isinstance(value, msgspec.Struct):
        found |= {name: getattr(value, name) for name in value.__struct_fields__}
    if _is_model(value):
        found |= getattr(value, "__pydantic_private__", None) or {}
        found |= {"+": getattr(value, "__pydantic_extra__", None)}
        for name, info in type(value).__pydantic_fields__.items():
            if info.exclude:
                found.pop(name, None)
    return found
