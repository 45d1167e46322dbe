"""How the effects of a run are performed in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from perdure.engine import turns
from perdure.engine.current import inside
from perdure.engine.effects import (
    Arrive,
    Arrived,
    Await,
    Came,
    Carried,
    Effect,
    Effects,
    Invoke,
    Now,
    Pause,
    Record,
    drive_async,
)
from perdure.engine.failures import CallCancelled, error_record
from perdure.engine.interrupting import Stopping
from perdure.engine.journal import Entry, OthersFirstError, changed
from perdure.engine.pacing import Pace
from perdure.engine.performing import CallThread, Clock, frame_of, pausing, waiting
from perdure.engine.replay import Call, CancelledInside, outcome_of, recorded_call
from perdure.engine.scopes import Scope
from perdure.engine.standstill import Rest, Standstill
from perdure.engine.tasks import RunTasks
from perdure.engine.values import is_async
from perdure.engine.waiting import only_runs
from perdure.engine.wakeups import POLL_S
from perdure.engine.writing import Item
from perdure.model import Cause
from perdure.state.waiting import Threads, Wait, bell

if TYPE_CHECKING:
    from perdure.engine.execution import Execution


R = TypeVar("R")

THREADS_MAX = 32

GRACE_S = 5.0
"""How long an attempt that took too long has to end, once it is cancelled, before it is left to
itself."""


DEFERRED_S = 0.02
"""How often a task that begins nothing any more looks whether the calls of others have ended."""


SETTLING = ("step", "outcome", "wait-ended")
"""Records after which a call gives what it gave."""


class _Calling(Struct):
    """One call that is being driven.

    Attributes:
        place: where it is recorded; empty until that is known, and while what is recorded there
            has not had its turn.
        since: by the monotonic clock, when it got there.
        noted: that its task was cancelled is in its outcome.
        cancelled: its task was, while a thread made the call; what that came to is recorded first.
    """

    arrive: Arrive | None = None
    place: str = ""
    since: float = 0.0
    noted: bool = False
    cancelled: asyncio.CancelledError | None = None


class _Stopping(Stopping):
    """As that, in a task: that this is cancelled, or thrown away, is its own affair."""

    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, asyncio.CancelledError | GeneratorExit):
            super().__exit__(kind, error, trace)


class AsyncPerformer:
    """Performs the effects of one run in the event loop that its function runs in.

    Synchronous functions are called on threads of the run's own.
    """

    def __init__(self, execution: Execution[Any], tasks: RunTasks) -> None:
        self._execution = execution
        self._tasks = tasks
        self._threads: Threads | None = None
        self.stopping = _Stopping(execution.leaving.passed_on)
        self.edit_lock = asyncio.Lock()
        self.pace = Pace()
        self._standstill = Standstill(execution.turns, tasks, self._all_rest)

    async def make(self, call: Call) -> Any:
        """Make a call of a recorded function, or take what it gave before."""
        execution = self._execution
        if execution.journal.replaying and self._tasks.numbered:
            # What most of a replay is. Tens of thousands may wait here at once: each keeps little.
            scope = execution.scope()
            entry = execution.recorded_in(scope, call)
            if entry is not None:
                return await self._take_again(entry, scope, call)
        return await self.call(recorded_call(call))

    async def _take_again(self, entry: Entry, scope: Scope, call: Call) -> Any:
        """What a call gave that is recorded, once its turn has come."""
        execution = self._execution
        try:
            await self.wait_for_turn(entry, scope, call.name)
        except asyncio.CancelledError:
            execution.turns.release(entry)
            if execution.interrupted is not None:
                raise execution.interrupted from None
            raise
        execution.catch_up(entry.seq)
        execution.turns.release(entry)
        try:
            return outcome_of(call, entry)
        except BaseException as raised:
            error = execution.leaving.passed_on(raised)
        raise error

    async def call(self, effects: Effects) -> Any:
        """Drive effects to their result."""
        execution = self._execution
        calling = _Calling()
        try:
            return await drive_async(effects, lambda effect: self.perform(effect, calling))
        except GeneratorExit:  # it was thrown away
            raise
        except CancelledInside as cancelled:
            raise cancelled.original from None
        except asyncio.CancelledError:
            if execution.interrupted is not None:
                # Frameworks take a cancelled tool for one that failed, and go on.
                raise execution.interrupted from None
            if calling.place and not calling.noted and calling.arrive is not None:
                kind = calling.arrive.kind
                await self.note_cancelled(calling.place, kind, calling.since, calling.arrive)
            raise
        except BaseException as raised:
            error = execution.leaving.passed_on(raised)
        raise error

    async def note_cancelled(
        self, place: str, kind: str, since: float, arrive: Arrive | None = None
    ) -> None:
        """The function does not see what came of this: on replay it must not, either."""
        execution = self._execution
        gone = CallCancelled("its task was cancelled", target=place)
        record = {
            "t": "cancelled", "run": execution.id, "place": place, "kind": kind,
            "error": error_record(gone), "after": round(time.monotonic() - since, 3),
        }  # fmt: skip
        if arrive is not None:
            record |= {"args": dict(arrive.args), "preview": arrive.preview()}
        item = execution.soon(Cause("cancelled", run=execution.id, step=place), (record,))
        if item is not None:
            await execution.writer.write_async(item)

    async def in_thread(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call a synchronous function on a thread, in this context."""
        if self._threads is None:
            self._threads = Threads(THREADS_MAX)
        return await self._threads.call(function, *args, **kwargs)

    async def close(self) -> None:
        """The run's function has ended."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await self._execution.context.in_thread(threads.close)

    async def perform(self, effect: Effect, calling: _Calling) -> Any:
        match effect:
            case Arrive():
                return await self._arrive(effect, calling)
            case Record():
                await self._record(effect, calling)
            case Invoke():
                return await self._invoke(effect, calling)
            case Now():
                return self._execution.now()
            case Pause():
                await self._pause(effect)
            case Await():
                return await self._await(effect)
        return None

    # -- whose turn it is ----------------------------------------------------------------------

    async def _arrive(self, effect: Arrive, calling: _Calling) -> Arrived:
        execution = self._execution
        scope = execution.scope()
        entry = await self._find(effect, scope)
        calling.arrive, calling.since = effect, time.monotonic()
        try:
            await self.wait_for_turn(entry, scope, effect.name)
            if entry is None or entry.outcome is None:
                await self.let_calls_end()
        except asyncio.CancelledError:
            if entry is not None:
                execution.turns.release(entry)
            elif execution.interrupted is None:
                calling.place = execution.new_place(effect.name, scope)
            raise
        arrived = execution.arrived(effect, scope, entry)
        if entry is not None and entry.cancelled:
            await self.cancelled_again(entry)
        calling.place, calling.since = arrived.place, time.monotonic()
        return arrived

    async def _find(self, effect: Arrive, scope: Scope) -> Entry | None:
        execution = self._execution
        if self._tasks.numbered or not execution.journal.replaying:
            return execution.find(effect, scope)
        while True:  # tasks that share a scope come in any order
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

    async def wait_for_turn(self, entry: Entry | None, scope: Scope, name: str) -> None:
        """Until what is recorded before this has been released."""
        order = self._execution.turns
        pace = self.pace if entry is not None and entry.order >= 0 else None
        while not order.is_ready(entry, scope.path):
            rest = Rest(scope.path, pace, patient=True)
            waiter = order.ready(entry, scope.path, rest.over)
            if waiter is None:
                break
            rest.waiter = waiter
            task = asyncio.current_task()
            assert task is not None
            self._tasks.waiting.add(task)
            self._standstill.begin(rest)
            try:
                await rest.turn
            finally:
                self._standstill.end(rest)
                self._tasks.waiting.discard(task)
                order.forget(waiter)
            self._execution.check()
            if rest.stood and not order.is_ready(entry, scope.path):
                raise self._execution.interrupt(order.stalled(scope.named(name)))
            if rest.paced:
                return
        if pace is not None:
            await pace.turn(scope.path, self.several)

    async def let_calls_end(self) -> None:
        """At a boundary: where the run is to be left once the calls under way have ended, begin
        nothing before that."""
        execution = self._execution
        while execution.interrupted is None and self._tasks.defers(execution.asked_to_stop):
            await asyncio.sleep(DEFERRED_S)

    @property
    def several(self) -> bool:
        """Whether there are tasks whose order could matter."""
        return len(self._tasks.scopes) > 1

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Around what goes on only when others of the run do."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.waiting.add(task)
        try:
            yield
        finally:
            self._tasks.waiting.discard(task)

    def _all_rest(self) -> bool:
        going = self._execution.going
        idle = not going.calls and not self.pace.has_waiting
        return self._tasks.numbered and idle and self._tasks.all_wait()

    async def cancelled_again(self, entry: Entry) -> None:
        """Its task was cancelled here: wait for whatever did that, to do it again.

        Raises:
            CancelledError: it did.
            NeedsAttention: it did not, in the time that it took, and some more.
        """
        await asyncio.sleep((entry.cancelled_after_s or 0.0) + turns.STALL_S)
        raise changed(
            f"the task of {entry.place} was cancelled there, and now it is not",
            self._execution.id,
        )

    async def _record(self, effect: Record, calling: _Calling) -> None:
        execution = self._execution
        item = execution.to_write(effect)
        if item is not None:
            await execution.writer.write_async(item)
        if calling.cancelled is not None:
            raise calling.cancelled
        if effect.records[0]["t"] in SETTLING:
            await self.pace.turn(execution.scope().path, self.several)

    # -- calling the user's functions ----------------------------------------------------------

    async def _invoke(self, effect: Invoke, calling: _Calling) -> Any:
        try:
            with self._execution.going.calling, inside(frame_of(self._execution, effect)):
                return await self.invoke(effect, calling)
        except asyncio.CancelledError as cancelled:
            await _tick()  # whoever cancelled the whole run gets to say so
            if self._execution.interrupted is not None:
                raise
            calling.noted = True
            after_s = round(time.monotonic() - calling.since, 3)
            raise CancelledInside(cancelled, after_s) from None
        except (
            Exception,
            GeneratorExit,
        ):  # the latter: of one thrown away
            raise
        except BaseException as left:
            self._execution.leaving.left(left, f"a {effect.inside}")
            raise

    async def invoke(self, effect: Invoke, calling: _Calling) -> Any:
        """Call the function, in this task, or on a thread."""
        if effect.limits.timed and effect.attempt is not None:
            return await self._invoke_timed(effect)
        if is_async(effect.function):
            try:
                return await effect.function(*effect.args, **effect.kwargs)
            except Exception as raised:
                raise Carried(raised) from None
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

    async def _invoke_timed(self, effect: Invoke) -> Any:
        if not is_async(effect.function):
            return await self._invoke_timed_thread(effect)
        task = asyncio.ensure_future(effect.function(*effect.args, **effect.kwargs))
        clock = Clock(effect)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=clock.left_s())
                late = None if task.done() else clock.late()
                if late is not None:
                    raise late
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=GRACE_S)
                task.add_done_callback(_seen)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise _as_users(error)
        return task.result()

    async def _invoke_timed_thread(self, effect: Invoke) -> Any:
        """As on a thread: one that takes too long is left to itself."""
        thread = CallThread(lambda: effect.function(*effect.args, **effect.kwargs))
        clock = Clock(effect)
        while not await self.in_thread(thread.done.wait, min(clock.left_s(), POLL_S)):
            if (late := clock.late()) is not None:
                raise late
        if thread.error is not None:
            raise _as_users(thread.error)
        return thread.result

    # -- waiting -------------------------------------------------------------------------------

    async def _pause(self, effect: Pause) -> None:
        execution = self._execution
        if execution.played is not None:
            execution.played.skip(effect.until)
        wait = Wait(bell())
        watch = execution.wakeups.watch(execution.id, lambda: wait.done())
        with watch, self._waiting(effect.why, effect.until, deaf=True):
            for left_s in pausing(execution, effect, self._unloadable):
                if left_s is None:
                    await self._tasks.settle()
                    continue
                await wait.rest(min(left_s, POLL_S))  # not for ever: news may get lost
                wait = Wait(bell())

    async def _await(self, effect: Await) -> Came:
        execution = self._execution
        wait = Wait(bell())
        watch = execution.wakeups.watch(execution.id, lambda: wait.done())
        until, runs = execution.look_by(effect), only_runs(effect.branches)
        with watch, self._waiting(effect.words, until, runs=runs):
            for wanted in waiting(execution, effect, self._unloadable):
                if isinstance(wanted, Came):
                    return wanted
                if isinstance(wanted, Item):
                    await execution.writer.write_async(wanted)
                elif wanted is None:
                    await self._tasks.settle()
                else:
                    await wait.rest(min(wanted, POLL_S))
                    wait = Wait(bell())
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _waiting(
        self, words: str, until: int, *, deaf: bool = False, runs: Sequence[str] = ()
    ) -> Iterator[None]:
        waits = self._execution.going.waiting
        task = asyncio.current_task()
        with self.resting(), waits(task, words, until, own=False, deaf=deaf, runs=runs):
            yield

    def _unloadable(self) -> bool:
        """Whether all of the run provably waits, and would for ever do nothing else."""
        return self._all_rest() and not self._tasks.timers()


def _as_users(error: BaseException) -> BaseException:
    return Carried(error) if issubclass(type(error), Exception) else error  # type: ignore[arg-type]


def _seen(task: asyncio.Future[Any]) -> None:
    """What a task came to that nobody waits for is no news."""
    if not task.cancelled():
        task.exception()


async def _tick() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
