"""One attempt at executing an asynchronous run: its function is a task of the caller's event
loop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.drive_end import End, NextTurn
from perdure.engine.dispatch.leave_function import FunctionExit
from perdure.engine.execution.async_performer import AsyncPerformer
from perdure.engine.execution.current_run import RunFrame, counted, inside
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.loop_rounds import tick
from perdure.engine.execution.run_tasks import RunTasks, number_tasks
from perdure.engine.functions.async_run import AsyncRun
from perdure.engine.journal.effects import Carried
from perdure.engine.journal.lacking_resources import lacking
from perdure.engine.journal.leaving import (
    CancelAsked,
    Drained,
    cancelled_itself,
    end_of,
    turned_back,
    unwrapped,
)
from perdure.errors import NeedsAttention, PerdureError, RunInterrupted
from perdure.state.event_loop.loop_waits import has_ended
from perdure.state.run_view import ViewedCopy
from perdure.system import logs

_log = logs.logger("perdure.engine")

LOST_S = 5.0
"""The interval at which lost news of a run is looked for."""

LATE_S = 0.1
"""The interval at which a run that is to be left is looked at, while its calls end."""

DUE_S = 1.0
"""The longest time for which such a run is not left because it is about to go on: what it awaited
may have come, or it may go on like that for ever."""


class AsyncDrive(Drive):
    """Blocking work is done on the store's threads; the function itself runs in the event loop."""

    working_type = ViewedCopy

    _this_call: weakref.ref[Coroutine[Any, Any, End]]

    _due_since = math.inf
    """The time since which nothing but what is due keeps it from being left."""

    def run_async(self) -> Coroutine[Any, Any, End]:
        """Executes the run; see `Drive.run`. A caller that is cancelled leaves the run to the next
        executor."""
        call = self._run_async()
        self._this_call = weakref.ref(call)
        return call

    async def _run_async(self) -> End:
        in_thread, loop = self._means.context.in_thread, asyncio.get_running_loop()
        self._hold.is_left = partial(has_ended, self._this_call, loop)
        try:
            execution = await in_thread(self.begin)
            while True:
                tasks = execution.tasks = RunTasks(execution, numbered=True)
                tasks.drive = self._this_call()
                result, error = await self._call(execution, tasks)
                if error is not None:
                    try:
                        error = end_of(error, self.id)
                    except BaseException:
                        await in_thread(execution.writer.close)
                        raise
                end = await in_thread(self.conclude, execution, result, error)
                if not isinstance(end, NextTurn):
                    return end
                execution = await in_thread(self._next_execution)
        finally:
            cancelled = await _to_the_end(in_thread(self.release))
            if cancelled is not None:
                raise cancelled  # kept back, it would be lost: the caller would try again for ever

    async def _call(
        self, execution: Execution[Any], tasks: RunTasks
    ) -> tuple[Any, BaseException | None]:
        """Calls the function in a task of its own, and waits until all of its tasks have ended."""
        loop = asyncio.get_running_loop()
        number_tasks(loop)
        execution.root.home = threading.get_ident()
        execution.runs_in_loop(AsyncPerformer(execution, tasks))
        try:
            root = tasks.begin(self._body(execution), execution.root)
            cancelled = await self._until_done(execution, tasks, root)
            ended = None if root.cancelled() else root.exception()
            left = ended.original if isinstance(ended, _EndedBy) else ended
            self._tell_of_end(execution, left, cancelled)
        except GeneratorExit:
            raise
        except BaseException as error:
            # Nothing else would end them. From here on their outcome is not the function's doing:
            # its replay would wait for them to be cancelled.
            execution.leaving.failed(error)
            await _to_the_end(self._end_tasks(execution, tasks))
            raise
        cancelled = await _to_the_end(self._end_tasks(execution, tasks)) or cancelled
        if cancelled is not None:
            await _to_the_end(self._means.context.in_thread(execution.writer.close))
            raise cancelled
        if (ends := tasks.ends_program or _ends_program(execution, tasks)) is not None:
            return None, ends  # whatever of the function caught what it heard of that
        if root.cancelled():
            if execution.interrupted is None:
                raise asyncio.CancelledError
            return None, execution.interrupted
        if left is None:
            return root.result(), None
        if type(left) is Carried:
            return None, left.original
        return None, left  # what interrupted it; none of this is an end that it has come to

    async def _until_done(
        self, execution: Execution[Any], tasks: RunTasks, root: asyncio.Task[Any]
    ) -> asyncio.CancelledError | None:
        """Waits for the function's end, and looks for requests to end it; returns the cancellation
        of this call in the meantime, if any."""
        loop = asyncio.get_running_loop()
        way_out = FunctionExit(execution, tasks, root)
        rung = heard = 0

        def look() -> None:
            nonlocal heard
            if heard != (now := rung):
                with suppress(PerdureError):  # it is looked for again
                    execution.look_for_cancel()
                heard = now  # behind it: what was lost is looked for again
            self._leave_if_asked(execution, tasks, root, way_out)
            way_out.look()

        def interrupted() -> None:
            nonlocal rung
            rung += 1
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(look)

        self.going(execution)
        watch = execution.wakeups.watch(execution.id, interrupted)
        cancelled: asyncio.CancelledError | None = None
        with watch:
            while not root.done():
                try:
                    asked = isinstance(execution.asked_to_stop, CancelAsked)
                    left_s = 0.0 if asked else self._left_s(execution)
                    await asyncio.wait([root], timeout=min(LOST_S, max(left_s, LATE_S)))
                    look()
                except asyncio.CancelledError as error:
                    cancelled = error
                    execution.interrupt(Drained("the task that ran it was cancelled"))
                    way_out.cancel()
        return cancelled

    def _tell_of_end(
        self,
        execution: Execution[Any],
        left: BaseException | None,
        cancelled: asyncio.CancelledError | None,
    ) -> None:
        """The function's own task has ended, with that: before its others are cancelled for it."""
        if left is not None and not isinstance(left, Exception):
            execution.leaving.left(left, "the function")
        elif left is not None and type(left) is not Carried:
            execution.leaving.failed(left)  # from outside: nor are they by the function
        elif cancelled is None and execution.interrupted is None:
            error = left.original if isinstance(left, Carried) else None
            if not self._came_short(execution, error) and left is None:
                self._tell_of_tasks(execution)

    def _came_short(self, execution: Execution[Any], error: Exception | None) -> bool:
        """Returns True if the function did not reach everything that it had itself recorded. That
        interrupts the run, which then stops: its other tasks would be recorded as cancelled, and no
        code that reaches everything could continue from there."""
        if isinstance(error, NeedsAttention) or lacking(error) is not None:
            return False  # these stop it, too, by their own words
        if execution.journal.left.first_in("") is None:
            return False
        with suppress(RunInterrupted), execution.stopping:
            execution.journal.check_finished(error)
        return True

    def _tell_of_tasks(self, execution: Execution[Any]) -> None:
        """The function returned, and what of it still goes on is cancelled: a tool that is under
        way, say, of which nobody knows then whether it took effect."""
        assert execution.tasks is not None
        execution.tasks.tell_lost()
        names = [
            scope.path.rstrip("/")
            for task, scope in execution.tasks.scopes.items()
            if not task.done() and not task.cancelling()  # else it is the function that did it
        ]
        if names:
            _log.warning(
                "run %s: its function returned without awaiting %s: cancelled",
                self.id,
                ", ".join(sorted(names)),
            )

    async def _end_tasks(self, execution: Execution[Any], tasks: RunTasks) -> None:
        await tasks.cancel()
        await execution.async_performer.close()
        await execution.close_resources_in_loop()

    def _leave_if_asked(
        self,
        execution: Execution[Any],
        tasks: RunTasks,
        root: asyncio.Task[Any],
        way_out: FunctionExit,
    ) -> None:
        """If the run was asked to end, or its deadline has passed, what its function awaits is no
        longer awaited: that may never come. What is under way comes to its end first, and reaches
        the function; see `RunTasks.defers`."""
        if root.done() or execution.interrupted is not None or execution.is_undone:
            return
        reason = execution.asked_to_stop
        if not isinstance(reason, CancelAsked):
            if self._left_s(execution) > 0:
                return
            reason = execution.late()
        if tasks.defers(reason) or execution.going.handing.number:
            self._due_since = math.inf
            return
        now = time.monotonic()
        self._due_since = min(self._due_since, now)
        if tasks.due() and now - self._due_since < DUE_S:
            return
        execution.interrupt(reason)
        way_out.cancel()

    def _left_s(self, execution: Execution[Any]) -> float:
        """Returns the seconds until the run's time is up; infinite if it has no end."""
        if not self._ends.at or execution.is_undone:
            return math.inf
        try:
            return (self._ends.at - self._means.context.backend.now()) / 1e6
        except PerdureError:
            return LOST_S  # it is asked again

    async def _body(self, execution: Execution[Any]) -> Any:
        with counted(), inside(RunFrame(execution, "function", execution.root)):
            try:
                return await self._doing(AsyncRun(execution), *self._args, **self._kwargs)
            except asyncio.CancelledError as cancelled:
                await tick()  # whoever cancelled the whole run gets to say so
                if execution.interrupted is not None:
                    raise execution.interrupted from None
                raise Carried(cancelled_itself(cancelled, self.id)) from None
            except Exception as raised:
                raise Carried(raised) from None
            except RunInterrupted:
                raise
            except BaseExceptionGroup as group:
                raise unwrapped(group, execution.interrupted) from None
            except (SystemExit, KeyboardInterrupt) as error:
                raise _EndedBy(error) from None


def _ends_program(execution: Execution[Any], tasks: RunTasks) -> BaseException | None:
    """Returns the exception that ends the program, with which a task was on its way out and which
    cleaned up behind it; the function itself has not heard of it."""
    reason = execution.interrupted.reason if execution.interrupted is not None else None
    left = turned_back(reason)
    ends = isinstance(left, KeyboardInterrupt | SystemExit) and not tasks.told
    return left if ends else None


class _EndedBy(Exception):
    """The program is to end. Raised in a task, `original` ends the event loop at once: that is for
    the caller's task, once all is tidied up. A TaskGroup raises it while the loop ends already."""

    def __init__(self, original: BaseException) -> None:
        super().__init__()
        self.original = original


async def _to_the_end(work: Coroutine[Any, Any, None]) -> asyncio.CancelledError | None:
    """See something through, however often the caller is cancelled meanwhile; whether it was."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    return cancelled
