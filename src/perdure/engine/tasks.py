"""The tasks of an event loop that belong to a run: each is numbered when it is made.

For that, loops in which a run is driven get a task factory around the one that they have.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from perdure.engine.current import current, current_in, enter_scope
from perdure.engine.scopes import Scope

if TYPE_CHECKING:
    from perdure.engine.execution import Execution

_numbered: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()


class RunTasks:
    """The tasks of one run that have not ended, with their scopes."""

    def __init__(self, execution: Execution[Any], *, numbered: bool) -> None:
        self._execution = execution
        self.numbered = numbered
        """Whether tasks are scopes of their own: those of an asynchronous function. A synchronous
        one that runs a loop may run it again later, with tasks that were not seen being made."""
        self.scopes: dict[asyncio.Task[Any], Scope] = {}
        self.waiting: set[asyncio.Task[Any]] = set()
        """Those that wait for a signal, an answer or a time."""
        self._nowhere = contextvars.copy_context()

    def add(self, task: asyncio.Task[Any], scope: Scope) -> None:
        self.scopes[task] = scope
        scope.home = threading.get_ident()
        self._execution.going.living.add(scope.path)
        task.add_done_callback(self._ended, context=self._nowhere)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        scope = self.scopes.get(task)
        if scope is None:
            return
        error = None if task.cancelled() else exception_of(task)
        if error is not None and not isinstance(error, Exception):
            # Before its siblings are cancelled for it: that would be recorded as the function's.
            self._execution.leaving.left(error, "a task")
        self._execution.scope_ended(scope, orderly=not task.cancelled() and error is None)
        scope.ended()
        del self.scopes[task]  # last: an end that was lost on its way is told again

    def tell_lost(self) -> None:
        """From the loop: tell of ends whose callback did not come to its own end."""
        for task in [task for task in self.scopes if task.done()]:
            self._ended(task)

    def all_wait(self) -> bool:
        """Whether provably nothing goes on: each waits for a message or a time, or for tasks of
        this run to end. In doubt it is False, and the run stays in memory."""
        return all(
            task in self.waiting or self._joins(task) for task in self.scopes if not task.done()
        )

    def _joins(self, task: asyncio.Task[Any]) -> bool:
        waiter = getattr(task, "_fut_waiter", None)
        if isinstance(waiter, asyncio.Task):
            return waiter in self.scopes
        gathered = getattr(waiter, "_children", None)
        if gathered is not None:
            return all(child.done() or child in self.scopes for child in gathered)
        return _innermost(task.get_coro()) == "TaskGroup.__aexit__"

    def timers(self) -> bool:
        """Whether something of the run is to happen at some time, as a timeout that it set."""
        scheduled = getattr(asyncio.get_running_loop(), "_scheduled", ())
        return any(
            not timer.cancelled() and frame_in(timer._context) is self._execution
            for timer in scheduled
        )

    async def cancel(self) -> None:
        """End those that are left, and wait until they have ended."""
        here = asyncio.current_task()
        while left := [task for task in self.scopes if task is not here and not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            for task in left:
                if not task.cancelled():
                    task.exception()  # it has been seen


def exception_of(task: asyncio.Task[Any]) -> BaseException | None:
    """What a task that is done raised. What ends the run counts as seen, whoever waits."""
    error: BaseException | None = getattr(task, "_exception", None)
    if error is not None and not isinstance(error, Exception):
        task.exception()
    return error


def frame_in(context: contextvars.Context | None) -> Any:
    """The run that a piece of code belongs to, by its context."""
    frame = current_in(context) if context is not None else None
    return frame.run if frame is not None else None


def _innermost(coroutine: Any) -> str:
    """Name of the coroutine function in which a task is suspended."""
    name = ""
    while coroutine is not None and hasattr(coroutine, "cr_code"):
        name = coroutine.cr_code.co_qualname
        coroutine = coroutine.cr_await
    return name


def number_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """See the module; once for each loop. Tasks that are of no run are made as ever."""
    if loop.get_task_factory() is not None and _numbered.get(loop) is loop.get_task_factory():
        return
    make = loop.get_task_factory() or _plain

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        frame = current()
        if frame is None or frame.run is None or frame.scope is None or frame.inside != "function":
            return make(loop, coroutine, **options)
        tasks = getattr(frame.run, "tasks", None)
        if tasks is None or not tasks.numbered:
            return make(loop, coroutine, **options)
        scope = frame.scope.child(getattr(coroutine, "__qualname__", "task"))
        given = options.get("context")
        context = contextvars.copy_context() if given is None else given.copy()
        context.run(enter_scope, scope)
        options["context"] = context
        task = make(loop, coroutine, **options)
        tasks.add(task, scope)
        return task

    _numbered[loop] = factory
    loop.set_task_factory(cast(Any, factory))


def _plain(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)
