"""The detection of a standstill while tasks of a run wait for others: one look for all of them.

With a timer for each, tens of thousands of tasks would do nothing but look, and none would get its
turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from perdure.engine.execution.event_pacing import Pace, PacedEvent
from perdure.engine.execution.run_tasks import RunTasks
from perdure.engine.journal import release_order
from perdure.state.event_loop.polling import Ticker


class Rest:
    """One task's wait for others of its run: await `turn`.

    Args:
        pace: hands over the outcome that the task waits for; None if it does not wait for one.
        shows: see `PacedEvent`.

    Attributes:
        paced: `turn` comes from the pace.
        patient: others may take long for calls that are not recorded, unless all provably wait.
        stood: it was woken because nothing moved for too long.
        waiter: calls `over`.
    """

    __slots__ = (
        "_event",
        "_home",
        "_pace",
        "began",
        "paced",
        "patient",
        "stood",
        "turn",
        "waiter",
    )

    def __init__(
        self,
        scope: str,
        place: str = "",
        pace: Pace | None = None,
        shows: int = 0,
        *,
        patient: bool,
        turn: asyncio.Future[None] | None = None,
    ) -> None:
        self.turn = turn or asyncio.get_running_loop().create_future()
        self.began = time.monotonic()
        self.patient = patient
        self.paced = self.stood = False
        self.waiter: release_order.Waiter | None = None
        self._event = PacedEvent(scope, place, self._wake_once, shows)
        self._pace = pace
        self._home = threading.get_ident()

    def is_for_outcome(self, scope: str) -> bool:
        """Returns True if it waits for an outcome recorded in that scope, or below it."""
        return self._pace is not None and self._event.scope.startswith(scope)

    def over(self) -> None:
        """Ends the wait: its turn has come. Callable from any thread."""
        if threading.get_ident() == self._home:
            self._hand_over()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
            self.turn.get_loop().call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        if self._pace is None:
            self.wake()
        elif not self.turn.done():
            self._pace.offer(self._event)
            self.paced = True  # behind it: else `hear` makes up for it

    def wake(self) -> None:
        """Wakes the task to look. Called in the loop."""
        if not self.turn.done():
            self.turn.set_result(None)

    def _wake_once(self) -> bool:
        woken = not self.turn.done()
        self.wake()
        return woken

    def hear(self) -> None:
        """Ends the wait, in the loop, if its turn has come and the call of `over` was lost."""
        if self.waiter is not None and not self.waiter.waits and not self.paced:
            self._hand_over()


class Standstill:
    """The detection for one execution, for its event loop.

    Args:
        tasks: the run's tasks.
        all_rest: returns True if all of the run provably waits.
        expects: returns True if a recorded cancellation of a task is still to come, which may take
            time.
        lets_go_on: removes an avoidable obstacle of all; returns True if there was one.
    """

    def __init__(
        self,
        order: release_order.ReleaseOrder,
        tasks: RunTasks,
        all_rest: Callable[[], bool],
        expects: Callable[[], bool],
        lets_go_on: Callable[[], bool],
    ) -> None:
        self._order = order
        self._tasks = tasks
        self._all_rest = all_rest
        self._expects = expects
        self._lets_go_on = lets_go_on
        self._rests: dict[Rest, None] = {}
        self._ticker = Ticker(self._look, release_order.PROVEN_S / 2)
        self._moves = -1
        self._since = 0.0

    def begin(self, rest: Rest) -> None:
        """A task is about to rest, until `end`."""
        self._rests[rest] = None
        self._ticker.begin(asyncio.get_running_loop())

    def end(self, rest: Rest) -> None:
        self._rests.pop(rest, None)

    def has_before(self, scope: str) -> bool:
        """Returns True if a task of that scope, or below it, waits for a recorded outcome."""
        return any(rest.is_for_outcome(scope) for rest in self._rests)

    def _look(self) -> bool:
        if not self._rests:
            return False
        now = time.monotonic()
        if self._order.moves != self._moves or self._expects():
            self._moves, self._since = self._order.moves, now
            return True
        self._tasks.tell_lost()
        for rest in [*self._rests]:
            rest.hear()
        if now - self._since >= release_order.PROVEN_S and self._lets_go_on():
            return True
        patience_s = release_order.PROVEN_S if self._all_rest() else release_order.STALL_S
        for rest in [*self._rests]:
            still_s = now - max(self._since, rest.began)
            if still_s >= (patience_s if rest.patient else release_order.PROVEN_S):
                rest.stood = True
                rest.wake()
        return True
