"""The connections of one process: a few are kept, each used by one call at a time.

It is our own, because no pool with threads survives a fork, and a store must.

Each place in the pool names the call that has it, by its frame (system/locks.py), and is marked as
torn from its taking until the work on its connection is over. A call that an exception ended gives
nothing back: the next caller that looks for a connection finds its frame ended, closes what it
left, an open transaction or an unread answer, and takes the place.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from sys import _getframe
from types import FrameType

import psycopg

from perdure.errors import PerdureError, StoreUnavailable
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.faults import AwayError, DeadlineError, InDoubtError
from perdure.system.locks import (
    LOOK_FIRST_S,
    LOOK_MAX_S,
    Holder,
    Lock,
    Turn,
    holder_of_block,
    next_turn,
    turn_of,
)

BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0

EXPECTED = (psycopg.Error, DeadlineError, InDoubtError, PerdureError)
"""Exceptions that may come from the use of a connection and leave it in step, if it says so
itself."""


class ConnectionSlot:
    """Room for one connection.

    Attributes:
        lock: of the call that uses it.
        connection: None if there is none.
        torn: True if its use did not end properly. Nobody else may use the connection.
        age: the pool's age when it was made.
    """

    __slots__ = ("age", "connection", "lock", "torn")

    def __init__(self) -> None:
        self.lock = Lock()
        self.connection: Connection | None = None
        self.torn = False
        self.age: object = None

    def drop(self) -> None:
        """Closes the connection. If interrupted, the next call that has the place does it again."""
        if self.connection is not None:
            self.connection.end()
        self.connection = None
        self.torn = False


class ConnectionPool:
    """See the module."""

    def __init__(
        self,
        address: Address,
        connect: Callable[[], Connection],
        meet: Callable[[Connection], None],
    ) -> None:
        self._address = address
        self._connect = connect
        self._meet = meet
        self._final: StoreUnavailable | None = None
        self._begin()

    def _begin(self) -> None:
        self._places = [ConnectionSlot() for _ in range(self._address.pool_size)]
        self._waiting: deque[Turn] = deque()
        self._age = object()

    def renew(self) -> None:
        """Resets itself in a forked child: the sessions are the parent's."""
        for place in self._places:
            if place.connection is not None:
                place.connection.abandon()
        self._begin()

    @property
    def idle(self) -> list[Connection]:
        """The connections that nobody uses."""
        return [one.connection for one in self._places if one.connection and not one.lock.held]

    def connection(self) -> AbstractContextManager[Connection]:
        """Returns a context manager that gives the calling function a connection of its own; one at
        a time. A connection with an error is not kept.

        Raises:
            StoreUnavailable: none is free in time; or the server was away for too long. Nothing
                was sent.
        """
        return _Use(self)

    def check(self) -> None:
        if self._final is not None:
            raise self._final

    def take(self, frame: FrameType) -> tuple[ConnectionSlot, Connection]:
        """Takes a connection like `connection`, for a caller that gives it back by itself.

        Args:
            frame: the frame of the call that uses it.
        """
        began = time.monotonic()
        self.check()
        place = self._find(frame) or self._await(frame, began)
        place.torn = True
        connection = place.connection
        if connection is None or connection.may_be_another:
            try:
                if connection is None:
                    place.age = self._age
                    connection = place.connection = self._reach(began)
                else:
                    self._meet(connection)
            except BaseException as error:
                self.give_back(place, frame, error)
                raise
        return place, connection

    def _find(self, frame: FrameType, turn: Turn | None = None) -> ConnectionSlot | None:
        """Returns a free place, or one that is kept for a waiter, held by the frame then: one with
        a connection, if there is one."""
        empty: ConnectionSlot | None = None
        found: ConnectionSlot | None = None
        for place in self._places:
            if place.lock.held:
                if found is None and turn is not None and place.lock.is_held_by(turn):
                    place.lock.pass_on(turn, frame)
                    found = place
                elif place.lock.is_left and place.lock.take_if_left(frame):
                    self._tidy(place, frame)
            elif found is None:
                if place.connection is None:
                    empty = empty or place
                elif place.lock.try_take(frame):
                    found = place
        if found is None and empty is not None and empty.lock.try_take(frame):
            found = empty
        if found is not None and (found.torn or found.age is not self._age):
            found.drop()
        return found

    def _tidy(self, place: ConnectionSlot, frame: FrameType) -> None:
        """Cleans up after a call that is over."""
        if place.torn:
            place.drop()
        place.lock.give_back(frame)

    def _await(self, frame: FrameType, began: float) -> ConnectionSlot:
        """Waits until a place is given back, or left, or kept for this call."""
        until = began + self._address.pool_timeout_s
        return self._wait(turn_of(frame, _getframe()), frame, until)

    def _wait(self, turn: Turn, frame: FrameType, until: float) -> ConnectionSlot:
        pause_s = LOOK_FIRST_S
        try:
            # Visible as a waiter before it looks: a release from now on wakes this one.
            self._waiting.append(turn)
            while (place := self._find(frame, turn)) is None:
                self.check()
                left_s = min(pause_s, until - time.monotonic())
                if left_s <= 0:
                    raise self._all_in_use()
                turn.wait(left_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)
            return place
        finally:
            with suppress(ValueError):
                self._waiting.remove(turn)
            for one in self._places:
                if one.lock.is_held_by(turn):
                    self._free(one, turn)

    def _all_in_use(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"all {self._address.pool_size} connections were in use for "
            f"{self._address.pool_timeout_s:g} s",
            target=f"store {self._address.shown}",
            hint="?pool_size=N in the URL allows more; the server's max_connections "
            "must have room for those of all processes",
        )

    def _reach(self, began: float) -> Connection:
        """Connects; a server that is away may be back soon. The time spent waiting for others that
        tried the same counts."""
        until, pause = began + self._address.retry_s, BACKOFF_S
        while True:
            try:
                return self._connect()
            except AwayError:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, BACKOFF_MAX_S)
            self.check()

    def give_back(
        self, place: ConnectionSlot, frame: FrameType, error: BaseException | None = None
    ) -> None:
        """Ends a use.

        Args:
            error: the exception that ended it. After an unexpected kind, which may have come
                between any two instructions, the connection is not used again.
        """
        connection = place.connection
        whole = error is None or isinstance(error, EXPECTED)
        if whole and connection is not None and connection.usable and self._is_current(place):
            place.torn = False
        else:
            place.drop()
        self._free(place, frame)

    def _free(self, place: ConnectionSlot, holder: Holder) -> None:
        """Gives a place back; keeps it for the first who waits, if others were served too often."""
        place.lock.give_back(holder)
        turn = next_turn(self._waiting) if self._waiting else None
        if turn is not None:
            if turn.is_due and place.lock.try_take(turn):
                turn.passed = 0  # one place is enough
            turn.wake()

    def _is_current(self, place: ConnectionSlot) -> bool:
        return place.age is self._age and self._final is None

    def forget(self) -> None:
        """Notes that a connection was lost, so all may be: idle ones end now, others after their
        use."""
        self._age = object()
        for place in self._places:
            if place.lock.take_if_left(_getframe()):
                place.drop()
                place.lock.give_back(_getframe())

    def close(self) -> None:
        self._final = StoreUnavailable(
            "the store is closed", target=f"store {self._address.shown}", hint="open it again"
        )
        self.forget()
        for turn in list(self._waiting):
            turn.wake()


class _Use:
    """A context manager that takes a third of a generator's time: each commit goes through here."""

    __slots__ = ("_frame", "_place", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def __enter__(self) -> Connection:
        self._frame = holder_of_block(_getframe(1))
        self._place, connection = self._pool.take(self._frame)
        return connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pool.give_back(self._place, self._frame, error)
