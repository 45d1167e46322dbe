"""What a transaction in memory has changed, so that one that was left in the middle is taken back.

An exception may come between any two instructions, also in what would take a change back. So each
note says what was there before, as often as it is read the same, and is made before the change;
the notes go, all at once, when the transaction is whole; and who finds any takes them back first.
"""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.missing import MISSING

T = TypeVar("T")


class Undo:
    """See the module. Not thread-safe: the lock of what it is for orders its users."""

    __slots__ = ("_notes",)

    def __init__(self) -> None:
        self._notes: list[tuple[Any, ...]] = []

    def __bool__(self) -> bool:
        return bool(self._notes)

    def item(self, mapping: dict[Any, Any], key: Any) -> None:
        """Before a key of a dict is set or deleted."""
        self._notes.append((_put_item, mapping, key, mapping.get(key, MISSING)))

    def end(self, items: list[Any]) -> None:
        """Before something is put behind a list."""
        self._notes.append((_cut, items, len(items)))

    def field(self, owner: Any, name: str) -> None:
        """Before an attribute is bound anew; what it is bound to must stay as it is."""
        self._notes.append((setattr, owner, name, getattr(owner, name)))

    def whole(self, items: dict[Any, Any] | list[Any]) -> None:
        """Before anything may become of a container; takes as long as that is."""
        self._notes.append((_fill, items, items.copy()))

    def keep(self) -> None:
        """The transaction is whole."""
        self._notes.clear()

    def kept(self, result: T) -> T:
        """As `keep`; gives what it is given."""
        self._notes.clear()
        return result

    def back(self) -> None:
        """Take back what was noted."""
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
