"""The tasks of an event loop that belong to a run: each is numbered when it is made.

For that, loops in which a run is driven get a task factory around the one that they have.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from perdure.engine.execution.activity import Counting
from perdure.engine.execution.awaited_futures import joined, parts_of
from perdure.engine.execution.current_run import current, current_in, enter_scope
from perdure.engine.execution.event_pacing import ROUNDS
from perdure.engine.execution.loops import has_timer, note_timers
from perdure.engine.execution.repeated_cancellation import in_vain
from perdure.engine.journal.leaving import CancelAsked, is_told_of_others
from perdure.engine.journal.scopes import Scope
from perdure.errors import PerdureError, RunInterrupted

if TYPE_CHECKING:
    from perdure.engine.execution.driven_run import DrivenRun

LEAVE_S = 20.0
"""The time that tasks of an abandoned run may await one thing before they are cancelled again."""

ROUNDS_MAX = 1000
"""Of the loop, for what is due: something may be for ever, and who waits must look for messages."""

NUMBERS = 1 << 20
"""Above it, what is added to the numbers of one run's tasks, so that those of many runs in one set,
as asyncio has it of all, do not stand in each other's way."""

_roots: set[Coroutine[Any, Any, Any]] = set()
"""The coroutines that the tasks of functions run, while they are made."""

_numbered: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()


