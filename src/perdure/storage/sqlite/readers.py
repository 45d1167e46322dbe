"""The reading connections: a few are kept, each used by one call at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import apsw

from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S, is_over

AT_ONCE = 8
"""More calls than this wait for each other: a look-up takes microseconds, and opening a
connection a hundred times as long."""


class ConnectionUser:
    """A user of a connection.

    Attributes:
        connection: None if it has none, or gave it back.
    """

    connection: apsw.Connection | None = None


class Readers:
    """A pool that can be stopped: no connection may be open when the process forks.

    The user of a connection is noted with its call. If an exception keeps that call from giving it
    back, its place is free once the call has ended. The connection itself is not used again: its
    state is unknown. It may be in a transaction, and until that ends no writer can restart the WAL.
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._idle: deque[apsw.Connection] = deque()
        self.renew()

    def renew(self) -> None:
        """Resets itself in a forked child: the threads that used the pool are not there."""
        self._taken: dict[ConnectionUser, FrameType] = {}
        self._waiting: deque[threading.Lock] = deque()
        self._stopped = False

    def take(self, taker: ConnectionUser, frame: FrameType) -> apsw.Connection:
        """Takes a connection for this user alone, until it gives it back or the call of that frame
        ends."""
        pause_s = LOOK_FIRST_S
        while not self._enter(taker, frame):
            self.close_left()
            self._wait(lambda: self._enter(taker, frame), pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)
        try:
            return self._idle.pop()
        except IndexError:
            self.close_left()  # one that was left is missing here
        try:
            return self._connect()
        except BaseException:
            self.give_back(taker)
            raise

    def give_back(self, taker: ConnectionUser, *, whole: bool = True) -> None:
        """Ends a use.

        Args:
            whole: False after an error on the connection: it is not used again.
        """
        if not whole and taker.connection is not None:
            taker.connection.close(True)
        connection, taker.connection = taker.connection, None  # or `close_left` would close it
        if whole and connection is not None:
            self._idle.append(connection)
        self._leave(taker)

    def _enter(self, taker: ConnectionUser, frame: FrameType) -> bool:
        # Noted before the check: so either `stop` sees it, or it sees the stop.
        self._taken[taker] = frame
        if not self._stopped and len(self._taken) <= AT_ONCE:
            return True
        self._taken.pop(taker, None)
        return False

    def _leave(self, taker: ConnectionUser) -> None:
        self._taken.pop(taker, None)
        if self._waiting:  # one who waits to read; all, where one of them waits for quiet
            self._wake(len(self._waiting) if self._stopped else 1)

    def _wake(self, number: int) -> None:
        for _ in range(number):
            with suppress(IndexError, RuntimeError):
                self._waiting.popleft().release()

    def _wait(self, ready: Callable[[], object], seconds: float) -> None:
        """Waits to be woken, at most this long; not if it is ready by now."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting.append(gate)
        try:
            # After becoming visible as a waiter: whoever leaves from now on wakes this one.
            if not ready():
                gate.acquire(timeout=seconds)
        finally:
            with suppress(ValueError):
                self._waiting.remove(gate)

    def close_left(self) -> None:
        """Closes the connections of calls that have ended, and frees their places."""
        for taker, frame in list(self._taken.items()):
            if is_over(frame):
                with suppress(apsw.Error):  # another thread is doing it
                    if taker.connection is not None:
                        taker.connection.close(True)
                self._leave(taker)

    def stop(self) -> None:
        """Waits until nobody reads, closes all, and lets nobody begin until `go_on`."""
        self._stopped = True
        while self._taken:
            self.close_left()
            self._wait(lambda: not self._taken, LOOK_FIRST_S)
        self.close()

    def go_on(self) -> None:
        self._stopped = False
        self._wake(len(self._waiting))

    def lend(self, connection: apsw.Connection) -> None:
        """Adds a connection for reading, until it is taken back."""
        self._idle.append(connection)

    def take_back(self, connection: apsw.Connection) -> bool:
        """Returns True if nobody uses this connection, or closed it: then it is the caller's from
        now on."""
        with suppress(ValueError):
            self._idle.remove(connection)
            return True
        return False

    def spare(self) -> apsw.Connection | None:
        """Returns a connection that nobody uses, which is the caller's from now on; None if there
        is none."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        self.close_left()
        while (connection := self.spare()) is not None:
            connection.close(True)
