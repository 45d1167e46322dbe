"""Calls that a limit keeps from beginning, on a replay of a run in which the limit was higher.

Calls that are not recorded wait until the whole record has been replayed. If such calls had all
places, and waited for a recorded one without a place, none would ever end.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.engine.journal.scopes import Scope
from perdure.system.locks import Lock


class Lending:
    """The lending of places, one for each limit; safe between threads.

    Args:
        lend: lets this many more begin at once, in order of arrival.
    """

    def __init__(self, lend: Callable[[int], None]) -> None:
        self._lend = lend
        self._lock = Lock()
        self._held: dict[Scope, None] = {}
        """By the order in which they are to begin."""
        self._lent: list[None] = []

    def holds(self, scope: Scope) -> None:
        """A call is to begin when there is a place."""
        self._held[scope] = None

    def begins(self, scope: Scope) -> None:
        """There is one; or it never will."""
        self._held.pop(scope, None)

    def lend(self, path: str) -> bool:
        """Lets the recorded calls of that scope begin, and those before it; returns True if they
        had not begun."""
        with self._lock:
            held = [*self._held]
            ahead = next((n for n, scope in enumerate(held) if path.startswith(scope.path)), None)
            if ahead is None:
                return False
            self._lent += [None] * (ahead + 1)  # before: they may be over at once
            self._lend(ahead + 1)
            for scope in held[: ahead + 1]:
                self._held.pop(scope, None)  # it is let in once
            return True

    def is_over(self) -> bool:
        """A call that had begun has ended; whether its place was a lent one, which goes with it."""
        try:
            self._lent.pop()
        except IndexError:
            return False
        return True
