"""Loads the named statements of queries.sql and the numbered migrations, for one schema."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from perdure.system.late_imports import loading

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")
CHOSEN = ("conditions", "order")
"""Parts that the caller of a statement fills in."""


@cache
def statements(schema: str) -> dict[str, str]:
    """Returns every statement of queries.sql by its name, without comments, with its parts filled
    in."""
    with loading:
        text = (files(__package__) / "queries.sql").read_text()
    parts = _NAME.split(text)[1:]
    bare = {
        name: re.sub(r"^--.*\n", "", body, flags=re.MULTILINE).strip().rstrip(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
    bare["schema"] = quoted(schema)

    def fill(part: re.Match[str]) -> str:
        name = part.group(1)
        return part.group(0) if name in CHOSEN else _PART.sub(fill, bare[name])

    return {name: _PART.sub(fill, body) for name, body in bare.items()}


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


def quoted(schema: str) -> str:
    """Returns a schema's name in SQL. address.py allows none that would need more than quotes."""
    return f'"{schema}"'
