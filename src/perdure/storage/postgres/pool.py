"""The connections of one process: a few are kept, each used by one thread at a time.

Of our own, as no pool of threads survives a fork, and a store must.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import psycopg

from perdure.errors import StoreUnavailable
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.faults import AwayError

BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0


class Pool:
    """See the module."""

    def __init__(self, address: Address, connect: Callable[[], Connection]) -> None:
        self._address = address
        self._connect = connect
        self._idle: list[Connection] = []
        self._final: StoreUnavailable | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._busy = 0
        self._waiting = 0
        self._age = 0

    def renew(self) -> None:
        """In a forked child: the sessions are the parent's."""
        while self._idle:
            self._idle.pop().abandon()
        self._begin()

    def connection(self) -> AbstractContextManager[Connection]:
        """A connection for this thread alone. One that something went wrong on is not kept.

        Raises:
            StoreUnavailable: none is free in time; or the server was away for too long. Nothing
                was sent.
        """
        return _Use(self)

    def check(self) -> None:
        if self._final is not None:
            raise self._final

    def take(self) -> tuple[Connection, int]:
        """As `connection`, for who gives it back by itself: with the number that comes with it."""
        began = time.monotonic()
        with self._lock:  # itself: a Condition goes to it by two calls of Python functions
            if self._busy >= self._address.pool_size and not self._await_room():
                raise StoreUnavailable(
                    f"all {self._address.pool_size} connections were in use for "
                    f"{self._address.pool_timeout_s:g} s", target=f"store {self._address.shown}",
                    hint="?pool_size=N in the URL allows for more; the server's max_connections "
                    "must have room for those of all processes",
                )  # fmt: skip
            if self._final is not None:
                raise self._final
            self._busy += 1
            age = self._age
            if self._idle:
                return self._idle.pop(), age
        try:
            return self._reach(began), age
        except BaseException:
            self.give_back(None, age)
            raise

    def _await_room(self) -> bool:
        self._waiting += 1
        try:
            return self._turn.wait_for(self._has_room, self._address.pool_timeout_s)
        finally:
            self._waiting -= 1

    def _has_room(self) -> bool:
        return self._busy < self._address.pool_size or self._final is not None

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

    def give_back(self, connection: Connection | None, age: int) -> None:
        with self._lock:
            self._busy -= 1
            if connection is not None:
                if connection.usable and age == self._age and self._final is None:
                    self._idle.append(connection)
                else:
                    _close(connection)
            if self._waiting:
                self._turn.notify()

    def forget(self) -> None:
        """A connection was lost, so all may be: those that are idle, and those in use, end."""
        with self._turn:
            self._age += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def close(self) -> None:
        self._final = StoreUnavailable(
            "the store is closed", target=f"store {self._address.shown}", hint="open it again"
        )
        self.forget()
        with self._turn:
            self._turn.notify_all()


class _Use:
    """What a generator does as well, in a third of the time: each commit goes through here."""

    __slots__ = ("_age", "_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Connection:
        self._connection, self._age = self._pool.take()
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._pool.give_back(self._connection, self._age)


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()
