"""The performer of a run's effects in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from perdure.engine.execution.activity import Waiting
from perdure.engine.execution.async_call import Calling, as_kept_on, cancels
from perdure.engine.execution.awaited_futures import consumed
from perdure.engine.execution.branch_changes import change_in_loop, record_named_in_loop
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.current_run import inside
from perdure.engine.execution.handover import CancelledCall, Handing, OfWait
from perdure.engine.execution.interrupts import Stopping
from perdure.engine.execution.loop_rounds import take_cancellation, tick
from perdure.engine.execution.performer import (
    SETTLING,
    AttemptClock,
    CallThread,
    frame_of,
    pausing,
    waiting,
)
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.execution.run_tasks import RunTasks, runner_here
from perdure.engine.execution.standstill import Rest
from perdure.engine.execution.wakeups import POLL_S
from perdure.engine.journal.call import Call
from perdure.engine.journal.cancellations import Heard, alone
from perdure.engine.journal.effects import (
    Arrive,
    Arrived,
    Await,
    Came,
    CancelledInside,
    Carried,
    Change,
    Effect,
    Effects,
    Invoke,
    Now,
    Pause,
    RecordEffect,
    drive_async,
)
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import OthersFirstError
from perdure.engine.journal.replay import arrival, from_there, outcome_of
from perdure.engine.journal.retries import NO_LIMITS
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.values import is_async
from perdure.engine.journal.waits import Suspended, only_runs
from perdure.errors import Unstorable
from perdure.state.event_loop.delayed_cancel import Told
from perdure.state.event_loop.loop_waits import LoopWait, Threads, bell
from perdure.storage.appending import Riders
from perdure.storage.log.refusals import OvertakenError

R = TypeVar("R")

THREADS_MAX = 32

GRACE_S = 5.0
"""The time that a cancelled attempt, which took too long, has to end before it is abandoned."""


class _Stopping(Stopping):
    """Interrupts a run in a task; the task's own cancellation, or its disposal, does not count."""

    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, asyncio.CancelledError | GeneratorExit):
            super().__exit__(kind, error, trace)


