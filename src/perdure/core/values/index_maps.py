"""The new index of a list's item after many changes of the list, found in a few steps.

An edit that moves each item of a long list, and then changes it, asks that for each of them: one
change after the other would cost the square of their number.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence

from perdure.core.values.ops import Move, Op, Splice

_Stretch = tuple[int, int, int]
"""Items that stay beside each other: the first, the one behind the last, how far they move."""

_END = sys.maxsize // 2


class IndexMaps:
    """The changes of one list, put together by twos, by fours, and so on, as far as needed."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        self._made: dict[tuple[int, int], list[_Stretch]] = {}

    def through(self, index: int, first: int, last: int) -> int | None:
        """Returns the index after the changes from number `first` to before number `last`; None
        where one of them takes the item out."""
        while first < last:
            level = 0
            while first % (2 << level) == 0 and first + (2 << level) <= last:
                level += 1
            stretches = self._stretches(level, first >> level)
            at = bisect_right(stretches, index, key=_begin) - 1
            if at < 0 or index >= stretches[at][1]:
                return None
            index += stretches[at][2]
            first += 1 << level
        return index

    def _stretches(self, level: int, number: int) -> list[_Stretch]:
        """Returns those of the items that stay in the list, in order."""
        key = level, number
        found = self._made.get(key)
        if found is None:
            if level == 0:
                found = _of_one(self._ops[number])
            else:
                halves = (self._stretches(level - 1, 2 * number + half) for half in (0, 1))
                found = _both(*halves)
            self._made[key] = found
        return found


def _begin(stretch: _Stretch) -> int:
    return stretch[0]


def _of_one(op: Op) -> list[_Stretch]:
    if isinstance(op, Splice):
        end = op.index + op.removed
        return [(0, op.index, 0), (end, _END, len(op.values) - op.removed)]
    if not isinstance(op, Move):
        return []  # it replaces the list, or takes it away
    source, target = op.source, op.target
    moved = (source, source + 1, target - source)
    if source <= target:
        parts = [(0, source, 0), moved, (source + 1, target + 1, -1), (target + 1, _END, 0)]
    else:
        parts = [(0, target, 0), (target, source, 1), moved, (source + 1, _END, 0)]
    return [one for one in parts if one[0] < one[1]]


def _both(first: list[_Stretch], second: list[_Stretch]) -> list[_Stretch]:
    """Returns the stretches of two changes, one after the other."""
    found: list[_Stretch] = []
    for low, high, by in first:
        at = max(bisect_right(second, low + by, key=_begin) - 1, 0)
        while at < len(second) and second[at][0] < high + by:
            begin, end, further = second[at]
            start, stop = max(low, begin - by), min(high, end - by)
            if start < stop:
                if found and found[-1][1:] == (start, by + further):
                    start = found.pop()[0]
                found.append((start, stop, by + further))
            at += 1
    return found
