"""Differences between two states, for people and programs: one `Change` for each path."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.core.values.plain_values import Path, Plain, format_path, same, shared_keys
from perdure.missing import MISSING
from perdure.model import Change


def changes(before: Plain, after: Plain, path: Path = ()) -> Iterator[Change]:
    """Yields every place where two plain states differ, containers gone into. Lists go by index."""
    if type(before) is dict and type(after) is dict:
        both = shared_keys(before, after)
        order = [key for key in before if key in both], [key for key in after if key in both]
        if order[0] != order[1]:
            yield Change(format_path(path), "reordered", *order)
        for key, item in before.items():
            yield from _pair(item, after[key] if key in both else MISSING, (*path, key))
        for key, item in after.items():
            if key not in both:
                yield from _pair(MISSING, item, (*path, key))
    elif type(before) is list and type(after) is list:
        for index in range(max(len(before), len(after))):
            old = before[index] if index < len(before) else MISSING
            new = after[index] if index < len(after) else MISSING
            yield from _pair(old, new, (*path, index))
    elif not same(before, after):
        yield Change(format_path(path), "changed", before, after)


def _pair(before: Plain, after: Plain, path: Path) -> Iterator[Change]:
    if before is MISSING:
        yield Change(format_path(path), "added", MISSING, after)
    elif after is MISSING:
        yield Change(format_path(path), "removed", before, MISSING)
    else:
        yield from changes(before, after, path)
