"""Syncs, a little later, what was answered before it was on disk: one thread per open store."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress

from perdure.errors import PerdureError, StoreUnavailable
from perdure.system import logs
from perdure.system.threads import Servants

BEGIN_AGAIN_S = 10.0
"""The time after a failed start of the thread in which no other is tried."""

_log = logs.logger("perdure.storage")


class LateFlush:
    """Calls `flush` so many seconds after `due`; with all that came meanwhile, once.

    Args:
        after_s: None: never, and `due` does nothing.
        flush: makes all that was acknowledged durable; raises a PerdureError if it cannot.
    """

    def __init__(self, after_s: float | None, flush: Callable[[], None]) -> None:
        self._after_s = after_s
        self._flush = flush
        self._closing = self._due = False
        self.renew()

    def renew(self) -> None:
        """Resets itself in a forked child, which has no such thread."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._servants = Servants("perdure-flush")
        self._begin_at_s = 0.0

    def due(self) -> None:
        """Something was answered that is not durable yet."""
        if self._after_s is None or self._due:
            return
        if not self._servants.any_lives and not self._begin():
            return  # a later commit asks again
        self._due = True
        self._wake.put(None)

    def done(self) -> None:
        """A commit that waited took all of it along."""
        self._due = False

    def close(self) -> None:
        """Ends the thread, and flushes what it had not."""
        self._closing = True
        self._wake.put(None)
        self._servants.join()
        if self._due:
            self._flush_now()

    def _closes(self) -> bool:
        return self._closing

    def _begin(self) -> bool:
        if time.monotonic() < self._begin_at_s:
            return False
        try:
            self._servants.begin(self._work)
        except (StoreUnavailable, RuntimeError) as error:
            _log.warning("no thread that syncs commits later: %s", error)
            self._begin_at_s = time.monotonic() + BEGIN_AGAIN_S
            return False
        return True

    def _work(self) -> None:
        assert self._after_s is not None
        while not self._closes():
            self._wake.get()
            at_s = time.monotonic() + self._after_s
            while self._due and (left_s := at_s - time.monotonic()) > 0 and not self._closes():
                with suppress(queue.Empty):
                    self._wake.get(timeout=left_s)
            if self._due and not self._closes():
                self._flush_now()
        self._wake.put(None)  # for another one, where there is

    def _flush_now(self) -> None:
        self._due = False  # before: what comes meanwhile may be too late for this one
        try:
            self._flush()
        except PerdureError as error:
            _log.warning("commits that were answered may not be durable yet: %s", error)
