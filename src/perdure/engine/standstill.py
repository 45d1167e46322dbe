"""Whether anything moves while tasks of a run wait for others: one look for all of them.

With a timer for each, tens of thousands of tasks would do nothing but look, and none would come to
its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable

from perdure.engine import turns
from perdure.engine.pacing import Pace


class Rest:
    """One task's wait for others of its run: await `turn`.

    Args:
        pace: hands the outcome over that the task waits for; None: it is no outcome.

    Attributes:
        paced: `turn` comes from the pace.
        patient: others may do for long what is not recorded, unless all provably wait.
        stood: it was woken because nothing moved for too long.
    """

    __slots__ = ("_home", "_pace", "_scope", "began", "paced", "patient", "stood", "turn")

    def __init__(self, scope: str, pace: Pace | None = None, *, patient: bool) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.began = time.monotonic()
        self.patient = patient
        self.paced = self.stood = False
        self._scope = scope
        self._pace = pace
        self._home = threading.get_ident()

    def over(self) -> None:
        """From any thread: it has come to its turn."""
        if threading.get_ident() == self._home:
            self._hand_over()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
            self.turn.get_loop().call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        if self._pace is None:
            self.wake()
        elif not self.turn.done():
            self.paced = True
            self._pace.queue(self._scope, self.turn)

    def wake(self) -> None:
        """From the loop: let it look."""
        if not self.turn.done():
            self.turn.set_result(None)


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

    def begin(self, rest: Rest) -> None:
        """A task is about to rest, until `end`."""
        self._rests[rest] = None
        if not self._looks:
            self._looks = True
            self._look_later(asyncio.get_running_loop())

    def end(self, rest: Rest) -> None:
        self._rests.pop(rest, None)

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
