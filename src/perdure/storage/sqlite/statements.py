"""Loads the named statements of queries/ and the numbered migrations."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from perdure.system.late_imports import loading

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")


@cache
def statements() -> dict[str, str]:
    """Returns every statement of queries/ by its name, without comments, with its parts filled in.

    Parameters are bound by name or place, never spliced in; {a_name} stands for a part that several
    statements share. Of one with an {order} there are two: with ``_up`` and ``_down`` behind its
    name.
    """
    bare: dict[str, str] = {}
    with loading:
        texts = [
            entry.read_text()
            for entry in (files(__package__) / "queries").iterdir()
            if entry.name.endswith(".sql")
        ]
    for text in texts:
        parts = _NAME.split(text)[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            said = re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip()
            ways = {"_up": "ASC", "_down": "DESC"} if "{order}" in said else {"": ""}
            for way, order in ways.items():
                bare[name + way] = said.replace("{order}", order)
    return {name: _PART.sub(lambda part: bare[part.group(1)], body) for name, body in bare.items()}


@cache
def migrations() -> dict[int, str]:
    """Returns the scripts of migrations/ by number: the schema is their sum."""
    folder = files(__package__) / "migrations"
    with loading:
        return {
            int(entry.name[:4]): entry.read_text()
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if entry.name.endswith(".sql")
        }
