"""The reading connections: a few are kept, each used by one call at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from sys import _getframe
from types import FrameType

import apsw

from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S, Turn, is_over, next_turn, turn_of

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
        self._taken: dict[ConnectionUser | Turn, FrameType] = {}
        """The calls that read; and those that wait and for which a place is kept."""
        self._waiting: deque[Turn] = deque()
        self._stopped = False

    def take(self, taker: ConnectionUser, frame: FrameType) -> apsw.Connection:
        """Takes a connection for this user alone, until it gives it back or the call of that frame
        ends."""
        if not self._enter(taker, frame):
            self._await(taker, frame)
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

    def _enter(self, taker: ConnectionUser, frame: FrameType, turn: Turn | None = None) -> bool:
        # Noted before the check: so either `stop` sees it, or it sees the stop.
        self._taken[taker] = frame
        kept = turn is not None and self._taken.pop(turn, None) is not None
        if not self._stopped and (kept or len(self._taken) <= AT_ONCE):
            return True
        self._taken.pop(taker, None)
        return False

    def _leave(self, taker: ConnectionUser | Turn) -> None:
        self._taken.pop(taker, None)
        if not self._waiting:
            return
        if self._stopped:  # one of them waits for quiet
            self._wake_all()
        elif (turn := next_turn(self._waiting)) is not None:
            if turn.is_due:
                self._taken[turn], turn.passed = turn.call, 0
            turn.wake()

    def _wake_all(self) -> None:
        for turn in list(self._waiting):
            turn.wake()

    def _await(self, taker: ConnectionUser, frame: FrameType) -> None:
        """Waits for a place."""
        self._wait(turn_of(frame, _getframe()), partial(self._enter, taker, frame), LOOK_MAX_S)

    def _wait(self, turn: Turn, ready: Callable[[Turn], object], pause_max_s: float) -> None:
        pause_s = LOOK_FIRST_S
        try:
            # Visible as a waiter before it looks: whoever leaves from now on wakes this one.
            self._waiting.append(turn)
            while not ready(turn):
                self.close_left()
                turn.wait(pause_s)
                pause_s = min(2 * pause_s, pause_max_s)
        finally:
            with suppress(ValueError):
                self._waiting.remove(turn)
            if turn in self._taken:
                self._leave(turn)

    def close_left(self) -> None:
        """Closes the connections of calls that have ended, and frees their places."""
        for taker, frame in list(self._taken.items()):
            if is_over(frame):
                with suppress(apsw.Error):  # another thread is doing it
                    if isinstance(taker, ConnectionUser) and taker.connection is not None:
                        taker.connection.close(True)
                self._leave(taker)

    def stop(self) -> None:
        """Waits until nobody reads, closes all, and lets nobody begin until `go_on`."""
        self._stopped = True
        self._await_quiet()
        self.close()

    def _await_quiet(self) -> None:
        self._wait(turn_of(_getframe(), _getframe()), lambda _: not self._taken, LOOK_FIRST_S)

    def go_on(self) -> None:
        self._stopped = False
        self._wake_all()

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
