"""The places that an inverse restores, and whether later changes spare them, looked up by path: in
a group of thousands of edits none is compared with all others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from perdure.core.values.ops import Append, Move, Op, Reach, Splice, TextSplice, reach
from perdure.core.values.plain_values import Path, Plain, look_up

_WHOLE = object()
"""Stands where all that is there, and in it, comes back."""


class _Node:
    """A place that does not come back whole, and the parts of it that do.

    Attributes:
        keys, items: its restored parts: by their keys in a dict; in a list by their indexes now,
            None for those that stay as they are, as do all behind.
        end: in a list or text the first index behind all restored stretches; -1 if there is none.
        bare: True if nothing is left of a stretch that ends there. Whether a later insertion there
            stands before or behind it is unknown.
    """

    __slots__ = ("bare", "end", "items", "keys")

    def __init__(self) -> None:
        self.keys: dict[Any, Any] = {}
        self.items: list[Any] = []
        self.end = -1
        self.bare = False

    def get(self, key: Any) -> Any:
        """Returns a node, `_WHOLE`, or None."""
        if isinstance(key, int) and 0 <= key < len(self.items):
            return self.items[key]
        return self.keys.get(key)

    def put(self, container: Plain, key: Any, found: Any) -> None:
        if type(container) is list and key >= 0:
            self._reach(key + 1)
            self.items[key] = found
        else:
            self.keys[key] = found

    def stretch(self, low: int, high: int, come: int, items: bool) -> None:
        """Notes that the items between two indexes were restored as `come` others, which are now to
        be restored in turn."""
        if low < self.end:
            self.bare = self.bare and high <= self.end
            self.end = max(self.end, high) + come - (high - low)
        if low + come >= self.end:
            self.bare = come == 0 or (self.bare and low + come == self.end)
            self.end = low + come
        if items:
            self._reach(low)
            self.items[low:high] = [_WHOLE] * come

    def _reach(self, length: int) -> None:
        self.items += [None] * (length - len(self.items))

    def touched_by(self, later: Reach) -> bool:
        """True if a change of this place, not inside of it, touches something restored."""
        if later.start is None or self.keys:
            return True
        if later.start < self.end or (later.start == self.end and later.inserts and self.bare):
            return True
        return any(self.items[later.start : later.stop])


class RestoredPlaces:
    """The places that an inverse restores, as they are after all ops that it takes back."""

    def __init__(self) -> None:
        self._root: Any = None

    def add(self, state: Plain, op: Op) -> None:
        """Adds one more op that is taken back, after those before it. state: after the op."""
        if isinstance(op, Append | Splice | TextSplice | Move):
            node = self._node(state, op.path)
            if node is not None:
                node.stretch(*_stretch(state, op), items=type(op) is not TextSplice)
        elif not op.path:
            self._root = _WHOLE
        else:
            node = self._node(state, op.path[:-1])
            if node is not None:
                node.put(look_up(state, op.path[:-1]), op.path[-1], _WHOLE)

    def _node(self, state: Plain, path: Path) -> _Node | None:
        """Returns the node of a place; None where that comes back whole."""
        if self._root is None:
            self._root = _Node()
        node = self._root
        for key in path:
            if node is _WHOLE:
                return None
            found = node.get(key)
            if found is None:
                found = _Node()
                node.put(state, key, found)
            node, state = found, state[key]
        return None if node is _WHOLE else node

    def touched_by(self, op: Op) -> bool:
        """True if a later op, which stays, touches any of them."""
        node = self._root
        for key in op.path:
            if node is None or node is _WHOLE:
                break
            node = node.get(key)
        if node is None or node is _WHOLE:
            return node is _WHOLE
        return bool(node.touched_by(later_reach(op)))


def _stretch(state: Plain, op: Append | Splice | TextSplice | Move) -> tuple[int, int, int]:
    """Returns the start and end of an op's change in a list or text, and the number of items there
    now."""
    match op:
        case Append():
            come = len(op.values)
            low = len(look_up(state, op.path)) - come
            return low, low + come, come  # nothing was behind it
        case Splice():
            return op.index, op.index + op.removed, len(op.values)
        case TextSplice():
            return op.index, op.index + op.removed, len(op.text)
        case Move():
            low, high = sorted((op.source, op.target))
            return low, high + 1, high + 1 - low


class Touched:
    """The places that later ops touch."""

    def __init__(self, later: Iterable[Op]) -> None:
        self._above: set[Path] = set()
        self._whole: set[Path] = set()
        stretches: dict[Path, list[tuple[int, float]]] = {}
        for op in later:
            at = later_reach(op)
            self._above.update(at.path[:depth] for depth in range(len(at.path) + 1))
            if at.start is None:
                self._whole.add(at.path)
            else:
                stop = float("inf") if at.stop is None else at.stop
                stretches.setdefault(at.path, []).append((at.start, stop))
        self._stretches = {path: _merged(found) for path, found in stretches.items()}

    def at(self, path: Path) -> bool:
        """True if they touch the value at a path, or anything in it."""
        if path in self._above:
            return True
        for depth, key in enumerate(path):
            if path[:depth] in self._whole:
                return True
            found = self._stretches.get(path[:depth])
            if found is not None and (type(key) is not int or _within(found, key)):
                return True
        return False


def _merged(stretches: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns the stretches in order, without those that lie within another."""
    found: list[tuple[int, float]] = []
    for start, stop in sorted(stretches):
        if not found or stop > found[-1][1]:
            found.append((start, stop))
    return found


def _within(stretches: list[tuple[int, float]], index: int) -> bool:
    at = bisect_right(stretches, (index, float("inf")))
    return at > 0 and stretches[at - 1][1] > index


def later_reach(op: Op) -> Reach:
    """Returns what a later op touches. An Append does not say where it went: it is a suffix of all
    that was there before it, so it is taken to start beyond every index."""
    return reach(op, length=1 << 62)
