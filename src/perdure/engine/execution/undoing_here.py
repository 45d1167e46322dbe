"""The undoing of a run's calls while it executes here: that it goes on, and whose it is.

An undoing that has begun is carried out: neither a request to end the run nor its deadline comes in
between, for what is left then would stay. And only one of a run's tasks at a time finds out what is
to be undone: two at once would undo the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from perdure.system.flag import Flag

LOOK_S = 0.02
"""The interval at which one that waits for another looks whether its run goes on."""


class UndoingHere:
    """See the module. For all threads and tasks of one execution; each change of it is a single
    operation.

    Args:
        begun: the places of the plans that are recorded, and not carried out: the function comes to
            them again.
    """

    def __init__(self, begun: Collection[str] = ()) -> None:
        self._begun = set(begun)
        self._going: set[object] = set()
        self._first: dict[str, object] = {}
        """The one that makes a new plan, and carries it out."""

    @property
    def is_on(self) -> bool:
        return bool(self._going or self._first or self._begun)

    def ended(self, one: object, place: str) -> None:
        """Notes the end of an undoing; `place`: that of its plan."""
        self._going.discard(one)
        self._begun.discard(place)
        if self._first.get("") is one:
            del self._first[""]

    def goes_on(self, one: object) -> None:
        """Notes that the plan of an undoing is known."""
        self._going.add(one)

    def begins(self, one: object) -> bool:
        """Begins an undoing, and returns True, if nobody else undoes anything."""
        others = self._begun or self._going
        return not others and self._first.setdefault("", one) is one

    def begin(self, one: object, check: Callable[[], None]) -> None:
        """Waits until nobody else undoes anything, and begins.

        Args:
            check: raises if the run does not go on.
        """
        while not self.begins(one):
            check()
            Flag().wait(LOOK_S)
