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
from perdure.engine.execution.openings import Opener, Ticket, opened_async

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
            if holder is not None and not holder.is_open:
                await self._come_open(holder)  # whoever asked before was cancelled meanwhile
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
        shared = self._shared
        ticket = shared.ticket(opener)
        one = shared.made(opener, None, lambda: None)
        holder = self._held[opener.name] = _Holder(one, ticket, shared.call(opener, ticket))
        await self._come_open(holder)
        return holder

    async def _come_open(self, holder: _Holder) -> None:
        """Waits until it is open. If this is cancelled, it goes on opening, for the next who asks:
        another one beside it would have the same ticket."""
        one, run = holder.one, self._shared.run
        try:
            one.value = await asyncio.shield(holder.opened)
            if (item := self._shared.keeping(one.opener, holder.ticket)) is not None:
                await run.writer.write_async(item, run.async_performer.new_wait)
            self._shared.check(one.opener, None)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError) or holder.task.done():
                self._forget(holder)
                holder.end()
            raise
        holder.is_open = True
        hold(one.value, one.opener.name)

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

    def _forget(self, holder: _Holder) -> None:
        if self._held.get(holder.one.opener.name) is holder:
            del self._held[holder.one.opener.name]

    async def _end(self, holder: _Holder) -> None:
        self._forget(holder)
        if holder.is_open:
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
        opened: its value, once there is one.
        is_open: it is there, and its ticket is kept.
    """

    def __init__(self, one: OpenResource, ticket: Ticket, call: Callable[[], Any]) -> None:
        self.one, self.ticket, self.is_open = one, ticket, False
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
                self.opened.exception()  # nobody may be waiting for it any more
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
