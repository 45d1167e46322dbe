"""Outcomes are handed to the tasks of a run one after the other, some rounds of the loop apart.

What a task does next often takes a few rounds: it ends, its group hears of that, somebody who waits
for the first of several goes on. If two outcomes came at once, as they do from one commit, and from
the journal always, then which task is through first would depend on how many rounds each takes, and
be one way live and another on replay. So the first is given time to be through before the next:
until nothing is left for the loop to do, or for `ROUNDS` of it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from perdure.state.ticking import Ticker

ROUNDS = 12


class Pace:
    """See the module. One per execution, for its event loop."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._left = 0
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._rounds = self._seen = 0
        self._next: asyncio.Handle | None = None
        self._ticker = Ticker(self._look)

    async def turn(self, scope: str, several: bool) -> None:
        """Wait to hand an outcome over to a task.

        Args:
            scope: the task's; what one task does comes one after the other anyway.
            several: whether the run has other tasks.
        """
        if several and self._is_busy(scope):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait(scope, turn)
            await turn
        elif several:
            self._hand_over(asyncio.get_running_loop(), scope)

    def queue(self, scope: str, turn: asyncio.Future[None]) -> None:
        """As `turn`, for a task that waits already: its future is set when it may go on."""
        if self._is_busy(scope):
            self._wait(scope, turn)
        else:
            self._hand_over(turn.get_loop(), scope)
            turn.set_result(None)

    @property
    def has_waiting(self) -> bool:
        """Whether outcomes are still to be handed over."""
        return bool(self._waiting)

    def _is_busy(self, scope: str) -> bool:
        return self._left > 0 and (bool(self._waiting) or scope != self._last)

    def _wait(self, scope: str, turn: asyncio.Future[None]) -> None:
        self._waiting.append((scope, turn))
        self._ticker.begin(turn.get_loop())

    def _hand_over(self, loop: asyncio.AbstractEventLoop, scope: str) -> None:
        self._last = scope
        idle, self._left = not self._left, ROUNDS
        if idle:
            self._go_round(loop)

    def _go_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = loop.call_soon(self._round, loop)

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._rounds += 1
        self._left -= 1
        if self._waiting and _is_idle(loop):
            self._left = 0
        while not self._left and self._waiting:
            scope, turn = self._waiting[0]
            if not turn.done():  # its task may have been cancelled
                self._last, self._left = scope, ROUNDS
                turn.set_result(None)
            self._waiting.popleft()  # behind it: who is woken already is passed over
        if self._left:
            self._next = loop.call_soon(self._round, loop)

    def _look(self) -> bool:
        """Whether anybody waits; a round that was lost is made up for."""
        if self._waiting and self._rounds == self._seen:
            if self._next is not None:
                self._next.cancel()
            self._left = 1
            self._go_round(asyncio.get_running_loop())
        self._seen = self._rounds
        return bool(self._waiting)


def _is_idle(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop has nothing to call, so that all that followed has come to its end. Of loops
    that do not show it, as uvloop, nobody knows."""
    ready = getattr(loop, "_ready", None)
    return ready is not None and not ready
