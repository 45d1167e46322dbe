"""Waiting in an event loop, for commits and for the store's own threads. Only this module does.

A cancelled wait withdraws what has not begun; what has begun is awaited before the cancellation
continues, so that nothing happens after the caller was told of the cancellation.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from perdure.errors import StoreUnavailable
from perdure.state.event_loop.delayed_cancel import Deaf, Told
from perdure.state.event_loop.polling import Ticker
from perdure.storage.log.committer import Committer
from perdure.storage.log.proposals import Committed, Proposal
from perdure.system.thread_pool import Job, ThreadPool
from perdure.system.threads import begin

P = ParamSpec("P")
R = TypeVar("R")


class LoopWait:
    """The wait of a coroutine for one thing.

    Args:
        look: called in the loop every `LOST_S` of a long wait: its object may have been abandoned
            by the thread that worked on it.
    """

    __slots__ = ("_bell", "_future", "_look", "_until_s", "settled")

    def __init__(self, bell: _Bell, look: Callable[[], None] | None = None) -> None:
        self.settled = False
        self._bell = bell
        self._look = look
        self._future: asyncio.Future[None] | None = None
        self._until_s: float | None = None

    def done(self) -> None:
        """Settles the wait, from any thread."""
        self._bell.ring(self)

    def wake(self) -> None:
        """Settles the wait, from the loop."""
        self.settled = True
        self._look = None  # it may know what knows of this one: no cycle is left behind
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    @property
    def begun(self) -> bool:
        """True if a coroutine waits for it, or did."""
        return self._future is not None

    def is_over(self, now_s: float) -> bool:
        """Returns True if nobody waits for it any more; wakes it when its time is up. Called
        regularly."""
        if self._until_s is not None and now_s >= self._until_s:
            self.wake()
        over = self._future is None or self._future.done()
        if not over and self._look is not None:
            self._look()
        return over

    async def wait(self, withdraw: Callable[[], bool]) -> None:
        """Waits until it is settled, or withdrawn.

        Raises:
            BaseException: the latest cancellation, or another exception that came in the meantime,
                raised after that.
        """
        left: BaseException | None = None
        told: Told | None = None
        loop = asyncio.get_running_loop()
        while not self.settled:
            try:
                self._future = loop.create_future() if left is None else Deaf(told, loop=loop)
                self._bell.look_after(self, loop)
                await self._future
            except GeneratorExit:  # the coroutine is thrown away, and cannot wait any more
                withdraw()
                raise
            except BaseException as error:
                # A second exception that is not a cancellation ends the wait: somebody insists.
                insists = left is not None and not isinstance(error, asyncio.CancelledError)
                if withdraw() or insists:
                    raise
                left = error
                told = Told(error) if isinstance(error, asyncio.CancelledError) else None
        if left is not None:
            raise left if told is None else told.error

    async def rest(self, seconds: float) -> None:
        """Waits until it is settled, or for this long."""
        loop = asyncio.get_running_loop()
        nowhere = contextvars.Context()  # timers of a run's own code keep it from being unloaded
        late = loop.call_later(max(seconds, 0.0), self.wake, context=nowhere)
        self._until_s = late.when()
        try:
            await self.wait(lambda: True)
        finally:
            late.cancel()


class _Bell:
    """Wakes a loop from other threads: once for everything that is settled until it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._settled: deque[LoopWait] = deque()
        self._rung = False
        self._waiting: set[LoopWait] = set()
        """Of those that are over, some, until the next tick."""
        self._ticker = Ticker(self._look)

    def look_after(self, wait: LoopWait, loop: asyncio.AbstractEventLoop) -> None:
        """Looks after a wait that `_answer` may lose. Called from the loop."""
        self._waiting.add(wait)
        self._ticker.begin(loop)

    def ring(self, wait: LoopWait) -> None:
        # Appended before looking: `_answer` unsets the mark before it takes the waits out, so in
        # any order one of the two sees this wait.
        self._settled.append(wait)
        if self._rung:
            return
        self._rung = True
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed: nobody waits there
            self._rung = False

    def _answer(self) -> None:
        self._rung = False
        while self._settled:
            wait = self._settled[0]
            wait.wake()
            self._waiting.discard(wait)
            self._settled.popleft()  # behind it: woken twice is as well as once

    def _look(self) -> bool:
        self._answer()
        now_s = asyncio.get_running_loop().time()
        for wait in [*self._waiting]:
            if wait.is_over(now_s):
                self._waiting.discard(wait)
        return bool(self._waiting)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Bell]]
