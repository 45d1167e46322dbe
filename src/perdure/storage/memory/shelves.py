"""Objects of the memory backend, found by labels; each shelf is in the order of its keys.

A look at one run must not go over the data of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from perdure.storage.memory.undoing import Undo

K = TypeVar("K", int, str)
V = TypeVar("V")


class Shelves(Generic[K, V]):
    """Objects on shelves by their labels. Not thread-safe; `undo` notes what `put` and `take`
    change.

    Args:
        labels: returns the labels of an object: its shelves beside the one of all.
    """

    __slots__ = ("_labels", "_shelves", "_undo", "all")

    def __init__(self, undo: Undo, labels: Callable[[V], Iterable[Any]]) -> None:
        self._undo = undo
        self._labels = labels
        self._shelves: dict[Any, dict[K, V]] = {}
        self.all: dict[K, V] = {}

    def of(self, label: Any) -> dict[K, V]:
        """Returns the objects on a shelf; not to be changed."""
        return self._shelves.get(label, {})

    def put(self, key: K, value: V) -> None:
        """Puts an object at the end, or in the place of the one with the same key and labels."""
        self._undo.item(self.all, key)
        self.all[key] = value
        for label in self._labels(value):
            shelf = self._shelves.get(label)
            if shelf is None:
                shelf = {}
                self._undo.item(self._shelves, label)
                self._shelves[label] = shelf
            self._undo.item(shelf, key)
            shelf[key] = value

    def take(self, key: K) -> None:
        """Removes an object, if it is there."""
        if key not in self.all:
            return
        value = self.all[key]
        self._undo.item(self.all, key)
        del self.all[key]
        for label in self._labels(value):
            shelf = self._shelves[label]
            self._undo.item(shelf, key)
            del shelf[key]
            if not shelf:
                self._undo.item(self._shelves, label)
                del self._shelves[label]

    def note(self) -> None:
        """Notes everything before any change of it, `in_order` included."""
        for name in ("all", "_shelves"):
            self._undo.field(self, name)
        self.all = self.all.copy()
        self._shelves = {label: shelf.copy() for label, shelf in self._shelves.items()}

    def in_order(self) -> None:
        """Sorts by keys: after a `put` of one that is not the last, or a `take` that was taken
        back."""
        self.all = _in_order(self.all)
        self._shelves = {label: _in_order(shelf) for label, shelf in self._shelves.items()}

    def __iter__(self) -> Iterator[V]:
        return iter(self.all.values())


def _in_order(shelf: dict[K, V]) -> dict[K, V]:
    return dict(sorted(shelf.items()))
