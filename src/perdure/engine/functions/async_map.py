"""A call of a function for each of several items, side by side, as tasks of an asynchronous run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from perdure.engine.execution.call_limits import Lending
from perdure.engine.execution.current_run import RunFrame, inside
from perdure.engine.execution.execution import Execution
from perdure.engine.functions.decorators import mark_of
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.values import is_async, label

LONG_AGO = float("-inf")
"""That a thread has come to its end is an event of the run, as a timer of that time: when it came,
among others, is recorded, and a replay has it there. No time of the run passes with it."""

Recorded = Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Awaitable[Any]]
"""Makes a call that is recorded, as `AsyncRun.call`."""


class AsyncMap:
    """See `AsyncRun.map`."""

    def __init__(
        self, execution: Execution[Any], call: Recorded, function: Callable[[Any], Any]
    ) -> None:
        self._execution = execution
        self._performer = execution.async_performer
        self._call = call
        self._function = function

    async def over(self, items: Sequence[Any], limit: int) -> list[Any]:
        """Calls the function for these items, up to `limit` at a time."""
        execution, performer, gate = self._execution, self._performer, Gate(limit)
        execution.check()
        scope = execution.scope().child("map")
        with inside(RunFrame(execution, execution.inside(), scope)):
            tasks = [asyncio.ensure_future(self._named(item, gate)) for item in items]
        try:
            if tasks:
                with performer.resting(), execution.going.lending(gate.lending.lend):
                    await asyncio.wait(tasks)
            execution.check()  # what ended the run in an item counts, whatever one before it raised
            return [task.result() for task in tasks]
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            if not all(task.done() for task in tasks):  # they end in here: what they do is its part
                with performer.resting():
                    await asyncio.wait(tasks)
            raise
        finally:
            scope.ended()
            for task in tasks:
                task.cancel()
                if task.done() and not task.cancelled():
                    task.exception()  # it has been seen

    def _named(self, item: Any, gate: Gate) -> Coroutine[Any, Any, Any]:
        """Returns the coroutine of an item, named so that its place is that of the item's call."""
        call: Any = self._one(item, gate)
        call.__qualname__ = label(self._function)
        return call  # type: ignore[no-any-return]

    async def _one(self, item: Any, gate: Gate) -> Any:
        scope = self._execution.scope()
        with self._performer.resting():  # only others of this map let it go on
            await gate.enter(scope)
        try:
            if is_async(self._function):
                return await self._function(item)
            if mark_of(self._function) is not None:
                return await self._call(self._function, (item,), {})
            return await self._plainly(item, scope)
        finally:
            scope.is_cancelled = None  # it knows the task, which knows it
            gate.leave()

    async def _plainly(self, item: Any, scope: Scope) -> Any:
        """Calls a plain function on a thread, and awaits its result if it is awaitable, e.g. that
        of `lambda x: run.call(f, x)`."""
        execution, performer, given = self._execution, self._performer, list[Any]()
        task, left = asyncio.current_task(), -1
        assert task is not None
        cancelling = task.cancelling
        scope.is_cancelled = lambda: cancelling() > 0
        cancelled: asyncio.CancelledError | None = None

        def call() -> None:
            given.append(self._function(item))

        def below() -> int:
            return execution.journal.left.number_below(scope.path)

        try:
            await performer.in_thread(call)
        except asyncio.CancelledError as error:
            cancelled = error
            # The rest of its record it did behind this: the thread was faster then, and it is
            # cancelled when it gets there again.
            while execution.interrupted is None and not given and below() not in (0, left):
                left = below()
                with contextlib.suppress(asyncio.CancelledError):
                    await performer.in_thread(call)
        cancelled = await self._comes(cancelled)
        if cancelled is not None:
            if not given or execution.interrupted is not None or not below():
                for one in given:
                    if isinstance(one, Coroutine):
                        one.close()
                raise cancelled
            task.cancel()  # once it waits for something
        return await given[0] if isinstance(given[0], Awaitable) else given[0]

    async def _comes(
        self, cancelled: asyncio.CancelledError | None
    ) -> asyncio.CancelledError | None:
        """Waits for the one event that its thread has ended, even if its task is cancelled; returns
        the latest cancellation."""
        came = asyncio.Event()
        if self._performer.goes_on:
            asyncio.get_running_loop().call_at(LONG_AGO, came.set)
        while self._performer.goes_on and not came.is_set():
            try:
                await came.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled


class Gate:
    """A limit on concurrent calls, with those that wait for a place; for one event loop."""

    def __init__(self, limit: int) -> None:
        self.lending = Lending(self._lend)
        self._places = asyncio.Semaphore(limit)
        self._loop = asyncio.get_running_loop()

    async def enter(self, scope: Scope) -> None:
        """Waits for a place, for the call in this scope."""
        self.lending.holds(scope)
        try:
            await self._places.acquire()
        finally:
            self.lending.begins(scope)

    def leave(self) -> None:
        """Frees a place: its call is over."""
        if not self.lending.is_over():
            self._places.release()

    def _lend(self, places: int) -> None:
        for _ in range(places):  # from any thread; and nothing that the run does
            self._loop.call_soon_threadsafe(self._places.release, context=contextvars.Context())
