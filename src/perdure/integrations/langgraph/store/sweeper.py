"""The thread that takes expired items away from time to time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future

from perdure.system import logs
from perdure.system.flag import Flag
from perdure.system.threads import Servants

logger = logs.logger(__name__)


class Sweeper:
    """Calls a function in intervals, on a thread of its own, until it is stopped or forgotten."""

    def __init__(self, sweep: Callable[[], int], interval_s: float) -> None:
        self.future: Future[None] = Future()
        self._stop = Flag()
        self._servants = Servants("perdure-ttl-sweeper")
        # Only weakly: a store that nobody has any more must not live on for being swept.
        self._sweep = weakref.WeakMethod(sweep)
        self._interval_s = interval_s
        self.future.add_done_callback(lambda _: self._stop.set())

    def start(self) -> None:
        """Starts the sweeper. It is recorded first: if interrupted here, it runs nevertheless."""
        self._servants.begin(_run, self._sweep, self._interval_s, self._stop, self.future)

    @property
    def alive(self) -> bool:
        return self._servants.any_lives

    def stop(self, timeout: float | None) -> bool:
        """Ends the sweeper, and waits for a sweep that is under way; returns False if that takes
        longer."""
        self._stop.set()
        self._servants.join(timeout)
        return not self.alive


def _run(
    method: weakref.WeakMethod[Callable[[], int]],
    interval_s: float,
    stop: Flag,
    future: Future[None],
) -> None:
    while not stop.wait(interval_s):
        sweep = method()
        if sweep is None:
            break
        try:
            count = sweep()
        except Exception:
            logger.exception("removing expired items failed; the next sweep tries again")
        else:
            if count:
                logger.info("%d expired items were taken away", count)
        del sweep
    if future.set_running_or_notify_cancel():
        future.set_result(None)
