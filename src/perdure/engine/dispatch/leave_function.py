"""The way out of an interrupted run's function, if the interruption does not reach it by itself.

It is raised in the task that was at a boundary, and reaches the code that awaits that task. A
function that awaits a queue, or an event, would not hear of it, and wait for ever for a task that
has ended (I8).
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


class FunctionExit:
    """The way out of one call of a function; for its event loop.

    The function is cancelled while it awaits something, once nothing of the run is due or under way
    and the interruption reached none of its code. If it did, that may be cleaning up, in a
    `finally`: then the function is cancelled when it has awaited the same thing for `LEAVE_S`. If
    it catches that, it is cancelled again. If the program ends it is cancelled at once, like
    everything else in its loop.
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
        """Cancels the function when it is time, if the run is interrupted. Called in the loop, as
        often as anybody likes."""
        if self._execution.interrupted is not None and not self._function.done():
            self._ticker.begin(asyncio.get_running_loop())
            if self._tasks.ends_program is not None and self._at_once:
                self._at_once = False
                self.cancel()

    def cancel(self) -> None:
        """Cancels what the function awaits. Called in the loop."""
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
