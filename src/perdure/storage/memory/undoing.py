"""The changes of a transaction in memory, noted so that an interrupted one can be taken back.

An exception may come between any two instructions, also while a change is taken back. So each note
says what was there before, can be applied any number of times, and is made before the change; the
notes are dropped, all at once, when the transaction is complete; and whoever finds any takes them
back first.
"""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.missing import MISSING

T = TypeVar("T")


class Undo:
    """The notes of one transaction. Not thread-safe: the lock of its owner orders its users."""

    __slots__ = ("_notes",)

    def __init__(self) -> None:
        self._notes: list[tuple[Any, ...]] = []

    def __bool__(self) -> bool:
        return bool(self._notes)

    def item(self, mapping: dict[Any, Any], key: Any) -> None:
        """Notes a key of a dict, before it is set or deleted."""
        self._notes.append((_put_item, mapping, key, mapping.get(key, MISSING)))

    def end(self, items: list[Any]) -> None:
        """Notes the end of a list, before something is appended."""
        self._notes.append((_cut, items, len(items)))

    def field(self, owner: Any, name: str) -> None:
        """Notes an attribute before it is rebound; its old value must not be changed."""
        self._notes.append((setattr, owner, name, getattr(owner, name)))

    def whole(self, items: dict[Any, Any] | list[Any]) -> None:
        """Notes a container before any change of it; takes as long as it is big."""
        self._notes.append((_fill, items, items.copy()))

    def keep(self) -> None:
        """Drops the notes: the transaction is complete."""
        self._notes.clear()

    def kept(self, result: T) -> T:
        """Drops the notes, and returns its argument."""
        self._notes.clear()
        return result

    def back(self) -> None:
        """Takes back what was noted."""
        for do, *arguments in reversed(self._notes):
            do(*arguments)
        self._notes.clear()


def _put_item(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _cut(items: list[Any], length: int) -> None:
    del items[length:]


def _fill(items: Any, before: Any) -> None:
    if type(items) is list:
        items[:] = before
    else:
        items.clear()
        items.update(before)
