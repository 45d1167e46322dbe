"""How an interrupted run's function is left, where the interruption does not come to it by itself.

It comes up in the task that was at a boundary, and goes to who awaits that. A function that awaits
a queue, or an event, would hear nothing of it, and wait for ever for a task that has ended (I8).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from perdure.engine.execution import run_tasks as run_tasks
from perdure.engine.execution.run_tasks import RunTasks
from perdure.state.event_loop.polling import Ticker

if TYPE_CHECKING:
    from perdure.engine.execution.execution import Execution

LOOK_S = 0.05


class WayOut:
    """See the module. One per call of a function, for its event loop.

    The function is cancelled where it awaits something, once nothing of the run is due or being
    made and nobody was told. One that was told may be cleaning up, in a `finally`: it is cancelled
    when it has awaited the same thing for `LEAVE_S`. That comes again for one that catches it.
    Where the program is to end it is cancelled at once, as all that goes on in its loop would be.
    """

    def __init__(
        self, execution: Execution[Any], tasks: RunTasks, function: asyncio.Task[Any]
    ) -> None:
        self._execution = execution
        self._tasks = tasks
        self._function = function
        self._awaited: Any = self  # nothing that it awaits
        self._since = 0.0
        self._at_once = True
        self._ticker = Ticker(self._look, LOOK_S)

    def look(self) -> None:
        """From the loop, as often as anybody likes: see to it, if the run is interrupted."""
        if self._execution.interrupted is not None and not self._function.done():
            self._ticker.begin(asyncio.get_running_loop())
            if self._tasks.ends_program is not None and self._at_once:
                self._at_once = False
                self.cancel()

    def cancel(self) -> None:
        """From the loop: end what the function awaits."""
        self._tasks.told = True
        self._awaited, self._since = None, time.monotonic()
        self._function.cancel()

    def _look(self) -> bool:
        function, now = self._function, time.monotonic()
        if function.done():
            return False
        self._tasks.tell_lost()
        awaited = getattr(function, "_fut_waiter", None)
        if awaited is not self._awaited:
            self._awaited, self._since = awaited, now
        idle = not self._execution.going.calls and not self._tasks.due()
        if (idle and not self._tasks.somebody_was_told()) or now - self._since > run_tasks.LEAVE_S:
            self.cancel()
        return True
