"""Coroutines on one thread of LangGraph go to the store's own threads one after the other.

They wait for each other in any case, for the `Thread`'s lock. Where they did so on a thread each, a
graph kept eight of them busy with waking each other.
"""

from __future__ import annotations

from contextlib import suppress

from perdure.adapters import LoopWait, bell

TURN_MAX_S = 1.0
"""So long one waits for the call before. Its end may have been lost, by an exception between two
instructions; what keeps calls apart is the lock."""


class CoroutineTurns:
    """The turns of the coroutines of one loop; coroutines of other loops do not wait."""

    def __init__(self) -> None:
        self._last: tuple[LoopWait, object] | None = None
        """One value for both: loops on other threads come between any two instructions, and who
        waited for a call of another loop would be woken from there."""

    def next(self) -> _Turn:
        """Async context manager: the caller's turn."""
        return _Turn(self)

    def queue(self, mine: LoopWait, loop: object) -> LoopWait | None:
        """Queue a call; the one that it comes behind."""
        last, self._last = self._last, (mine, loop)
        return last[0] if last is not None and last[1] is loop else None

    def leave(self, mine: LoopWait) -> None:
        last = self._last
        if last is not None and last[0] is mine:
            self._last = None  # if one came in between, from another loop: it is not waited for


class _Turn:
    __slots__ = ("_mine", "_turns")

    def __init__(self, turns: CoroutineTurns) -> None:
        self._turns = turns
        self._mine: LoopWait | None = None

    async def __aenter__(self) -> None:
        loop = bell()
        mine = self._mine = LoopWait(loop)
        try:
            before = self._turns.queue(mine, loop)
            if before is not None and not before.settled:
                await before.rest(TURN_MAX_S)
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._mine is not None:
            self._turns.leave(self._mine)
            with suppress(RuntimeError):  # the loop is closed: nobody waits there
                self._mine.wake()
