"""The part of a journal that its function has not reached yet, by the scopes of its tasks.

The cost of each query depends on its answer, not on the length of the journal: there is one at
every call and at the end of every task, so that scans would make a replay quadratic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from perdure.engine.journal.entry import Entry


class Leftover:
    """The unreached entries. They are added in the order of the log, then it is `sealed`; a caller
    that takes one marks it as consumed."""

    __slots__ = ("_all", "_by_scope", "_numbers", "number")

    def __init__(self) -> None:
        self.number = 0
        """The number of all that are left."""
        self._all: list[Entry] = []
        self._by_scope: defaultdict[str, list[Entry]] = defaultdict(list)
        self._numbers: dict[str, int] = {}
        """By scope, but the function's own: how many are left in it and in those below it."""

    def add(self, entry: Entry) -> None:
        self.number += 1
        self._all.append(entry)
        self._by_scope[entry.scope].append(entry)
        if entry.scope:  # most are the function's own
            for path in upwards(entry.scope):
                self._numbers[path] = self._numbers.get(path, 0) + 1

    def sealed(self) -> None:
        """Ends the adding of entries."""
        for entries in (self._all, *self._by_scope.values()):
            entries.reverse()

    def took(self, entry: Entry) -> None:
        """Notes that an entry is consumed."""
        self.number -= 1
        if entry.scope:
            for path in upwards(entry.scope):
                self._numbers[path] -= 1

    def first(self) -> Entry | None:
        """The first that is left, of any scope."""
        return first_left(self._all)

    def first_in(self, scope: str) -> Entry | None:
        """The first that is left in one scope."""
        return first_left(self._by_scope.get(scope))

    def all_in(self, scope: str) -> list[Entry]:
        """Returns everything left in one scope, in the order of the log."""
        return [one for one in reversed(self._by_scope.get(scope, ())) if not one.consumed]

    def number_below(self, scope: str) -> int:
        """Returns the number of entries left in a scope, not the function's own, and in those below
        it."""
        return self._numbers.get(scope, 0)


def first_left(entries: list[Entry] | None) -> Entry | None:
    """Returns the first unreached entry of a list in reverse order; drops the reached ones."""
    while entries and entries[-1].consumed:
        entries.pop()
    return entries[-1] if entries else None


def upwards(scope: str) -> Iterator[str]:
    """Yields a scope and those that it is in, without the function's own."""
    while scope:
        yield scope
        scope = scope[: scope.rfind("/", 0, -1) + 1]
