"""Futures of calls on a run's own threads: a run whose threads wait for each other is unloaded.

Python's own futures keep a call's result under a condition that is written in Python: Ctrl-C in a
waiting caller may leave that locked, and the thread that ends the call would wait for ever, and
with it the run. So here the result is kept, and waited for, by single operations, and Python's own
state, for those who use it, is set last.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from sys import _getframe
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.system.locks import LOOK_MAX_S, is_over
from perdure.system.thread_pool import Job, ThreadPool

if TYPE_CHECKING:
    from perdure.engine.execution.run_position import RunPosition
    from perdure.engine.journal.scopes import Scope

R = TypeVar("R")

BOOKS_MAX_S = 1.0
"""Python's own are given up then: whoever has them has been interrupted."""

ENDS = ("CANCELLED_AND_NOTIFIED", "FINISHED")
"""Of Python's own states."""


class RunFuture(Future[R]):
    """A future of a call on a run's thread. A thread of its run that waits for it without a limit
    continues only when the call has ended, and the run knows that.

    Args:
        ended: called once at the end, before anybody else hears of it; with the call's exception,
            if any.
    """

    def __init__(
        self,
        execution: RunPosition[Any],
        scope: Scope,
        ended: Callable[[BaseException | None, bool], None],
    ) -> None:
        super().__init__()
        self._execution, self._scope = execution, scope
        self._ended = [ended]
        """Empty once it was told: `pop` decides that for whoever is first."""
        self._job: Job[R] | None = None
        self._submits: FrameType | None = None
        self._over = self._was_cancelled = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def submit(
        self, pool: ThreadPool, call: Callable[[], R], among: dict[RunFuture[Any], None]
    ) -> None:
        """Have a thread of that pool make the call; until it has ended this is among those."""
        self._job, self._submits = Job(call, self.settle), _getframe()
        among[self] = None
        pool.put(self._job)
        self._submits = None

    @property
    def is_left(self) -> bool:
        """True if its submitter was interrupted: perhaps no thread will take it."""
        return self._submits is not None and is_over(self._submits)

    def begins(self) -> None:
        """Begins the call, on its thread."""
        self._tell(self.set_running_or_notify_cancel)

    def settle(self, job: Job[R]) -> None:
        """Settles the future: its call is over, or will not be made. Idempotent."""
        if not job.over:
            self._was_cancelled = job.cancel()
            if not self._was_cancelled:
                job.error, job.is_torn = RuntimeError("its thread ended in the middle of it"), True
        if job.is_torn and job.error is not None:
            job.error = self._execution.leaving.failed(job.error)
        self._value, self._error = value, error = job.result, job.error
        with suppress(IndexError):
            self._ended.pop()(error, self._was_cancelled)
        self._over = True
        self._news.put(None)
        self._job = None  # it knows this one: no circle is left behind
        if self._was_cancelled:
            self._tell(super().cancel)
            self._tell(self.set_running_or_notify_cancel)
        elif error is not None:
            self._tell(lambda: self.set_exception(error))
        else:
            self._tell(lambda: self.set_result(value))

    def _tell(self, note: Callable[[], object]) -> None:
        """Python's own books."""
        if self._state in ENDS or not self._condition.acquire(timeout=BOOKS_MAX_S):
            return
        self._condition.release()
        with suppress(InvalidStateError):  # another one did at this moment
            note()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is over, or for the timeout; returns True if it is over."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left_s = LOOK_MAX_S if until is None else min(LOOK_MAX_S, until - time.monotonic())
            if left_s <= 0:
                return False
            with suppress(queue.Empty):
                self._news.get(timeout=left_s)
                self._news.put(None)  # for others who wait
        return True

    def done(self) -> bool:
        job = self._job
        if not self._over and job is not None and (job.over or job.is_lost or job.is_cancelled):
            self.settle(job)  # its thread may have been interrupted before
        return self._over

    def cancel(self) -> bool:
        job = self._job
        if job is not None and not job.over and job.cancel():
            self.settle(job)
        return self._was_cancelled

    def cancelled(self) -> bool:
        return self._was_cancelled

    def result(self, timeout: float | None = None) -> R:
        error = self.exception(timeout)
        if error is None:
            return self._value  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            error = self = None  # type: ignore[assignment]  # or the error would hold itself

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is not None or self._is_elsewhere():
            in_time = self.wait(timeout)
        else:
            with self._execution.going.joining(self._lasts):
                in_time = self.wait()
        if not in_time:
            raise TimeoutError
        if self._was_cancelled:
            raise CancelledError
        return self._error

    def _lasts(self) -> bool:
        return not self._scope.over

    def _is_elsewhere(self) -> bool:
        """Returns True if the asking thread is unknown to the run; a finished future need not be
        waited for."""
        return self.done() or get_ident() != self._execution.scope().home