class AsyncPerformer(Handing):
    """Performs the effects of one run in the event loop that its function runs in.

    Synchronous functions are called on threads of the run's own.
    """

    def __init__(self, execution: RunPosition[Any], tasks: RunTasks) -> None:
        super().__init__(execution, tasks)
        self._threads: Threads | None = None
        self.stopping = _Stopping(execution.leaving.passed_on)

    def make(self, call: Call) -> Awaitable[Any]:
        """Makes a call of a recorded function, or returns its recorded result."""
        if not self._execution.journal.replaying or not self._tasks.numbered:
            return self.call(call)
        return self._make_again(call)

    async def _make_again(self, call: Call) -> Any:
        """Repeats a call during replay, the most frequent case. Tens of thousands may wait here at
        once: each keeps little."""
        execution = self._execution
        try:
            scope = execution.scope()
            entry = execution.recorded_in(scope, call)
            if entry is not None:
                return await self._take_again(entry, scope, call)
        except asyncio.CancelledError as cancelled:
            error: BaseException = alone(cancelled)
        except GeneratorExit:
            raise
        except BaseException as raised:
            error = execution.leaving.passed_on(raised)
        else:
            return await self.call(call)
        raise error

    async def _take_again(self, entry: Entry, scope: Scope, call: Call) -> Any:
        """Returns the result of a recorded call, once its turn has come."""
        execution = self._execution
        try:
            await self.wait_for_turn(entry, scope, call.name)
        except asyncio.CancelledError as cancelled:
            await self.cancelled_before_turn(entry, scope, call.name, cancelled)
        if entry.kept_on:
            await take_cancellation()
        execution.turns.release(entry)
        try:
            return outcome_of(call, entry)
        except asyncio.CancelledError as raised:  # of code of the user's, and not of this task
            error = execution.leaving.passed_on(raised)
        raise error

    async def call(self, effects: Effects | Call) -> Any:
        """Drives effects to their result, or a recorded call from where the function reaches it."""
        execution = self._execution
        calling = Calling(task := asyncio.current_task(), heard=cancels(task, heard=True))
        try:
            if isinstance(effects, Call):
                effects = from_there(effects, await self._arrive(arrival(effects), calling))
            return await drive_async(effects, partial(self.perform, calling))
        except GeneratorExit:  # it was thrown away
            raise
        except CancelledInside as left:
            error: BaseException = alone(left.original)
        except asyncio.CancelledError as cancelled:
            self._tasks.ask_for_user()
            if execution.interrupted is not None:
                # Frameworks take a cancelled tool for one that failed, and go on.
                raise execution.interrupted from None
            if not calling.is_cancelled:  # of code that was called, or the call's own outcome
                raise execution.leaving.passed_on(cancelled) from None
            error = alone(cancelled)
            if calling.place and not calling.noted and calling.arrive is not None:
                try:
                    await self._note_cancelled(calling, calling.arrive, cancelled)
                except asyncio.CancelledError as latest:
                    error = alone(latest)
        except BaseException as raised:
            error = execution.leaving.passed_on(raised)
        finally:
            if calling.intends:
                self._intends_no_more(calling)
        raise error

    def _intends_no_more(self, calling: Calling) -> None:
        calling.intends = False
        self._execution.going.calling.marks.pop()
        self._tasks.calling.marks.pop()
        self._tasks.tools.marks.pop()

    async def _note_cancelled(
        self, calling: Calling, arrive: Arrive, cancelled: asyncio.CancelledError
    ) -> None:
        """The function does not see what comes of this.

        Raises:
            CancelledError: its task was cancelled once more.
        """
        settled = calling.settled
        wait: OfWait = (calling.began, None)
        if settled is not None:
            wait = settled.began, settled.last
        call = CancelledCall(calling.place, arrive.kind, calling.since, arrive, wait)
        if settled is None:
            await self.cancelled_first(call, cancelled)
        else:
            self.note_cancelled(call, cancelled)

    async def in_thread(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Calls a synchronous function on a thread, in this context."""
        if self._threads is None:
            self._threads = Threads(THREADS_MAX)
        with self._in_threads:
            return await self._threads.call(function, *args, **kwargs)

    async def close(self) -> None:
        """The run's function has ended."""
        interrupted = self._execution.interrupted
        if interrupted is not None and isinstance(interrupted.reason, Suspended):
            self.timers.clock.note_asked()
        self.timers.ended = True
        threads, self._threads = self._threads, None
        if threads is not None:
            await self._execution.context.in_thread(threads.close)

    def perform(self, calling: Calling, effect: Effect) -> Awaitable[Any]:
        if isinstance(effect, RecordEffect):
            return self._record(effect, calling)
        if isinstance(effect, Invoke):
            return self._invoke(effect, calling)
        if isinstance(effect, Arrive):
            return self._arrive(effect, calling)
        if isinstance(effect, Now):
            return self._now()
        if isinstance(effect, Pause):
            return self._pause(effect)
        if isinstance(effect, Change):
            return change_in_loop(self, self._execution, effect, calling)
        return self._await(effect)

    async def _now(self) -> int:
        return self._execution.now()

    # -- whose turn it is ----------------------------------------------------------------------

    async def _arrive(self, effect: Arrive, calling: Calling) -> Arrived:
        execution = self._execution
        scope, entry = self.check_place(effect.name), None
        past = execution.past_record or execution.comes_past_record()
        if not past and (self._tasks.numbered or not execution.journal.replaying):
            entry = execution.find(effect, scope)
        elif not past:
            entry = await self._find_patiently(effect, scope)
        calling.arrive, calling.since = effect, time.monotonic()
        calling.began = entry.call if entry is not None else None
        try:
            if not past or self._tasks.is_over:
                await self.wait_for_turn(entry, scope, effect.name)
            if (entry is None or entry.outcome is None) and execution.reason_to_leave():
                await self.let_calls_end()
        except asyncio.CancelledError as cancelled:
            if entry is not None and entry.order >= 0:
                await self.cancelled_before_turn(entry, scope, effect.name, cancelled)
            else:
                if execution.interrupted is not None:
                    raise
                told = Told(cancelled)
                if entry is not None:
                    calling.place = entry.place
                elif await self.is_come_to(scope, effect.name, told):
                    calling.place = execution.new_place(effect.name, scope)
                raise told.error from None
        if entry is not None and entry.cancelled:
            await self.cancelled_again(entry)
        elif entry is not None and entry.kept_on:
            await take_cancellation()
        arrived = execution.arrived(effect, scope, entry)
        calling.place, calling.since = arrived.place, time.monotonic()
        return arrived

    async def _find_patiently(self, effect: Arrive, scope: Scope) -> Entry | None:
        """Finds an entry if tasks share a scope: they come in any order."""
        execution = self._execution
        while True:
            try:
                return execution.find(effect, scope, patient=True)
            except OthersFirstError:
                rest = Rest(scope.path, patient=False)
                waiter = execution.watch_others(scope, rest.over)
                if waiter is None:
                    continue
                rest.waiter = waiter
                self._standstill.begin(rest)
                try:
                    await rest.turn
                finally:
                    self._standstill.end(rest)
                    execution.turns.forget(waiter)
                execution.check()
                if rest.stood:
                    return execution.find(effect, scope)  # it says what is wrong

    async def _record(self, effect: RecordEffect, calling: Calling) -> None:
        execution = self._execution
        if calling.noted and not self._tasks.numbered:
            execution.writer.later(Riders(effect.riders.records))  # see `cancelled_item`
            return
        kind, place = (last := effect.last).t, last.place
        if calling.kept_on and not calling.noted and kind in SETTLING:
            effect = as_kept_on(effect)
        item = execution.to_write(effect)
        if kind == "wait-began":
            calling.began = last
        if kind == "intent":
            execution.going.calling.marks.append(None)
            self._tasks.calling.marks.append(None)
            self._tasks.tools.marks.append(None)
            calling.intends = True
        if kind in SETTLING:
            calling.settled, heard = effect, None
            if calling.noted and calling.arrive is not None:
                heard = Heard(calling.arrive.kind, {"told": last.told})
            try:
                await self.hand_over(item, place, heard=heard)
            except asyncio.CancelledError as cancelled:
                if item is None or not isinstance(item.error, OvertakenError | Unstorable):
                    raise
                if kind == "wait-ended":  # it has not: it is cancelled as it waits
                    calling.settled = None
                    raise
                calling.cancelled = cancelled  # first it is recorded that it took effect
                raise item.error from None
            except OvertakenError:
                calling.settled = None
                raise
        elif item is not None and effect.point:
            await record_named_in_loop(self, execution, effect, item)
        elif item is not None:
            await execution.writer.write_async(item, self.new_wait)
        if calling.cancelled is not None:
            raise calling.cancelled

    # -- calling the user's functions ----------------------------------------------------------

    async def _invoke(self, effect: Invoke, calling: Calling) -> Any:
        # It counts as under way until its driver records its outcome: when a worker ends, others
        # leave behind it.
        tools = self._tasks.tools if effect.inside == "tool" else contextlib.nullcontext()
        with self._execution.going.calling, self._tasks.calling, tools:
            if calling.intends:
                self._intends_no_more(calling)
            try:
                with inside(frame_of(self._execution, effect)):
                    return await self.invoke(effect, calling)
            except asyncio.CancelledError as cancelled:
                # A cancellation of the whole run comes first.
                cancelled = await tick() or cancelled
                self._tasks.ask_for_user()
                if self._execution.interrupted is not None:
                    raise
                if not calling.is_cancelled:  # in the call: on replay, nothing does that again
                    raise Carried(cancelled) from None  # type: ignore[arg-type]
                calling.noted = True
                after_s = round(time.monotonic() - calling.since, 3)
                several = cancels(calling.task) > calling.heard + 1
                raise CancelledInside(cancelled, after_s, several=several) from None
            except (Exception, GeneratorExit):  # the latter: of one thrown away
                raise
            except BaseException as left:
                self._execution.leaving.left(left, f"a {effect.inside}")
                raise

    async def invoke(self, effect: Invoke, calling: Calling) -> Any:
        """Calls the function, in this task, or on a thread."""
        limits = effect.limits
        if limits is not NO_LIMITS and limits.timed and effect.attempt is not None:
            return await self._invoke_timed(effect, calling)
        if is_async(effect.function):
            try:
                return await effect.function(*effect.args, **effect.kwargs)
            except Exception as raised:
                raise Carried(raised) from None
            finally:
                calling.kept_on = cancels(calling.task, heard=True) > calling.heard
        ended: list[tuple[Any, BaseException | None]] = []

        def call() -> None:
            try:
                ended.append((effect.function(*effect.args, **effect.kwargs), None))
            except BaseException as error:
                ended.append((None, error))

        try:
            await self.in_thread(call)
        except asyncio.CancelledError as cancelled:
            if not ended:
                raise
            calling.cancelled = cancelled  # it ended all the same: that is to be recorded
        result, error = ended.pop()
        if error is not None:
            raise _as_users(error)
        return result

    async def _invoke_timed(self, effect: Invoke, calling: Calling) -> Any:
        if not is_async(effect.function):
            return await self._invoke_timed_thread(effect, calling)
        task = asyncio.ensure_future(effect.function(*effect.args, **effect.kwargs))
        clock = AttemptClock(effect)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=clock.left_s())
                late = None if task.done() else clock.late()
                if late is not None:
                    raise late
        except asyncio.CancelledError as cancelled:
            had_ended = task.done()
            if not had_ended:  # it is the function's to hear of that, as of one without a limit
                task.cancel(*cancelled.args[:1])
                await asyncio.wait([task], timeout=GRACE_S)
            if not task.done() or task.cancelled():
                raise
            calling.cancelled = cancelled if had_ended else None
            calling.kept_on = not had_ended
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=GRACE_S)
                task.add_done_callback(consumed)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise _as_users(error)
        return task.result()

    async def _invoke_timed_thread(self, effect: Invoke, calling: Calling) -> Any:
        """Calls a function on a thread; one that takes too long is left to itself."""
        thread = CallThread(lambda: effect.function(*effect.args, **effect.kwargs))
        clock = AttemptClock(effect)
        while not thread.done.is_set():
            try:
                await self.in_thread(thread.done.wait, min(clock.left_s(), POLL_S))
            except asyncio.CancelledError as cancelled:
                calling.cancelled = cancelled  # what it comes to is to be recorded first
            if not thread.done.is_set() and (late := clock.late()) is not None:
                raise calling.cancelled or late
        if thread.error is not None:
            raise _as_users(thread.error)
        return thread.result

    # -- waiting -------------------------------------------------------------------------------

    async def _pause(self, effect: Pause) -> None:
        execution = self._execution
        if execution.played is not None:
            execution.played.skip(effect.until)
        wait = LoopWait(bell())
        watch = execution.wakeups.watch(execution.id, lambda: wait.done())
        with watch, self._waiting(effect.why, effect.until, deaf=True) as here:
            for left_s in pausing(execution, effect, here, self._unloadable):
                if left_s is None:
                    await self._tasks.settle()
                    continue
                await wait.rest(min(left_s, POLL_S))  # not for ever: news may get lost
                wait = LoopWait(bell())

    async def _await(self, effect: Await) -> Came:
        execution = self._execution
        wait = LoopWait(bell())
        watch = execution.wakeups.watch(execution.id, lambda: wait.done())
        until, runs = execution.look_by(effect), only_runs(effect.branches)
        with watch, self._waiting(effect.words, until, runs=runs) as here:
            for wanted in waiting(execution, effect, here, self._unloadable):
                if isinstance(wanted, Came):
                    return wanted
                if isinstance(wanted, Item):
                    await execution.writer.write_async(wanted, self.new_wait)
                elif wanted is None:
                    await self._tasks.settle()
                else:
                    await wait.rest(min(wanted, POLL_S))
                    wait = LoopWait(bell())
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _waiting(
        self, words: str, until: int, *, deaf: bool = False, runs: Sequence[str] = ()
    ) -> Iterator[Waiting]:
        waits = self._execution.going.waiting
        with self.resting(), waits(words, until, own=False, deaf=deaf, runs=runs) as here:
            yield here

    def _unloadable(self) -> bool:
        """Returns True if all of the run provably waits, and would for ever do nothing else."""
        return self._tasks.numbered and self._all_rest() and not self._tasks.timers()


def performer_of_loop(
    execution: RunPosition[Any], tasks: RunTasks | None, known: dict[int, AsyncPerformer]
) -> AsyncPerformer:
    """The one for the loop that is running, of a synchronous function's own: it may run several,
    one after the other, and on several threads.

    Args:
        tasks: its tasks, if it has run a loop before.
        known: those for the latest loop of each thread.
    """
    here = threading.get_ident()
    performer = known.get(here)
    if performer is None or performer.loop is not asyncio.get_running_loop():
        execution.tasks = tasks = tasks or RunTasks(execution, numbered=False)
        tasks.runner = runner_here() or tasks.runner
        performer = known[here] = AsyncPerformer(execution, tasks)
    return performer


def _as_users(error: BaseException) -> BaseException:
    return Carried(error) if issubclass(type(error), Exception) else error  # type: ignore[arg-type]
