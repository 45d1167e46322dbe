"""The further names of pydantic's fields, under which values of them come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def aliases_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the name of the field for each alias. One of two fields is none: it says of neither;
    nor is one that leads further inside."""
    owners: dict[str, list[str]] = {}
    for name, info in fields.items():
        for alias in dict.fromkeys(_aliases(info)):
            owners.setdefault(alias, []).append(name)
    return {alias: names[0] for alias, names in owners.items() if len(names) == 1}


def led_inside(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the name of a field for each key in which an alias of it leads further inside."""
    return {
        str(path[0]): name
        for name, info in fields.items()
        for path in _paths(info)
        if len(path) > 1
    }


def _aliases(info: Any) -> list[str]:
    return [path[0] for path in _paths(info) if len(path) == 1]


def _paths(info: Any) -> list[list[Any]]:
    choices = [info.alias, *getattr(info.validation_alias, "choices", [info.validation_alias])]
    return [[one] if isinstance(one, str) else getattr(one, "path", []) for one in choices]