def numbered(kind: type[asyncio.Task[Any]]) -> Callable[..., asyncio.Task[Any]]:
    """Returns the class for a run's tasks of that kind. Sets order them by their numbers: a
    `TaskGroup` cancels its tasks, and `asyncio.wait` returns those that are done, in the order of a
    set. By their addresses, as for other tasks, that would differ each time."""

    class Task(kind):  # type: ignore[misc, valid-type]
        __slots__ = ("_by_number",)

        def __init__(self, body: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
            self._by_number = number.__hash__  # first: it is in a set before it is begun
            super().__init__(body, **options)

    # No function of ours, which can be interrupted: asyncio asks for it where a group drops a task
    # that has ended, and one that did not come to its end there would be waited for for ever.
    Task.__hash__ = vars(Task)["_by_number"]  # type: ignore[method-assign]
    return Task


Task = numbered(asyncio.Task)


class RunTasks:
    """The tasks of one run that have not ended, with their scopes."""

    def __init__(self, execution: DrivenRun[Any], *, numbered: bool) -> None:
        self._execution = execution
        self.numbered = numbered
        """True if tasks are scopes of their own: those of an asynchronous function. A synchronous
        one that runs a loop may run it again later, with tasks that were not seen being made."""
        self.scopes: dict[asyncio.Task[Any], Scope] = {}
        self.calling = Counting()
        """Around the calls that they make of steps and tools."""
        self.tools = Counting()
        """Around those of tools."""
        self.waiting: set[asyncio.Task[Any]] = set()
        """Those that wait for a signal, an answer or a time."""
        self.told = False
        """True if the function itself has been told of the interruption."""
        self.ending = False
        """The function has ended, and what is left of its tasks is cancelled."""
        self.ends_program: BaseException | None = None
        """Raised by one of the tasks: for the run's caller."""
        self._left: list[asyncio.Task[Any]] = []
        """Those that ended with something that ends the run."""
        self._function: asyncio.Task[Any] | None = None
        self._driver: asyncio.Task[Any] | None = None
        self._driver_cancels = 0
        self.runner: Any = None
        """Of the latest loop of the function's own; None: nothing is known of it."""
        self.drive: Any = None
        """The coroutine that sees them all end, until they have."""
        self.making: dict[Coroutine[Any, Any, Any], Scope] = {}
        """By what they run: tasks that may have been made, and are not noted yet."""
        self.numbers = count(zlib.crc32(execution.id.encode("utf-8", "replace")) * NUMBERS)
        """Of the tasks, as they are made."""
        self._nowhere = contextvars.copy_context()
        self._settler: asyncio.Task[Any] | None = None

    def begin(self, body: Coroutine[Any, Any, Any], scope: Scope) -> asyncio.Task[Any]:
        """The run's function is a task from here on; the one that calls this drives it."""
        self._driver = asyncio.current_task()
        self._driver_cancels = self._driver.cancelling() if self._driver is not None else 0
        self.making[body] = scope
        try:
            _roots.add(body)
            function = asyncio.create_task(body, context=contextvars.copy_context())
        finally:
            _roots.discard(body)
        self._function = function
        self.scopes[function] = scope
        del self.making[body]
        return function

    @property
    def is_left(self) -> bool:
        """True if the task that drives the run was cancelled in the meantime, or does not drive it
        any more: because of an exception, and a second one while it handled the first."""
        drive, driver = self.drive, self._driver
        if drive is not None and drive.cr_frame is None:
            return True
        return driver is not None and driver.cancelling() > self._driver_cancels

    @property
    def is_over(self) -> bool:
        """True if the function has ended, and its other tasks are to be cancelled for that: they
        get no more events, and begin nothing."""
        return self._function is not None and self._function.done() and not self.ending

    def ask_for_user(self) -> None:
        """Leaves the run if Ctrl-C caused the cancellation in the function's own loop."""
        left = None if self.numbered else _what_left_the_loop()
        if getattr(self.runner, "_interrupt_count", 0) > 0:
            left = KeyboardInterrupt()
        if left is not None:
            self._execution.leaving.left(left, "a loop of its own")

    def add(self, task: asyncio.Task[Any], scope: Scope) -> None:
        self.scopes[task] = scope
        scope.home = threading.get_ident()
        task.add_done_callback(self._ended, context=self._nowhere)

    def find_made(self, one: Coroutine[Any, Any, Any] | None = None) -> bool:
        """Notes tasks whose maker was interrupted right after making them, all or the one that runs
        this; returns True if there were any."""
        todo = [one] if one is not None else [*self.making]
        made = {task.get_coro(): task for task in asyncio.all_tasks()} if todo else {}
        found = [(coroutine, made[coroutine]) for coroutine in todo if coroutine in made]
        for coroutine, task in found:
            if task not in self.scopes:
                self.add(task, self.making[coroutine])
        for coroutine in todo:
            self.making.pop(coroutine, None)
        return bool(found)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        scope = self.scopes.get(task)
        if scope is None:
            return
        error = None if task.cancelled() else exception_of(task)
        if error is not None and not isinstance(error, Exception):
            self._left.append(task)
            # Before its siblings are cancelled for it: that would be recorded as the function's.
            self._execution.leaving.left(error, "a task")
        self._execution.scope_ended(scope, error, cancelled=task.cancelled())
        scope.ended()
        if scope.runs is not None:
            scope.runs.close()  # of one that was cancelled before it began, asyncio would complain
            scope.runs = None
        del self.scopes[task]  # last: an end that was lost on its way is told again

    def tell_lost(self) -> None:
        """Handles, in the loop, ends of tasks whose callback was interrupted."""
        for task in [task for task in self.scopes if task.done()]:
            if task is not self._function:  # which has no callback, and is seen to by its drive
                self._ended(task)

    def defers(self, reason: PerdureError | None, *, for_steps: bool = True) -> bool:
        """Returns True if calls of tasks are to end before the run is left for this reason:
        cancelled with the function, they would be in doubt. If the run was cancelled, or for a step
        that looks whether it is to leave (`for_steps` false), only those of tools.
        """
        if reason is None:
            return False
        if isinstance(reason, CancelAsked) or not for_steps:
            return self.tools.number > 0
        return (self._execution.going.calls if self.numbered else self.calling.number) > 0

    def interrupts(self) -> None:
        """Notes that the interruption is about to be raised in the calling code."""
        with suppress(RuntimeError):  # it is no task
            if self._function is not None and asyncio.current_task() is self._function:
                self.told = True

    def somebody_was_told(self) -> bool:
        """Returns True if the function, or a task that awaits another one, has heard of the
        interruption. True if in doubt."""
        return self.told or any(not getattr(one, "_log_traceback", False) for one in self._left)

    def seem_to_wait(self) -> bool:
        """Returns True if each task waits for a message or a time, or for tasks of this run to end.
        False if in doubt, and then the run stays in memory."""
        return all(
            task in self.waiting or task.done() or self._joins(task)
            for task in reversed(self._living)  # the last made is the last to come to its wait
        )

    def all_wait(self) -> bool:
        """Returns True if provably nothing moves. False if in doubt."""
        if not self.numbered and not self._execution.going.is_single:
            return False
        ended = any(task.done() for task in self.scopes)  # of which nobody was told
        return not ended and self.seem_to_wait() and not self.due()

    @property
    def _living(self) -> Sequence[asyncio.Task[Any]]:
        """All tasks that may do something for the run; in a loop of its own function's, all
        tasks."""
        return [*self.scopes] if self.numbered else [*asyncio.all_tasks()]

    def _joins(self, task: asyncio.Task[Any]) -> bool:
        futures = joined(task)
        return futures is not None and all(self._is_of_run(future) for future in futures)

    def _is_of_run(self, future: asyncio.Future[Any]) -> bool:
        if future.done() or future in self.scopes:
            return True
        if not self.numbered and isinstance(future, asyncio.Task):
            return True  # of a loop in which all are
        parts = parts_of(future)
        return parts is not None and all(self._is_of_run(part) for part in parts)

    def due(self) -> bool:
        """Returns True if the event loop is about to continue something of the run. A task that has
        just ended still has to be reported: to its group, to whoever gathers it, and so on."""
        ready = _ready_in(asyncio.get_running_loop())
        if ready is None:  # then who goes on next shows, if not who is told by a callback
            here = asyncio.current_task()
            return any(
                task.done() or (task is not here and _goes_on(task)) for task in self._living
            )
        return any(
            not handle.cancelled()
            and self._is_ours(getattr(handle, "_context", None))
            and not in_vain(getattr(handle, "_callback", None))
            for handle in ready
        )

    def _is_ours(self, context: contextvars.Context | None) -> bool:
        """Returns True if a callback belongs to the run, by its context; that of `_ended` is
        `_nowhere`."""
        return context is self._nowhere or frame_in(context) is self._execution

    def function_due(self) -> bool | None:
        """Returns True if the event loop is about to continue the function itself, not only its
        steps and tools; None if the loop does not show that."""
        if self.is_over:
            return True  # until the drive has seen it
        ready = _ready_in(asyncio.get_running_loop())
        if ready is None:
            return None
        for handle in ready:
            context = getattr(handle, "_context", None)
            frame = current_in(context) if context is not None else None
            if (
                frame is not None
                and frame.run is self._execution
                and frame.inside in ("function", "edit")
                and not handle.cancelled()
                and not in_vain(getattr(handle, "_callback", None))
            ):
                return True
        return False

    async def settle(self) -> None:
        """Called by a task of the run that is in `waiting`: if all of the run seems to wait, lets
        due callbacks run before that is believed. One task at a time: others find callbacks due in
        the meantime."""
        settler, here = self._settler, asyncio.current_task()
        if (settler is not None and not settler.done()) or not self.seem_to_wait():
            return
        shown = _ready_in(asyncio.get_running_loop()) is not None
        quiet, rounds = 0 if shown else ROUNDS, 0
        self._settler = here
        try:
            while rounds < ROUNDS_MAX and (quiet > 0 or self.due()):
                quiet = quiet - 1 if not self.due() else (0 if shown else ROUNDS)
                rounds += 1
                await asyncio.sleep(0)
            self.tell_lost()
        finally:
            self._settler = None

    def timers(self) -> bool:
        """Returns True if something of the run will happen at some time, such as a timeout that it
        set."""
        return has_timer(asyncio.get_running_loop(), self._execution)

    async def cancel(self) -> None:
        """Ends the remaining tasks, and waits until they have ended. If the function ended by
        itself, that is its last act: they hear of it as if it cancelled them."""
        self.ending = True
        if self._function is not None and self._function.done():
            self.scopes.pop(self._function, None)  # else it would count as one that ends
        self.find_made()
        here = asyncio.current_task()
        while left := [task for task in self.scopes if task is not here and not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=LEAVE_S)  # one that caught it is cancelled again
            self._left += [task for task in left if task.done()]
        for task in self._left:  # what ends the run counts as seen, whoever waited
            if not task.cancelled():
                task.exception()
        self._left.clear()
        self.drive = None


async def _through(
    coroutine: Coroutine[Any, Any, Any], execution: DrivenRun[Any], tasks: RunTasks
) -> Any:
    """The body of a task. An exception that ends the program goes from the task to its awaiters as
    one that ends the run, and from there to the run's caller. Raised in a task, it would end the
    event loop at once: a group, or another awaiter, would raise it again while the loop's tasks are
    being ended, and end that before everything is cleaned up. The same holds for everything that is
    not an outcome of a task: no code can continue from it, and not all awaiters of the task would
    hear of it soon."""
    try:
        return await coroutine
    except (Exception, asyncio.CancelledError, GeneratorExit, RunInterrupted):
        raise
    except BaseException as error:
        if is_told_of_others(error):
            raise
        tasks.ends_program = tasks.ends_program or error
        execution.leaving.left(error, "a task")
        execution.wakeups.ring(execution.id)
        assert execution.interrupted is not None
        raise execution.interrupted from None


def exception_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Returns the exception of a finished task; does not count as a retrieval of it."""
    return getattr(task, "_exception", None)


def frame_in(context: contextvars.Context | None) -> Any:
    """The run that a piece of code belongs to, by its context."""
    frame = current_in(context) if context is not None else None
    return frame.run if frame is not None else None


def ready_of(loop: asyncio.AbstractEventLoop) -> Sequence[asyncio.Handle] | None:
    """Returns the callbacks that a loop will call next, now and later; None if the loop does not
    show them, like uvloop."""
    return getattr(loop, "_ready", None)


def _ready_in(loop: asyncio.AbstractEventLoop) -> Sequence[asyncio.Handle] | None:
    """Returns the callbacks that a loop will call next, now; None if the loop does not show
    them."""
    ready: Any = ready_of(loop)
    found: Sequence[asyncio.Handle] | None = ready.copy() if ready else ready
    return found  # other threads add to the loop's own


def _goes_on(task: asyncio.Task[Any]) -> bool:
    """Returns True if an unfinished task is about to be continued."""
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or waiter.done()


def runner_here() -> Any:
    """The `asyncio.Runner` whose loop runs on this thread, if that is what hears of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return getattr(getattr(signal.getsignal(signal.SIGINT), "func", None), "__self__", None)


def _what_left_the_loop() -> BaseException | None:
    """Returns the exception that ends the program and left the loop, if an `asyncio.Runner` is
    cancelling its tasks on this thread. A signal's handler raises between any two instructions, and
    perhaps no task hears of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _ENDS:
        frame = frame.f_back
    left = frame.f_locals.get("exc_val") if frame is not None else None
    own = left is None or isinstance(left, Exception | asyncio.CancelledError | GeneratorExit)
    return None if own else left


_ENDS = asyncio.Runner.__exit__.__code__


def number_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """See the module; once for each loop. Tasks that are of no run are made as ever."""
    note_timers(loop)
    if loop.get_task_factory() is not None and _numbered.get(loop) is loop.get_task_factory():
        return
    own = loop.get_task_factory()
    make, make_numbered = _made_as_ever(own), _numbered_by(own)

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        frame = current()
        if frame is None or frame.run is None or frame.scope is None or frame.inside != "function":
            return make(loop, coroutine, **options)
        tasks = getattr(frame.run, "tasks", None)
        if tasks is None or not tasks.numbered:
            return make(loop, coroutine, **options)
        if (handled := sys.exception()) is not None:
            frame.run.leaving.behind(handled)
        name = getattr(coroutine, "__qualname__", "task")
        scope = frame.scope.child(name)
        given = options.get("context")
        context = contextvars.copy_context() if given is None else given.copy()
        context.run(enter_scope, scope, frame.run)
        options["context"] = context
        options.pop("eager_start", None)
        scope.runs = coroutine
        through: Any = _through(coroutine, frame.run, tasks)
        through.__qualname__ = name  # as people, and their tools, see it
        tasks.making[through] = scope
        try:
            if make_numbered is None:  # a framework's: it knows what it wants
                task = make(loop, through, **options)
            else:
                task = make_numbered(through, next(tasks.numbers), loop=loop, **options)
            tasks.add(task, scope)
        except BaseException as error:
            if tasks.find_made(through):
                # The function does not get it, and would go on from an error that is not its own.
                failure = frame.run.leaving.failed(error)
                if failure is not error:
                    raise failure from error
            else:
                through.close()  # else asyncio would complain of it, too
            raise
        del tasks.making[through]
        return task

    _numbered[loop] = factory
    loop.set_task_factory(cast(Any, factory))


def _numbered_by(own: Any) -> Callable[..., asyncio.Task[Any]] | None:
    """Returns the constructor of a run's tasks, if a loop has a task factory of its own; None if
    that makes them.

    Eager tasks begin like others: how far one gets in the midst of its maker depends on recorded
    results, which are at hand on replay and were waited for the first time.
    """
    constructor = asyncio.Task if own is None else _constructor_of(own)
    if constructor is None or constructor is asyncio.Task:
        return constructor and Task
    if isinstance(constructor, type) and issubclass(constructor, asyncio.Task):
        return numbered(constructor)
    return lambda body, _, **options: constructor(body, **options, eager_start=False)


def _made_as_ever(own: Any) -> Callable[..., asyncio.Task[Any]]:
    """Returns the constructor for tasks that belong to no run, and for that of a run's function: it
    does not begin at once, even if others do."""
    constructor = _constructor_of(own)
    if constructor is None:
        return own or _plain

    def make(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        options.setdefault("eager_start", coroutine not in _roots)
        return constructor(coroutine, loop=loop, **options)  # type: ignore[no-any-return]

    return make


def _constructor_of(own: Any) -> Any:
    """Returns the constructor that one of asyncio's eager task factories uses; None for another
    factory."""
    eager = getattr(asyncio, "eager_task_factory", None)  # since Python 3.12
    if eager is None or getattr(own, "__code__", None) is not eager.__code__:
        return None
    return own.__closure__[0].cell_contents


def _plain(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)
