"""Arguments as people read them: bounded, and without what lives in memory only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from perdure.core.schema.value_digest import declared_key, parts_of
from perdure.core.values.plain_values import SCALARS
from perdure.missing import MISSING
from perdure.system.user_errors import check_own

PREVIEW_MAX = 200
SHORT_MAX = 60


def preview(arguments: Mapping[str, Any]) -> str:
    """The arguments as a person reads them, bounded: histories must not grow with their size."""
    said = []
    for name, value in arguments.items():
        said.append(f"{name}={short(value)}")
    text = ", ".join(said)
    return text if len(text) <= PREVIEW_MAX else text[: PREVIEW_MAX - 1] + "…"


def short(value: Any) -> str:
    """One value as a person reads it: its `repr`, but for the Ephemeral fields of objects, and
    others of which a log must not tell."""
    try:
        text = repr(value) if type(value) in SCALARS else _said(value)
    except Exception as error:
        check_own(error, lambda: _said(value))
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHORT_MAX else text[: SHORT_MAX - 1] + "…"


def _said(value: Any) -> str:
    key = declared_key(value)
    return _words(value if key is MISSING else key, SHORT_MAX + 1)


_CONTAINERS: tuple[tuple[Any, str, str], ...] = (
    (dict, "{", "}"),
    (list, "[", "]"),
    (tuple, "(", ")"),
    (set, "{", "}"),
    (frozenset, "{", "}"),
    (deque, "[", "]"),
)
_BARE = (dict, list, tuple, set)


def _words(value: Any, room: int) -> str:
    """Returns the `repr` of a value, or the first `room` characters of it and more. Each level
    takes some of the room, so that a cycle comes to an end."""
    kind: Any = type(value)
    if kind in SCALARS:
        return repr(value)
    if room <= 0:
        return "…"
    of_base = not _is_own(kind.__repr__, "builtins", "collections")
    if of_base and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _fields(kind, zip(kind._fields, value, strict=False), room)
    for base, left, right in _CONTAINERS if of_base else ():
        if issubclass(kind, base) and base.__len__(value):
            if base is dict:
                items = ((f"{_words(key, room)}: ", item) for key, item in dict.items(value))
            else:
                items = (("", item) for item in base.__iter__(value))
                right = ",)" if base is tuple and tuple.__len__(value) == 1 else right
            text = _joined(left, items, right, room)
            return text if kind in _BARE else f"{kind.__qualname__}({text})"
    parts = _shown(kind, value) if _is_generated(kind) else None
    return repr(value) if parts is None else _fields(kind, parts, room)


def _shown(kind: Any, value: Any) -> list[tuple[str, Any]] | None:
    """Returns the fields of an object as its `repr` shows them, but for those of which a log must
    not tell; None for one without declared fields."""
    found = parts_of(value)
    if found is None:
        return None
    declared = getattr(kind, "__pydantic_fields__", {})
    if declared and _is_own(kind.__repr_args__, "pydantic"):
        told = {name for name, _ in found}
        return [one for one in value.__repr_args__() if one[0] in told or one[0] not in declared]
    shown = _shown_by(kind)
    return [
        (name, _Words(says(item)) if callable(says := shown.get(name, True)) else item)
        for name, item in found
        if shown.get(name, True)
    ]


class _Words(str):
    """The words of an object on one of its fields, in its `repr`."""

    __slots__ = ()
    __repr__ = str.__str__


@lru_cache(1024)
def _shown_by(kind: Any) -> dict[str, Any]:
    """Returns, by the fields of a class, whether its `repr` shows them, or the function that says
    what it shows."""
    fields: Any = getattr(kind, "__pydantic_fields__", None) or getattr(
        kind, "__dataclass_fields__", None
    )
    if fields is None:
        fields = {one.name: one for one in getattr(kind, "__attrs_attrs__", ())}
    return {name: one.repr for name, one in fields.items()}


def _fields(kind: type, parts: Iterable[tuple[str, Any]], room: int) -> str:
    name = kind.__qualname__.rpartition("<locals>.")[2]
    return _joined(f"{name}(", ((f"{one}=" if one else "", item) for one, item in parts), ")", room)


def _joined(left: str, items: Iterable[tuple[str, Any]], right: str, room: int) -> str:
    text = left
    for number, (said, item) in enumerate(items):
        text += f", {said}" if number else said
        if len(text) > room:
            return text
        text += _words(item, room - len(text))
    return text + right


@lru_cache(1024)
def _is_generated(kind: type) -> bool:
    """Returns True if a library made the `repr` of a class, of all fields; its own words are its
    own."""
    made: Any = kind.__repr__
    if not _is_own(made, "pydantic"):
        return not _is_own(getattr(kind, "__repr_str__", made), "pydantic")
    return (
        made is Struct.__repr__
        or _file(getattr(made, "__wrapped__", None)) == "<string>"  # a dataclass's
        or _file(made).startswith("<attrs generated")
    )


def _is_own(made: Any, *packages: str) -> bool:
    """Returns True if a method is a class's own: none of these packages made it."""
    maker = getattr(made, "__objclass__", made)  # of one of C
    return str(getattr(maker, "__module__", "")).partition(".")[0] not in packages


def _file(function: Any) -> str:
    return str(getattr(getattr(function, "__code__", None), "co_filename", ""))
