"""The connections that read: a few are kept, each used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

AT_ONCE = 8
"""More threads than this wait for each other: a look-up takes microseconds, and opening a
connection a hundred times as long."""


class Readers:
    """A pool that can be stopped: no connection may be open when the process forks."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._idle: list[apsw.Connection] = []
        self.renew()

    def renew(self) -> None:
        """In a forked child: the threads that used the pool are not there."""
        self._turn = threading.Condition(threading.Lock())
        self._busy = 0
        self._stopped = False

    @contextmanager
    def use(self) -> Iterator[apsw.Connection]:
        with self._turn:
            while self._stopped or self._busy >= AT_ONCE:
                self._turn.wait()
            self._busy += 1
            connection = self._idle.pop() if self._idle else None
        whole = False
        try:
            connection = connection or self._connect()
            yield connection
            whole = True
        finally:
            with self._turn:
                if whole and connection is not None:
                    self._idle.append(connection)
                    connection = None
                self._busy -= 1
                self._wake()
            if connection is not None:
                connection.close(True)

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

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().close(True)
