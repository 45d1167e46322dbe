"""The new place of a value after later ops, which insert, remove and move items before it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from perdure.core.values.index_maps import IndexMaps
from perdure.core.values.ops import Delete, Move, Op, Set, Splice
from perdure.core.values.plain_values import Path
from perdure.system.cached import cached

_MOVING = frozenset({Set, Delete, Splice, Move})
"""Ops that may give what is below their path another place, or take it away."""

MANY = 8
"""Changes of one list in a row: so many are taken together, not one by one."""


class Paths:
    """The places of one list of ops."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        # The ops that may move or remove what is below a path. Most places have none.
        self._at: dict[Path, list[int]] = {}
        for index, op in enumerate(ops):
            if type(op) in _MOVING:
                self._at.setdefault(op.path, []).append(index)
        self._maps: dict[Path, IndexMaps] = {}

    def final(self, path: Path, at: int) -> Path | None:
        """Returns the final place of the value that is at `path` right after op number `at`; None
        once replaced."""
        place: Path | None = path
        while place is not None:
            # Searched from its current place: an outer list that was spliced gave everything below
            # other paths.
            following, of = self._next(place, at)
            if following == len(self._ops):
                return place
            count = self._in_a_row(place, at, of) if len(of) < len(place) else 1
            if count < MANY:
                place, at = shift(place, self._ops[following]), following
            else:
                place, at = self._through(place, at, of, count)
        return None

    def _next(self, place: Path, at: int) -> tuple[int, Path]:
        """Returns the first op after number `at` that concerns the value at a place, and its path;
        without one, their number."""
        found, of = len(self._ops), place
        for depth in range(len(place) + 1):
            indexes = self._at.get(place[:depth])
            if indexes is not None and indexes[-1] > at:
                index = indexes[bisect_right(indexes, at)]
                if index < found:
                    found, of = index, place[:depth]
        return found, of

    def _in_a_row(self, place: Path, at: int, of: Path) -> int:
        """Returns how many ops of a list come before the first other one that may concern a place
        in it, wherever these move the place."""
        indexes = self._at[of]
        if len(indexes) < MANY or self._below.get(of, len(place) + 1) <= len(place):
            return 1
        outer = [self._at[of[:depth]] for depth in range(len(of)) if of[:depth] in self._at]
        ends = [one[bisect_right(one, at)] for one in outer if one[-1] > at]
        end = bisect_left(indexes, min(ends)) if ends else len(indexes)
        return end - bisect_right(indexes, at)

    @cached
    def _below(self) -> Mapping[Path, int]:
        """The length of the shortest path of an op below the path of another one."""
        found: dict[Path, int] = {}
        for path in self._at:
            for depth in range(len(path)):
                found[path[:depth]] = min(found.get(path[:depth], len(path)), len(path))
        return found

    def _through(self, place: Path, at: int, of: Path, count: int) -> tuple[Path | None, int]:
        """Returns a place after some ops of the list that it is in, and the last one's number."""
        indexes, depth = self._at[of], len(of)
        maps = self._maps.get(of)
        if maps is None:
            maps = self._maps[of] = IndexMaps([self._ops[index] for index in indexes])
        first = bisect_right(indexes, at)
        index = maps.through(place[depth], first, first + count)
        after = None if index is None else (*of, index, *place[depth + 1 :])
        return after, indexes[first + count - 1]


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
