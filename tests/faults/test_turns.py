"""Locks under contention: waiters get their turn, and one who left before it blocks nobody."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.storage.postgres.pool import ConnectionPool
from perdure.storage.sqlite.readers import ConnectionUser, Readers
from perdure.system.locks import PASSED_MAX, Lock, ReentrantLock, Turn
from tests.faults.injecting import KINDS, inject

BOUND_S = 20


class Reading(ConnectionUser):
    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def __enter__(self) -> None:
        self.connection = self._readers.take(self, sys._getframe(1))

    def __exit__(self, *error: object) -> None:
        self._readers.give_back(self)


class Guarded:
    """What a lock guards: how often it was taken, and whether two were ever inside at once."""

    def __init__(self, block: Callable[[], AbstractContextManager[object]], waiting: Any) -> None:
        self.block = block
        self.waiting = waiting
        self.taken = 0
        self.shared = False
        self.seen_waiting: int | None = None
        """How often it had been taken when somebody was first seen to wait."""
        self._inside = 0

    def enter(self) -> None:
        with self.block():
            self._inside += 1
            if self.seen_waiting is None and self.waiting:
                self.seen_waiting = self.taken
            self.taken += 1
            self.shared |= self._inside != 1
            self._inside -= 1


def by_lock(kind: type[Lock]) -> tuple[Guarded, Lock]:
    lock = kind()
    return Guarded(lambda: lock, lock._waiting), lock


def by_readers(monkeypatch: pytest.MonkeyPatch) -> Guarded:
    monkeypatch.setattr("perdure.storage.sqlite.readers.AT_ONCE", 1)
    made: Any = object
    readers = Readers(made)
    return Guarded(lambda: Reading(readers), readers._waiting)


def by_pool() -> Guarded:
    address: Any = SimpleNamespace(pool_size=1, pool_timeout_s=BOUND_S, retry_s=0, shown="")
    connection: Any = SimpleNamespace(usable=True, may_be_another=False, end=lambda: None)
    pool = ConnectionPool(address, lambda: connection, lambda _: None)
    return Guarded(pool.connection, pool._waiting)


@pytest.mark.parametrize("kind", ["lock", "reentrant", "readers", "pool"])
def test_a_waiter_is_passed_by_a_bounded_number_of_times(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread edited in a loop. Another one that shared its handle waited for 40,000 edits:
    whoever gave the lock back had taken it again before the waiter was awake. And where 16 threads
    shared a store in PostgreSQL, calls failed because "all 8 connections were in use for 30 s"."""
    guarded = {
        "lock": lambda: by_lock(Lock)[0],
        "reentrant": lambda: by_lock(ReentrantLock)[0],
        "readers": lambda: by_readers(monkeypatch),
        "pool": by_pool,
    }[kind]()
    end, passed = threading.Event(), 0

    def loop() -> None:
        while not end.is_set():
            guarded.enter()

    thread = threading.Thread(target=loop)
    thread.start()
    while guarded.seen_waiting is None:  # until it comes while another one is inside
        with guarded.block():
            passed = guarded.taken
    end.set()
    thread.join(BOUND_S)
    assert passed - guarded.seen_waiting <= PASSED_MAX + 1 and not guarded.shared


@pytest.mark.parametrize("kind", [Lock, ReentrantLock])
def test_i8_a_waiter_that_is_interrupted_as_its_turn_comes_blocks_nobody(kind: type[Lock]) -> None:
    """Also where the lock is kept for it by then."""
    met = [""]
    for at in itertools.takewhile(lambda at: at == 1 or met[-1], itertools.count(1, 2)):
        (guarded, lock), done = by_lock(kind), threading.Event()

        def wait(guarded: Guarded = guarded, done: threading.Event = done, at: int = at) -> None:
            met.append(inject(guarded.enter, at, KINDS[at % 4]).where.rpartition(" ")[-1])
            done.set()

        waiter = threading.Thread(target=wait)  # with a short stack, which it looks through
        with lock:
            waiter.start()
            while not lock._waiting and not done.is_set():
                time.sleep(0)
        for _ in range(2 * PASSED_MAX):
            assert lock.take(sys._getframe(), BOUND_S)
            lock.give_back(sys._getframe())
        waiter.join(BOUND_S)
        assert not waiter.is_alive() and not guarded.shared
        assert lock.take(sys._getframe(), BOUND_S)
    assert {"Lock._contend", "Lock._wait", "Lock._give_up"} <= {*met}


def test_who_waits_no_longer_does_not_get_the_lock() -> None:
    """As one whose time is over just when the lock is given to it."""
    lock = Lock()

    def left() -> Turn:
        return Turn(sys._getframe(1), sys._getframe(), threading.Lock())

    lock._waiting.append(left())
    for _ in range(2 * PASSED_MAX):
        with lock:
            pass
    assert not lock.held and not lock._waiting
    lock._holder[None] = left()  # given to it at the last moment
    assert lock.is_left
    with lock:
        assert lock.held
    assert not lock.held
