"""To which event loop a handle belongs, whose turn it is, and reading off the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from perdure.core.arguments import function
from perdure.errors import Conflict
from perdure.state.context import Context
from perdure.state.edit import LOCK_MAX_S
from perdure.state.verify import Progress
from perdure.state.working import WorkingCopy

E = TypeVar("E")
R = TypeVar("R")

PAGE = 100


class Home:
    """One open store on one event loop."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raise Conflict where the store was opened on another loop than the one that runs."""
        if asyncio.get_running_loop() is not self._loop:
            raise Conflict(
                "it was opened on another event loop", target=f"store {self.context.backend.url}",
                hint="open the store once per loop: perdure.open_async(…); threads without a loop "
                "use perdure.open(…)",
            )  # fmt: skip

    async def call(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Call what reads, off the loop."""
        self.check()
        return await self.context.in_thread(fn, *args, **kwargs)

    async def pages(self, begin: Callable[[], Iterator[E]]) -> AsyncIterator[E]:
        """What an iterator gives that reads, a page at a time, off the loop."""
        entries = await self.call(begin)
        while page := await self.call(lambda: list(islice(entries, PAGE))):
            for entry in page:
                yield entry

    async def reporting(
        self, fn: Callable[[Progress], R], progress: Progress | None
    ) -> R:  # fmt: skip
        """Call what takes long and says how far it is: on the loop it says so. Cancelled, it stops
        there."""
        if progress is not None:
            function(progress, "progress=")
        self.check()
        cancelled = threading.Event()

        def report(done: int, total: int) -> None:
            if cancelled.is_set():
                raise _StoppedError
            if progress is not None:
                self._loop.call_soon_threadsafe(progress, done, total)

        task = asyncio.ensure_future(self.context.in_thread(fn, report))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled.set()
            while not task.done():
                with suppress(asyncio.CancelledError):  # said once more
                    await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # looked at: it is no news that it was stopped
            raise


class _StoppedError(Exception):
    """Its caller was cancelled."""


class Turn:
    """Operations of one handle happen one after the other, those of one task inside each other."""

    def __init__(self, home: Home, working: WorkingCopy[Any]) -> None:
        self._home = home
        self._working = working
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0

    async def take(self, *, inside_edit: bool = False) -> None:
        """Wait for our turn.

        Raises:
            Conflict: this task has an edit open; or another one had for too long, as a block does
                that waits for a task which wants to edit, too.
        """
        self._home.check()
        task = asyncio.current_task()
        if self._owner is not None and self._owner is task:
            if not inside_edit:
                self._working.refuse_inside_edit()
        else:
            if self._lock.locked():
                await self._wait()
            else:
                await self._lock.acquire()
            self._owner = task
        self._depth += 1

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LOCK_MAX_S):
                await self._lock.acquire()
        except TimeoutError:
            raise Conflict(
                "another task has an edit of this handle open",
                target=f"agent {self._working.name!r}",
                hint="open a handle per task: await store.agent(…)",
            ) from None

    def give_back(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.give_back()
