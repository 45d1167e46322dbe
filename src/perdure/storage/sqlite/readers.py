"""The connections that read: a few are kept, each used by one call at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import apsw

from perdure.system.holders import is_over
from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S

AT_ONCE = 8
"""More calls than this wait for each other: a look-up takes microseconds, and opening a
connection a hundred times as long."""


class Taker:
    """Who uses a connection.

    Attributes:
        connection: None: it has none, or gave it back.
    """

    connection: apsw.Connection | None = None


class Readers:
    """A pool that can be stopped: no connection may be open when the process forks.

    Who has a connection is noted with the call that uses it. An exception may come between that
    call's taking and its giving back; once it is over, its place is free all the same. The
    connection itself is not used again: nobody knows what it was doing. It may be in a transaction,
    and until that ends no writer can begin the WAL anew.
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._idle: deque[apsw.Connection] = deque()
        self.renew()

    def renew(self) -> None:
        """In a forked child: the threads that used the pool are not there."""
        self._taken: dict[Taker, FrameType] = {}
        self._waiting: deque[threading.Lock] = deque()
        self._stopped = False

    def take(self, taker: Taker, frame: FrameType) -> apsw.Connection:
        """A connection for this taker alone, until it gives it back or the call of that frame
        is over."""
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

    def give_back(self, taker: Taker, *, whole: bool = True) -> None:
        """End a use.

        Args:
            whole: False: something went wrong on the connection, and nobody uses it again.
        """
        if not whole and taker.connection is not None:
            taker.connection.close(True)
        connection, taker.connection = taker.connection, None  # or `close_left` would close it
        if whole and connection is not None:
            self._idle.append(connection)
        self._leave(taker)

    def _enter(self, taker: Taker, frame: FrameType) -> bool:
        # Noted before the look: so `stop` sees it, or it sees that all are to stop.
        self._taken[taker] = frame
        if not self._stopped and len(self._taken) <= AT_ONCE:
            return True
        self._taken.pop(taker, None)
        return False

    def _leave(self, taker: Taker) -> None:
        self._taken.pop(taker, None)
        if self._waiting:  # one who waits to read; all, where one of them waits for quiet
            self._wake(len(self._waiting) if self._stopped else 1)

    def _wake(self, number: int) -> None:
        for _ in range(number):
            with suppress(IndexError, RuntimeError):
                self._waiting.popleft().release()

    def _wait(self, ready: Callable[[], object], seconds: float) -> None:
        """Until somebody wakes us, for so long at most; not where it is ready by now."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting.append(gate)
        try:
            # Behind being seen as one who waits: whoever leaves from now on wakes this one.
            if not ready():
                gate.acquire(timeout=seconds)
        finally:
            with suppress(ValueError):
                self._waiting.remove(gate)

    def close_left(self) -> None:
        """Close the connections of calls that are over, and free their places."""
        for taker, frame in list(self._taken.items()):
            if is_over(frame):
                with suppress(apsw.Error):  # another thread is doing it
                    if taker.connection is not None:
                        taker.connection.close(True)
                self._leave(taker)

    def stop(self) -> None:
        """Wait until nobody reads, close all, and let nobody begin until `go_on`."""
        self._stopped = True
        while self._taken:
            self.close_left()
            self._wait(lambda: not self._taken, LOOK_FIRST_S)
        self.close()

    def go_on(self) -> None:
        self._stopped = False
        self._wake(len(self._waiting))

    def lend(self, connection: apsw.Connection) -> None:
        """Read with this one, until it is taken back."""
        self._idle.append(connection)

    def take_back(self, connection: apsw.Connection) -> bool:
        """Whether nobody uses this one, or closed it: then it is the caller's from now on."""
        with suppress(ValueError):
            self._idle.remove(connection)
            return True
        return False

    def spare(self) -> apsw.Connection | None:
        """One that nobody uses, which is the caller's from now on."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def close(self) -> None:
        """Close those that nobody uses."""
        self.close_left()
        while (connection := self.spare()) is not None:
            connection.close(True)
