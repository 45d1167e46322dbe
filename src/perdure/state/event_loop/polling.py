"""Regular looks of an event loop, for waits that a failed callback may have lost.

What a loop calls by itself has no caller. An exception that comes in there (a time limit's, by a
signal; MemoryError) is logged, the rest of the callback is skipped, and whoever waits for it would
wait for ever. So the ticker looks after all waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from time import monotonic

LOST_S = 1.0


class Ticker:
    """Calls `look` regularly, from `begin` on, for as long as it returns that there is need.

    Everything runs on the loop's own thread. There are always two ticks to come: if one is lost,
    the other goes on. If both are, the next `begin` makes up for it.
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
        """Starts the ticks; may be called as often as needed."""
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
