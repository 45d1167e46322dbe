"""The new place of a value after later ops, which insert, remove and move items before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from perdure.core.values.ops import Delete, Move, Op, Set, Splice
from perdure.core.values.plain_values import Path

_MOVING = frozenset({Set, Delete, Splice, Move})
"""Ops that may give what is below their path another place, or take it away."""


class Paths:
    """The places of one list of ops."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        # The ops that may move or remove what is below a path. Most places have none.
        self._at: dict[Path, list[int]] = {}
        for index, op in enumerate(ops):
            if type(op) in _MOVING:
                self._at.setdefault(op.path, []).append(index)

    def final(self, path: Path, at: int) -> Path | None:
        """Returns the final place of the value that is at `path` right after op number `at`; None
        once replaced."""
        place: Path | None = path
        while place is not None:
            # Searched from its current place: an outer list that was spliced gave everything below
            # other paths.
            following = self._next(place, at)
            if following is None:
                return place
            place, at = shift(place, self._ops[following]), following
        return None

    def _next(self, place: Path, at: int) -> int | None:
        """Returns the first op after number `at` that concerns the value at a place."""
        found: int | None = None
        for depth in range(len(place) + 1):
            indexes = self._at.get(place[:depth])
            if indexes is not None and indexes[-1] > at:
                index = indexes[bisect_right(indexes, at)]
                found = index if found is None or index < found else found
        return found


def shift(path: Path, op: Op) -> Path | None:
    """Returns the path after one more op; None where that replaced or removed the value there."""
    depth = len(op.path)
    if path[:depth] != op.path:
        return path
    if isinstance(op, Set | Delete):
        return None
    if len(path) == depth or not isinstance(op, Splice | Move):
        return path
    index = path[depth]
    if isinstance(op, Splice):
        if index < op.index:
            return path
        if index < op.index + op.removed:
            return None
        index += len(op.values) - op.removed
    elif index == op.source:
        index = op.target
    else:
        index -= index > op.source
        index += index >= op.target
    return (*op.path, index, *path[depth + 1 :])
