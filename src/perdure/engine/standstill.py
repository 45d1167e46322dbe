"""Whether anything moves while tasks of a run wait for others: one look for all of them.

With a timer for each, tens of thousands of tasks would do nothing but look, and none would come to
its turn.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable

from perdure.engine import turns
from perdure.state.waiting import Wait, bell


class Rest(Wait):
    """One task's wait for others of its run.

    Attributes:
        patient: others may do for long what is not recorded, unless all provably wait.
        stood: it was woken because nothing moved for too long.
    """

    __slots__ = ("began", "home", "patient", "stood")

    def __init__(self, *, patient: bool) -> None:
        super().__init__(bell())
        self.began = time.monotonic()
        self.home = threading.get_ident()
        self.patient = patient
        self.stood = False

    def over(self) -> None:
        """From any thread: it has come to its turn."""
        if threading.get_ident() == self.home:
            self.wake()  # the bell would cost a round of the loop
        else:
            self.done()


class Standstill:
    """See the module. One per execution, for its event loop.

    Args:
        all_rest: whether all of the run provably waits.
    """

    def __init__(self, order: turns.Turns, all_rest: Callable[[], bool]) -> None:
        self._order = order
        self._all_rest = all_rest
        self._rests: dict[Rest, None] = {}
        self._looks = False
        self._moves = -1
        self._since = 0.0

    async def rest(self, rest: Rest) -> None:
        """Until it is over, or stood for too long."""
        self._rests[rest] = None
        if not self._looks:
            self._looks = True
            self._look_later(asyncio.get_running_loop())
        try:
            await rest.wait(lambda: True)
        finally:
            del self._rests[rest]

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        nowhere = contextvars.Context()  # timers of the run's own code keep it from being unloaded
        loop.call_later(turns.PROVEN_S / 2, self._look, loop, context=nowhere)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._rests:
            self._looks = False
            return
        self._look_later(loop)
        now = time.monotonic()
        if self._order.moves != self._moves:
            self._moves, self._since = self._order.moves, now
            return
        patience_s = turns.PROVEN_S if self._all_rest() else turns.STALL_S
        for rest in [*self._rests]:
            still_s = now - max(self._since, rest.began)
            if still_s >= (patience_s if rest.patient else turns.PROVEN_S):
                rest.stood = True
                rest.wake()
