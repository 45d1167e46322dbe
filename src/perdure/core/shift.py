"""Where a place is after later ops, which insert, remove and move items in front of it."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.ops import Delete, Move, Op, Set, Splice
from perdure.core.values import Path


class Paths:
    """The places of one list of ops."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        # The last op that may move or remove what is below a path. Most places have none.
        self._last: dict[Path, int] = {}
        for index, op in enumerate(ops):
            if isinstance(op, Set | Delete | Splice | Move):
                self._last[op.path] = index

    def final(self, path: Path, at: int) -> Path | None:
        """Where what is at `path` right after op number `at` is in the end; None once replaced."""
        last = max(self._last.get(path[:depth], -1) for depth in range(len(path) + 1))
        place: Path | None = path
        for index in range(at + 1, last + 1):
            if place is None:
                break
            place = shift(place, self._ops[index])
        return place


def shift(path: Path, op: Op) -> Path | None:
    """The path after one more op; None where that replaced or removed the value there."""
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
