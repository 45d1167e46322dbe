"""The place of a piece of code in a run's tree of tasks: it makes the ids of calls stable.

A task, or a function given to a run's own threads, is a scope of its own. Its parent names it when
it is made, by its function and the number of such tasks so far: the parent's code makes them in the
same order each time, whereas the order in which they run is chance. Other tasks that a framework
makes now and then, for example for waiting, do not shift its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from perdure.system.locks import Lock

_SCOPE = re.compile(r"(?:[^/]*#\d+/)+")
_TASK = re.compile(r"(#\d+)/")


class Scope:
    """One task of a run. `path`: empty for the function itself, then ``fetch#2/``,
    ``fetch#2/page#1/`` …"""

    __slots__ = (
        "_counts",
        "_lock",
        "alive",
        "home",
        "is_cancelled",
        "over",
        "parent",
        "path",
        "runs",
    )

    def __init__(self, path: str = "", parent: Scope | None = None) -> None:
        self.path = path
        self.parent = parent
        self.over = False
        self.alive = 0
        """Children that have not ended."""
        self.home = 0
        """Ident of the thread that its code runs on: others come to its calls in any order."""
        self.is_cancelled: Callable[[], bool] | None = None
        """For the thread that a task waits for: whether that was cancelled meanwhile."""
        self.runs: Coroutine[Any, Any, Any] | None = None
        """Of a task, until it has ended."""
        self._counts: dict[str, int] = {}
        self._lock = Lock()

    def child(self, name: str) -> Scope:
        """Returns a new task of this one. `name`: that of its function."""
        name = name.rsplit("<locals>.", 1)[-1].replace("/", "_")
        with self._lock:
            number = self._counts[name] = self._counts.get(name, 0) + 1
            self.alive += 1
        return Scope(f"{self.path}{name}#{number}/", self)

    def ended(self) -> None:
        """This one has ended; once."""
        self.over = True
        if self.parent is not None:
            with self.parent._lock:
                self.parent.alive -= 1

    def named(self, name: str) -> str:
        """A name in this scope, e.g. of a call; the occurrence is appended by the journal."""
        if "/" in name:  # an edit's, say, and no task's
            name = _TASK.sub(r"\1_", name)
        return self.path + name


def scope_of(place: str) -> str:
    """The path of the scope that a place is in."""
    if "/" not in place:
        return ""
    found = _SCOPE.match(place)
    return found.group() if found else ""
