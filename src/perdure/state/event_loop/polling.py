"""Looks that an event loop makes every so often, for what a callback may have lost.

What a loop calls by itself has no caller. An exception that comes in there (a time limit's, by a
signal; MemoryError) is logged, the rest of the callback is not done, and who waits for it would
wait for ever. So somebody looks after those who wait.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from time import monotonic

LOST_S = 1.0


class Ticker:
    """Calls `look` every so often, from `begin` on, for as long as it says that there is need.

    All of it is of the loop's own thread. There are always two ticks to come: where one is lost,
    the other goes on. Where both are, that is made up for at the next `begin`.
    """

    __slots__ = ("_every_s", "_late_s", "_look", "_timers")

    def __init__(self, look: Callable[[], bool], every_s: float = LOST_S) -> None:
        self._look = look
        self._every_s = every_s
        self._late_s = 0.0
        """By `monotonic`, which costs a third of the loop's time, and is asked at each wait: later
        than this the tick that is due was lost."""
        self._timers: list[asyncio.TimerHandle] = []

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is need from now on; as often as anybody likes."""
        if monotonic() >= self._late_s:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        nowhere = contextvars.Context()  # timers of a run's own code keep it from being unloaded
        before = self._timers
        self._timers = [
            loop.call_later(self._every_s * number, self._tick, loop, context=nowhere)
            for number in (1, 2)
        ]
        self._late_s = monotonic() + self._every_s * 1.5
        _cancel(before)  # last: an exception before leaves some of the one kind or of the other

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._arm(loop)  # before what may raise
        if not self._look():
            self._late_s = 0.0
            _cancel(self._timers)


def _cancel(timers: list[asyncio.TimerHandle]) -> None:
    for timer in timers:
        timer.cancel()
