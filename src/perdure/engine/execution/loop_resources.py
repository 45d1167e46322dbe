"""Resources that are opened in an event loop. Each lives in a task of its own there: some, such as
task groups and cancel scopes, must be closed by the task that opened them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perdure.core.values.held_values import hold, let_go
from perdure.engine.execution.current_run import enter
from perdure.engine.execution.open_resources import OpenResource, OpenResources
from perdure.engine.execution.openings import Opener, opened_async

CLOSE_S = 30.0
"""The time that one may take to close before it is left to itself."""


class LoopResources:
    """See the module: those of one execution, in whatever loops its code runs."""

    def __init__(self, shared: OpenResources) -> None:
        self._shared = shared
        self._held: dict[str, _Holder] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    async def get(self, opener: Opener) -> Any:
        """Returns the open resource; see `OpenResources.get`."""
        loop, shared = asyncio.get_running_loop(), self._shared
        async with self._locks.setdefault((opener.name, id(loop)), asyncio.Lock()):
            holder = self._held.get(opener.name)
            shared.check(opener, holder.one if holder is not None else None)
            if holder is not None and (holder.task.done() or holder.loop is not loop):
                holder = None  # the function ran a loop of its own, and that has ended
            if holder is not None and shared.is_due(holder.one):
                if await self._is_well(holder.one):
                    holder.one.waits = shared.run.going.waits
                else:
                    await self._end(holder)
                    holder = None
            if holder is None:
                holder = await self._opened(opener)
            holder.one.used = time.monotonic()
            return holder.one.value

    async def _opened(self, opener: Opener) -> _Holder:
        shared, run = self._shared, self._shared.run
        ticket = shared.ticket(opener)
        one = shared.made(opener, None, lambda: None)
        holder = _Holder(one, shared.call(opener, ticket))
        try:
            one.value = await asyncio.shield(holder.opened)
            if (item := shared.keeping(opener, ticket)) is not None:
                await run.writer.write_async(item, run.async_performer.new_wait)
            shared.check(opener, None)
            self._held[opener.name] = holder
        except BaseException:
            holder.end()
            raise
        hold(one.value, opener.name)
        return holder

    async def _is_well(self, one: OpenResource) -> bool:
        if one.opener.check is None:
            return True
        try:
            answer = one.opener.check(one.value)
            return (await answer if inspect.isawaitable(answer) else answer) is not False
        except Exception as error:
            self._shared.say(one, "its check failed", error)
            return False

    async def close(self) -> None:
        """Closes all that was opened in this loop, the last one first."""
        loop = asyncio.get_running_loop()
        for holder in reversed([*self._held.values()]):
            if holder.loop is loop:
                await self._end(holder)

    def let_go(self) -> None:
        """Lets what is open in other loops close there, if they still run."""
        for holder in [*self._held.values()]:
            with suppress(RuntimeError):  # the loop has ended, and what it held with it
                holder.loop.call_soon_threadsafe(holder.end)

    async def _end(self, holder: _Holder) -> None:
        if self._held.get(holder.one.opener.name) is holder:
            del self._held[holder.one.opener.name]
        let_go(holder.one.value)
        holder.end()
        done, _ = await asyncio.wait([holder.task], timeout=CLOSE_S)
        failed = "closing it failed"
        if not done:
            holder.task.cancel()
            self._shared.say(holder.one, failed, TimeoutError(f"after {CLOSE_S:g} s"))
        elif not holder.task.cancelled() and (error := holder.task.exception()) is not None:
            self._shared.say(holder.one, failed, error)


class _Holder:
    """The task that opens a resource, keeps it, and closes it.

    Attributes:
        opened: its value, once it is open.
    """

    def __init__(self, one: OpenResource, call: Callable[[], Any]) -> None:
        self.one = one
        self.loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[Any] = self.loop.create_future()
        self._closing = asyncio.Event()
        context = contextvars.copy_context()
        context.run(enter, None)  # it is no task of the run, which would wait for it
        self.task = self.loop.create_task(self._live(call), context=context)

    async def _live(self, call: Callable[[], Any]) -> None:
        try:
            value, close = await opened_async(call)
        except Exception as error:
            if not self.opened.done():
                self.opened.set_exception(error)
            return
        except BaseException:
            self.opened.cancel()
            raise
        if not self.opened.done():
            self.opened.set_result(value)
        try:
            await self._closing.wait()
        finally:
            closing = close()
            if inspect.isawaitable(closing):
                await closing

    def end(self) -> None:
        """Lets it close, in its loop."""
        self._closing.set()