_bells = weakref.WeakKeyDictionary()
"""Each loop writes its own entry only, on its own thread. A bell is kept by those who wait and by
the timers of its loop: it knows these, and with that the loop, which would never be freed."""


def bell() -> _Bell:
    loop = asyncio.get_running_loop()
    known = _bells.get(loop)
    found = None if known is None else known()
    if found is None:
        found = _Bell(loop)
        _bells[loop] = weakref.ref(found)
    return found


def has_ended(call: weakref.ref[Coroutine[Any, Any, Any]], loop: asyncio.AbstractEventLoop) -> bool:
    """True if a coroutine has finished: it has no frame then. Its task may go on without it."""
    coroutine: Any = call()
    return coroutine is None or coroutine.cr_frame is None or loop.is_closed()


async def commit(committer: Committer, proposal: Proposal) -> Committed:
    """Commits a proposal; see `Committer.submit`. `proposal.committed` says whether a cancelled one
    landed."""
    wait = LoopWait(bell(), committer.look_after)

    def withdraw() -> bool:
        return committer.withdraw(proposal)

    try:
        committer.submit_soon(proposal, wait.done)
        await wait.wait(withdraw)
    except BaseException:
        # It came before the wait began, and nothing must happen after the caller was told.
        if not (wait.begun or proposal.settled or withdraw()):
            await wait.wait(withdraw)
        raise
    return proposal.outcome()


class ThreadAnswer(Generic[R]):
    """The result of a call on another thread: what it returned or raised."""

    value: R
    error: BaseException | None = None

    def result(self) -> R:
        """Returns the result, or raises what the call raised."""
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            self.error = None  # its traceback holds this frame: no cycle is left behind


class Threads:
    """A bounded number of threads for blocking calls, started when they are needed."""

    def __init__(self, threads_max: int) -> None:
        self._pool = ThreadPool(threads_max, "perdure")

    async def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function on one of the threads, in the caller's context.

        Raises:
            StoreUnavailable: the threads were closed before it began.
        """

        def look() -> None:
            if job.over or job.is_lost or self._pool.refuses(job):
                wait.wake()

        wait = LoopWait(bell(), look)
        context = contextvars.copy_context()
        job = self._submit(lambda: context.run(fn, *args, **kwargs), lambda _: wait.done())
        await wait.wait(job.cancel)
        if not job.over and job.cancel():
            raise closed()
        return job.outcome()

    def start(self, fn: Callable[[], None], refused: Callable[[], None]) -> None:
        """Starts a function, which must not raise, on one of the threads, without waiting for it;
        calls `refused`, on this thread or that, if they are closed before it begins."""
        try:
            self._submit(fn, lambda job: refused() if job.error or job.cancel() else None)
        except StoreUnavailable:
            refused()

    def _submit(self, call: Callable[[], R], done: Callable[[Job[R]], None]) -> Job[R]:
        try:
            return self._pool.submit(call, done)
        except RuntimeError:
            if self._pool.closed:
                raise closed() from None
            raise

    def close(self) -> None:
        """Waits for what has begun, refuses what has not, and ends the threads."""
        self._pool.close()


def closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed", hint="open it again")


async def in_own_thread(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls a function on a thread of its own, in the caller's context: to open or close a store,
    which has no threads then. A pool of one would do, but takes twice as long to make and end.

    On cancellation the call is awaited first.

    Raises:
        StoreUnavailable: the system gives no thread.
    """
    answer: ThreadAnswer[R] = ThreadAnswer()
    wait = LoopWait(bell(), lambda: None if thread.is_alive() else wait.wake())
    context = contextvars.copy_context()

    def call() -> None:
        try:
            answer.value = context.run(fn, *args, **kwargs)
        except BaseException as error:
            answer.error = error
        finally:
            wait.done()

    thread = begin(threading.Thread(target=call, name="perdure-own"))
    await wait.wait(lambda: False)
    return answer.result()
