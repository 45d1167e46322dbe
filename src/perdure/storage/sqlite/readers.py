"""The connections that read: a few are kept, each used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import apsw

AT_ONCE = 8
"""More threads than this wait for each other: a look-up takes microseconds, and opening a
connection a hundred times as long."""


class Readers:
    """A pool that can be stopped: no connection may be open when the process forks."""

    def __init__(
        self, connect: Callable[[], apsw.Connection], idle: Sequence[apsw.Connection] = ()
    ) -> None:
        self._connect = connect
        self._idle = list(idle)
        self.renew()

    def renew(self) -> None:
        """In a forked child: the threads that used the pool are not there."""
        self._turn = threading.Condition(threading.Lock())
        self._busy = 0
        self._stopped = False

    def take(self) -> apsw.Connection:
        """A connection for this thread alone, until it is given back."""
        with self._turn:
            while self._stopped or self._busy >= AT_ONCE:
                self._turn.wait()
            self._busy += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self.give_back(None)
            raise

    def give_back(self, connection: apsw.Connection | None) -> None:
        """Give a connection back, or None for one that was closed."""
        with self._turn:
            if connection is not None:
                self._idle.append(connection)
            self._busy -= 1
            self._wake()

    def _wake(self) -> None:
        """One who waits to read, or all, among whom is whoever waits for quiet."""
        if self._stopped:
            self._turn.notify_all()
        else:
            self._turn.notify()

    def stop(self) -> None:
        """Wait until nobody reads, close all, and let nobody begin until `go_on`."""
        with self._turn:
            self._stopped = True
            while self._busy:
                self._turn.wait()
        self.close()

    def go_on(self) -> None:
        with self._turn:
            self._stopped = False
            self._turn.notify_all()

    def spare(self) -> apsw.Connection | None:
        """One that nobody uses, which is the caller's from now on."""
        with self._turn:
            return self._idle.pop() if self._idle else None

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().close(True)
