"""What of a journal its function has still to come to, by the scopes of its tasks.

Each question costs what its answer does, however long the journal is: they are asked at every call
and at the end of every task, so that a scan would make a replay quadratic, and the run stranded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from perdure.engine.journal.entry import Entry


class Leftover:
    """See the module. Entries are added in the order of the log, then it is `sealed`; whoever takes
    one marks it as consumed."""

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
        """No more are added."""
        for entries in (self._all, *self._by_scope.values()):
            entries.reverse()

    def took(self, entry: Entry) -> None:
        """It is consumed."""
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
        """All that is left in one scope, in the order of the log."""
        return [one for one in reversed(self._by_scope.get(scope, ())) if not one.consumed]

    def number_below(self, scope: str) -> int:
        """How many are left in a scope, not the function's own, and in those below it."""
        return self._numbers.get(scope, 0)


def first_left(entries: list[Entry] | None) -> Entry | None:
    """The first that was not come to, of those in reverse order; those that were are dropped."""
    while entries and entries[-1].consumed:
        entries.pop()
    return entries[-1] if entries else None


def upwards(scope: str) -> Iterator[str]:
    """A scope and those that it is in, without the function's own."""
    while scope:
        yield scope
        scope = scope[: scope.rfind("/", 0, -1) + 1]
