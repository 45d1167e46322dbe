"""A bounded pool of threads for blocking calls, which an interrupted caller cannot leave locked.

The pool of `concurrent.futures` guards its state by locks that are written in Python: Ctrl-C while
a caller releases one leaves the pool locked for all, for good. Here callers and threads meet in a
queue, and in single operations that are done or not done.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.system.flag import Flag
from perdure.system.threads import await_end, begin

R = TypeVar("R")

STARTS_MAX_S = 1.0
"""A thread that does not serve after so long never will: its start was interrupted."""


class Job(Generic[R]):
    """One call on a thread of a pool.

    Attributes:
        over: True once the call was made. Always set while its thread lives; see `is_lost`.
        result, error: its outcome then.
        is_torn: True if the error is not the call's, whose outcome is unknown.
    """

    __slots__ = ("_call", "_done", "_fate", "_thread", "error", "is_torn", "over", "result")

    def __init__(self, call: Callable[[], R], done: Callable[[Job[R]], None]) -> None:
        self._call: Callable[[], R] | None = call
        self._done = done
        self._fate: dict[None, str] = {}
        """Empty, or what became of it: `setdefault` decides that once, for whoever is first."""
        self._thread: threading.Thread | None = None
        self.over = self.is_torn = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def is_lost(self) -> bool:
        """True if its thread ended without an answer: a MemoryError came between two of the
        thread's own instructions."""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def is_cancelled(self) -> bool:
        return self._fate.get(None) == "cancelled"

    def cancel(self) -> bool:
        """Cancels it if it has not begun; returns True if it never will."""
        return self._fate.setdefault(None, "cancelled") == "cancelled"

    def refuse(self) -> None:
        """Cancels it, and tells the waiter."""
        if self.cancel():
            self._done(self)

    def run(self, behind: Callable[[], None]) -> None:
        """For the pool: makes the call, unless it was cancelled; then calls `behind`, and tells the
        waiter."""
        self._thread = threading.current_thread()
        if self._fate.setdefault(None, "begun") != "begun":
            return
        call, self._call = self._call, None
        assert call is not None
        try:
            self.result = call()
        except BaseException as error:  # it is the waiter's
            self.error = error
        self.over = True
        behind()
        self._done(self)

    def give_up(self, error: BaseException, behind: Callable[[], None]) -> None:
        """For the pool: ends the job after an error in `run` itself."""
        if not self._fate:  # it has not begun: so it can
            self.run(behind)
            return
        if not self.over:
            self.error, self.is_torn = error, True
        self.over = True
        self._done(self)

    def outcome(self) -> R:
        """Returns what the call returned; raises what it raised.

        Raises:
            RuntimeError: the outcome is unknown: it `is_lost`.
        """
        if not self.over:
            raise RuntimeError("its thread ended during the call")
        if self.error is not None:
            try:
                raise self.error
            finally:
                self = None  # type: ignore[assignment]  # or the error would hold itself
        return self.result  # type: ignore[no-any-return]


_Jobs = queue.SimpleQueue["Job[Any] | None"]


class ThreadPool:
    """A pool of threads, which end with it: when it is closed or no longer referenced."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._closed = False
        self._jobs: _Jobs = queue.SimpleQueue()
        self._idle: deque[None] = deque()
        """One for each thread that waits for a job, or will in a moment, but for those that are on
        their way to it."""
        self._lent: deque[None] = deque()
        """One for each thread more than there may be else."""
        self._surplus: deque[None] = deque()
        """One for each thread that is to end with the job that it makes."""
        self._living: dict[threading.Thread, Flag] = {}
        """Each with the mark of its end."""
        self._made: dict[threading.Thread, float] = {}
        self._at_its_end = weakref.finalize(self, self._jobs.put, None)

    @property
    def closed(self) -> bool:
        return self._closed

    def refuses(self, job: Job[Any]) -> bool:
        """Returns True if the pool is closed and will never begin that job."""
        return self._closed and job.cancel()

    def submit(self, call: Callable[[], R], done: Callable[[Job[R]], None]) -> Job[R]:
        """Makes a thread run a call, soon.

        Args:
            done: called when it is over, or refused; on that thread, or in `close`.

        Raises:
            StoreUnavailable: the system gives no thread. RuntimeError: the pool is closed.
        """
        job = Job(call, done)
        self.put(job)
        return job

    def put(self, job: Job[Any]) -> None:
        """Puts a job in; see `submit`."""
        try:
            self._jobs.put(job)
            try:
                self._idle.pop()
            except IndexError:
                self._make_thread()
            if self._closed:
                raise RuntimeError("the pool is closed")
        except BaseException:
            job.cancel()  # nobody waits for it
            raise

    def lend(self, threads: int) -> None:
        """Adds this many threads, until `take_back`, for jobs that wait.

        Raises:
            StoreUnavailable: the system gives no thread.
        """
        for _ in range(threads):
            self._lent.append(None)
            self._make_thread()

    def take_back(self) -> None:
        """Removes one thread: the first that finishes a job."""
        with suppress(IndexError):  # that the lending was interrupted
            self._lent.pop()
            self._surplus.append(None)

    def _make_thread(self) -> None:
        now_s = time.monotonic()
        for one, at_s in list(self._made.items()):
            if one not in self._living and now_s - at_s > STARTS_MAX_S:
                self._made.pop(one, None)
        if self._closed or len(self._made) >= self._threads_max + len(self._lent):
            return
        thread = threading.Thread(
            target=_serve,
            args=(self._jobs, self._idle, self._living, self._made, self._surplus),
            daemon=True,
            name=f"{self._name}_{len(self._made)}",
        )
        self._made[thread] = now_s
        try:
            begin(thread)
        except Exception:
            self._made.pop(thread, None)
            if not self._made:  # those that there are come to it
                raise

    def close(self) -> None:
        """Waits for what has begun, refuses what has not, and ends the threads. Idempotent; if
        interrupted it may be called again, and `refuses` tells then which jobs it held."""
        self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                job.refuse()
        self._jobs.put(None)
        self._at_its_end.detach()
        for thread, over in list(self._living.items()):
            await_end(thread, over, None)


def _serve(
    jobs: _Jobs,
    idle: deque[None],
    living: dict[threading.Thread, Flag],
    made: dict[threading.Thread, float],
    surplus: deque[None],
) -> None:
    """The loop of a pool's thread: it holds no pool while it waits."""
    thread = threading.current_thread()
    over = living[thread] = Flag()
    rests = False

    def rest() -> None:
        nonlocal rests
        if not rests:
            rests = True  # before: one mark too few costs a thread, one too many leaves a job alone
            idle.append(None)

    try:
        while True:
            try:
                job = jobs.get_nowait()
            except queue.Empty:
                rest()
                job = jobs.get()
            else:
                if rests:
                    with suppress(IndexError):  # somebody counts on this thread: one comes instead,
                        idle.pop()  # the one that was to take this job, or as soon as one can
            rests = False
            if job is None:
                jobs.put(None)  # for the others
                return
            try:
                # It becomes idle before the waiter is told: otherwise the waiter's next call, made
                # at once, starts another thread, until the pool is full.
                job.run(rest)
            except BaseException as error:  # no call's: between two instructions of ours
                job.give_up(error, rest)
                if not isinstance(error, Exception):
                    raise
            del job
            with suppress(IndexError):
                surplus.pop()
                made.pop(thread, None)  # another one may be lent
                return
    finally:
        living.pop(thread, None)
        over.set()
        if rests:
            with suppress(IndexError):
                idle.pop()  # nobody is to count on it
