"""One background thread per open store: WAL checkpoints and delayed fsyncs, off the commit path.

SQLite would run its WAL checkpoint inside whatever commit crosses a threshold; that pause is the
99th percentile of naive use.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import apsw

from perdure.errors import StoreUnavailable
from perdure.storage.sqlite.wal import sync_wal
from perdure.system import logs
from perdure.system.threads import Servants

CHECKPOINT_PAGES = 1000
"""Pages in the WAL (4 MB) from which on they are moved into the main file."""

LONG_PAGES = 4 * CHECKPOINT_PAGES
"""Pages in the WAL from which on the writers of other processes have to wait while it is moved."""

KEPT_OUT_MAX_MS = 200
"""The time for which keeping them out is tried. While somebody reads for long, our own writers wait
as long: once, and again when the WAL has grown to twice its length."""

BEGIN_AGAIN_S = 10.0
"""The time after a failed start of the thread in which no other is tried."""

_log = logs.logger("perdure.sqlite")


class Housekeeper:
    """Started at its first task; `close` ends it. Failures are logged: the WAL still has
    everything.

    Attributes:
        wal_pages: how many the WAL had at the last commit; 0: nobody knows yet.
        flush_due: whether there are commits that were acknowledged before they were durable.
        close_left: closes the connections that calls left in a transaction. As long as they have
            one, no writer restarts the WAL.
    """

    def __init__(
        self,
        path: str,
        connect: Callable[[], apsw.Connection],
        flush_every_s: float | None,
        sync_failed: Callable[[], None],
        no_writer: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._path = path
        self._connect = connect
        self._flush_every_s = flush_every_s
        self._sync_failed = sync_failed
        self._no_writer = no_writer
        self.close_left: Callable[[], None] = lambda: None
        self._closing = False
        self._checkpoint_due = False
        self._moved = self.wal_pages = 0
        self._wait_from_pages = LONG_PAGES
        self.flush_due = False
        self._connection: apsw.Connection | None = None
        self.renew()

    def renew(self) -> None:
        """Resets itself in a forked child, which has no such thread yet."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._servants = Servants("perdure-housekeeper")
        self._begin_at_s = 0.0
        self._at_work = threading.Lock()

    def wal_grew(self, _: object, __: str, pages: int) -> int:
        """SQLite's hook: told after each commit, on the committing thread. Must cost nothing.

        A checkpoint does not make the WAL shorter; only a later writer restarts it. So the next one
        is due when it has grown as much again, or was restarted and has grown.
        """
        self.wal_pages = pages
        if pages < self._moved:
            self._moved, self._wait_from_pages = 0, LONG_PAGES
        if pages - self._moved >= CHECKPOINT_PAGES:
            self._checkpoint_due = True
            if self._kick():
                self._moved = pages  # last: an interrupted one is asked for again
        return apsw.SQLITE_OK

    def flush_later(self) -> None:
        self.flush_due = True
        if self._wake.empty():
            self._kick()

    def _kick(self) -> bool:
        """Wakes the thread; returns True if there is one."""
        if not self._servants.any_lives and not self._begin():
            self._checkpoint_due = self.flush_due = False  # a later commit asks again
            self._moved = 0
            return False
        self._wake.put(None)
        return True

    def _begin(self) -> bool:
        """Starts the thread; returns False if that fails, or has failed just now: the caller may
        have the store's lock, and without memory it may take long to know that a thread died."""
        if time.monotonic() < self._begin_at_s:
            return False
        try:
            self._servants.begin(self._work)
        except (StoreUnavailable, RuntimeError) as error:
            _log.warning("housekeeping of %s: %s", self._path, error)
            self._begin_at_s = time.monotonic() + BEGIN_AGAIN_S
            return False
        return True

    def _work(self) -> None:
        while not self._closing:
            self._wake.get()
            self._hold_off()
            while not self._wake.empty():
                self._wake.get()
            with self._at_work:
                self._do_what_is_due()
        self._wake.put(None)  # for another one, where there is
        with self._at_work:
            self._let_go()

    def _hold_off(self) -> None:
        """Waits until a sync is due, which takes along all commits up to then; or another task."""
        at_s = time.monotonic() + (self._flush_every_s or 0.0)
        while self.flush_due and not (self._closing or self._checkpoint_due):
            try:
                self._wake.get(timeout=max(at_s - time.monotonic(), 0.0))
            except queue.Empty:
                return

    def _do_what_is_due(self) -> None:
        try:
            if self.flush_due:
                self.flush_due = False
                sync_wal(self._path)
            if self._checkpoint_due and not self._closing:
                self._checkpoint_due = False
                self._checkpoint()
        except apsw.BusyError:
            pass  # somebody reads, or moves it: it is due again when it has grown as much again
        except Exception as error:
            self._sync_failed()
            _log.warning("housekeeping of %s: %s", self._path, error)

    def _checkpoint(self) -> None:
        """Moves the WAL into the main file: most of it beside the writers, the last pages alone.

        A writer restarts the WAL only if all of it was moved. Under steady load it never was: the
        file grew without end, and each commit paid for that. Writers of other processes are kept
        out only if they made it long: they poll for the lock.
        """
        self.close_left()
        self._connection = connection = self._connection or self._connect()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        with self._no_writer():
            pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages >= LONG_PAGES:  # what others add meanwhile is not in these
                waits = pages >= self._wait_from_pages
                if waits:
                    self._wait_from_pages = 2 * pages
                connection.set_busy_timeout(KEPT_OUT_MAX_MS if waits else 0)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                self._wait_from_pages = LONG_PAGES

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Keeps it away from the file, once what is under way is done. To be entered before the
        writer's lock is taken, which it waits for itself."""
        with self._at_work:
            self._let_go()
            yield

    def stop(self) -> None:
        """Before a fork: finishes what is under way, closes the connection, and waits for
        `go_on`."""
        self._at_work.acquire()
        self._let_go()

    def go_on(self) -> None:
        self._at_work.release()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    def close(self) -> None:
        self._closing = True
        self._wake.put(None)
        self._servants.join()
