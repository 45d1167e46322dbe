"""The event loop of a handle, turns of its operations, and reading off the loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from perdure.core.arguments.checks import function
from perdure.errors import Conflict
from perdure.state.context import Context
from perdure.state.edit_block import LOCK_MAX_S
from perdure.state.working_copy import WorkingCopy
from perdure.system.flag import Flag
from perdure.system.locks import End, Span, ends_block, first_frame, span_of
from perdure.verification.verify import Progress

E = TypeVar("E")
R = TypeVar("R")

PAGE = 100

LOOK_S = 1.0
"""The interval at which a task that waits for its turn checks whether the holding block is over."""


class Home:
    """One open store on one event loop."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raises Conflict if the store was opened on another loop than the running one."""
        if asyncio.get_running_loop() is not self._loop:
            raise Conflict(
                "it was opened on another event loop",
                target=f"store {self.context.backend.url}",
                hint="open the store once per loop: perdure.open_async(…); threads without a loop "
                "use perdure.open(…)",
            )

    async def call(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Calls a reading function, off the loop."""
        self.check()
        return await self.context.in_thread(fn, *args, **kwargs)

    async def pages(self, begin: Callable[[], Iterator[E]]) -> AsyncIterator[E]:
        """Yields the items of an iterator that reads, a page at a time, off the loop."""
        entries = await self.call(begin)
        while page := await self.call(lambda: list(islice(entries, PAGE))):
            for entry in page:
                yield entry

    async def reporting(self, fn: Callable[[Progress], R], progress: Progress | None) -> R:
        """Calls a long function that reports its progress; the reports are made on the loop. On
        cancellation it stops at the next report."""
        if progress is not None:
            function(progress, "progress=")
        self.check()
        cancelled = Flag()

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


class WaitingTask(Struct, eq=False):
    """A task that waits for its turn.

    Attributes:
        span: the block that the turn is for.
        bell: rings when the task has the turn.
    """

    task: asyncio.Task[Any] | None
    span: Span | None
    bell: asyncio.Future[None]

    @property
    def is_over(self) -> bool:
        """True if it waits no longer, but could not say so."""
        task, span = self.task, self.span
        return (task is not None and task.done()) or (span is not None and span.is_over)


class HandleTurn:
    """Operations of one handle run one after the other, in the order in which they asked; those of
    one task inside each other.

    Each block that has the turn is known by its span: the hold of a block that an exception ended
    early no longer counts (`system.locks`).
    """

    def __init__(self, home: Home, working: WorkingCopy[Any]) -> None:
        self._home = home
        self._working = working
        self._owner: asyncio.Task[Any] | None = None
        self._holds: list[Span | None] = []
        """Of the owner's blocks. Set before the owner: an owner without holds has no turn."""
        self._waiting: deque[WaitingTask] = deque()

    def hold(self, *, inside_edit: bool = False) -> TurnHold:
        """Returns a hold for ``async with``. `inside_edit`: it may be in an open edit of the same
        task."""
        return TurnHold(self, inside_edit)

    async def take(self, span: Span | None, *, inside_edit: bool = False) -> None:
        """Waits for the turn, for that block. `give_back` ends it.

        Raises:
            Conflict: this task has an edit open; or another task had one for too long, for example
                because its block waits for a task that wants to edit, too.
        """
        self._home.check()
        task = asyncio.current_task()
        if self._owner is not None:
            self._drop_those_over()
        if self._owner is None:
            self._holds = [span]
            self._owner = task
        elif self._owner is task:
            if not inside_edit:
                self._working.refuse_inside_edit()
            self._holds.append(span)
        else:
            await self._wait(WaitingTask(task, span, asyncio.Future()))

    async def _wait(self, waiting: WaitingTask) -> None:
        until = time.monotonic() + LOCK_MAX_S
        try:
            self._waiting.append(waiting)
            while self._owner is not waiting.task:
                if (left_s := until - time.monotonic()) <= 0:
                    raise Conflict(
                        "another task has an edit of this handle open",
                        target=f"agent {self._working.name!r}",
                        hint="open a handle per task: await store.agent(…)",
                    )
                await asyncio.wait([waiting.bell], timeout=min(left_s, LOOK_S))
                self._drop_those_over()
        except BaseException:
            if self._owner is waiting.task:  # it has the turn by now
                self.give_back(waiting.span)
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiting)

    def give_back(self, span: Span | None) -> None:
        """Ends the block's hold."""
        if span in self._holds:
            self._holds.remove(span)
        self._drop_those_over()

    def _drop_those_over(self) -> None:
        """Gives the turn to the next task, once no block has it any more."""
        self._holds = [span for span in self._holds if span is None or not span.is_over]
        if self._owner is not None and self._holds:
            return
        self._owner = None
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.is_over:
                self._holds = [waiting.span]
                self._owner = waiting.task
                if not waiting.bell.done():
                    waiting.bell.set_result(None)
                return
            self._waiting.popleft()


class TurnHold:
    """One `HandleTurn.hold`."""

    def __init__(self, turn: HandleTurn, inside_edit: bool) -> None:
        self._turn = turn
        self._inside_edit = inside_edit
        self._end: End | None = None

    async def __aenter__(self) -> None:
        self._held = span_of(self, first_frame())
        await self._turn.take(self._held, inside_edit=self._inside_edit)

    @ends_block
    async def __aexit__(self, *error: object) -> None:
        self._turn.give_back(self._held)
