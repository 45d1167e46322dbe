"""The connections of one process: a few are kept, each used by one call at a time.

Of our own, as no pool of threads survives a fork, and a store must.

Each place in the pool names the call that has it, by its frame (system/locks.py), and is marked as
torn from its taking until what was done on its connection is over. A call that an exception left
anywhere gives nothing back: the next one who looks for a connection finds its frame over, closes
what it left, an open transaction or an answer that nobody read, and has the place.
"""

from __future__ import annotations

import random
import threading
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
from perdure.system.holders import holder_of_block
from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S, Lock

BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0

EXPECTED = (psycopg.Error, DeadlineError, InDoubtError, PerdureError)
"""What may come out of the use of a connection and leaves it in step, if it says so itself."""


class Place:
    """Room for one connection.

    Attributes:
        lock: of who uses it.
        connection: None: there is none yet, or not any more.
        torn: its use was not seen to end. Nobody else may use the connection.
        age: the pool's, when it was made.
    """

    __slots__ = ("age", "connection", "lock", "torn")

    def __init__(self) -> None:
        self.lock = Lock()
        self.connection: Connection | None = None
        self.torn = False
        self.age: object = None

    def drop(self) -> None:
        """Close the connection. Interrupted, it is done again by the next one who has the place."""
        if self.connection is not None:
            self.connection.end()
        self.connection = None
        self.torn = False


class Pool:
    """See the module."""

    def __init__(self, address: Address, connect: Callable[[], Connection]) -> None:
        self._address = address
        self._connect = connect
        self._final: StoreUnavailable | None = None
        self._begin()

    def _begin(self) -> None:
        self._places = [Place() for _ in range(self._address.pool_size)]
        self._waiting: deque[threading.Lock] = deque()
        self._age = object()

    def renew(self) -> None:
        """In a forked child: the sessions are the parent's."""
        for place in self._places:
            if place.connection is not None:
                place.connection.abandon()
        self._begin()

    @property
    def idle(self) -> list[Connection]:
        """Those that nobody uses."""
        return [one.connection for one in self._places if one.connection and not one.lock.held]

    def connection(self) -> AbstractContextManager[Connection]:
        """A connection for the calling function alone; one at a time. One that something went
        wrong on is not kept.

        Raises:
            StoreUnavailable: none is free in time; or the server was away for too long. Nothing
                was sent.
        """
        return _Use(self)

    def check(self) -> None:
        if self._final is not None:
            raise self._final

    def take(self, frame: FrameType) -> tuple[Place, Connection]:
        """As `connection`, for who gives it back by itself.

        Args:
            frame: of the call that uses it.
        """
        began = time.monotonic()
        self.check()
        place = self._find(frame) or self._await(frame, began)
        place.torn = True
        connection = place.connection
        if connection is None:
            try:
                place.age = self._age
                connection = place.connection = self._reach(began)
            except BaseException as error:
                self.give_back(place, frame, error)
                raise
        return place, connection

    def _find(self, frame: FrameType) -> Place | None:
        """A place that is free: one with a connection, if there is one. It is the frame's then."""
        empty: Place | None = None
        found: Place | None = None
        for place in self._places:
            if place.lock.held:
                if place.lock.is_left and place.lock.take_if_left(frame):
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

    def _tidy(self, place: Place, frame: FrameType) -> None:
        """Of a call that is over."""
        if place.torn:
            place.drop()
        place.lock.give_back(frame)

    def _await(self, frame: FrameType, began: float) -> Place:
        """Until a place is given back, or left."""
        until, pause_s = began + self._address.pool_timeout_s, LOOK_FIRST_S
        while True:
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
            try:
                # Behind being seen as one who waits: whoever gives back now wakes this one.
                if (place := self._find(frame)) is not None:
                    return place
                self.check()
                left_s = min(pause_s, until - time.monotonic())
                if left_s <= 0:
                    raise self._all_in_use()
                gate.acquire(timeout=left_s)
            finally:
                with suppress(ValueError):
                    self._waiting.remove(gate)
            pause_s = min(2 * pause_s, LOOK_MAX_S)

    def _all_in_use(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"all {self._address.pool_size} connections were in use for "
            f"{self._address.pool_timeout_s:g} s",
            target=f"store {self._address.shown}",
            hint="?pool_size=N in the URL allows for more; the server's max_connections "
            "must have room for those of all processes",
        )

    def _reach(self, began: float) -> Connection:
        """Connect; a server that is away may be back soon. Who waited for others that tried the
        same does not begin to wait anew."""
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

    def give_back(self, place: Place, frame: FrameType, error: BaseException | None = None) -> None:
        """End a use.

        Args:
            error: what it ended with. What is not of the kinds that are expected came from outside,
                between any two instructions: its connection is not used again.
        """
        connection = place.connection
        whole = error is None or isinstance(error, EXPECTED)
        if whole and connection is not None and connection.usable and self._is_current(place):
            place.torn = False
        else:
            place.drop()
        place.lock.give_back(frame)
        if self._waiting:
            with suppress(IndexError):
                self._waiting.popleft().release()

    def _is_current(self, place: Place) -> bool:
        return place.age is self._age and self._final is None

    def forget(self) -> None:
        """A connection was lost, so all may be: those that are idle, and those in use, end."""
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
        for gate in list(self._waiting):
            with suppress(RuntimeError):
                gate.release()


class _Use:
    """What a generator does as well, in a third of the time: each commit goes through here."""

    __slots__ = ("_frame", "_place", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Connection:
        self._frame = holder_of_block(_getframe(1))
        self._place, connection = self._pool.take(self._frame)
        return connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pool.give_back(self._place, self._frame, error)
