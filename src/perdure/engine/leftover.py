"""What of a journal its function has still to come to, by the scopes of its tasks.

Each question costs what its answer does, however long the journal is: they are asked at every call
and at the end of every task, so that a scan would make a replay quadratic, and the run stranded.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.engine.journal import Entry


class Leftover:
    """See the module. Entries are added in the order of the log, then it is `sealed`; whoever takes
    one marks it as consumed."""

    __slots__ = ("_all", "_below", "_by_scope", "_numbers", "number")

    def __init__(self) -> None:
        self.number = 0
        """How many are left in all."""
        self._all: list[Entry] = []
        self._by_scope: dict[str, list[Entry]] = {}
        self._numbers: dict[str, int] = {}
        """By scope, but the function's own: how many are left in it and in those below it."""
        self._below: dict[str, list[str]] = {}
        """By scope: the scopes right below it, in which, or below which, something is recorded."""

    def add(self, entry: Entry) -> None:
        self.number += 1
        self._all.append(entry)
        in_scope = self._by_scope.get(entry.scope)
        if in_scope is None:
            in_scope = self._by_scope[entry.scope] = []
        in_scope.append(entry)
        if not entry.scope:
            return
        child = ""
        for path in upwards(entry.scope):
            known = path in self._numbers
            self._numbers[path] = self._numbers.get(path, 0) + 1
            if child:
                self._below.setdefault(path, []).append(child)
            child = "" if known else path

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
        """All that is left in one scope."""
        return [entry for entry in self._by_scope.get(scope, ()) if not entry.consumed]

    def below(self, scope: str, living: Container[str]) -> list[Entry]:
        """What is left in a scope and in those below it that nothing lives in."""
        found: list[Entry] = []
        paths = [scope]
        while paths:
            path = paths.pop()
            if not self._numbers.get(path) or (path != scope and path in living):
                continue
            found += [entry for entry in self._by_scope.get(path, ()) if not entry.consumed]
            paths += self._below.get(path, ())
        return sorted(found, key=lambda entry: entry.seq)


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
