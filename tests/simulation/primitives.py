"""What a simulated process gets in place of `threading`, `queue`, `time` and `os`.

Only what the library uses. Where no simulated thread runs, nothing waits: the calls then only
change what they are about.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

from perdure.system import locks
from tests.simulation.scheduler import Process, Scheduler, SimulatedThread


class _Waiters:
    """Threads that wait for one thing, in the order in which they came."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._threads: deque[SimulatedThread] = deque()

    def wait(self, seconds: float | None) -> bool:
        thread = self._scheduler.current
        assert thread is not None, "only simulated threads can wait"
        self._threads.append(thread)
        try:
            return self._scheduler.wait(seconds)
        finally:
            if thread in self._threads:
                self._threads.remove(thread)

    def wake(self, number: int = 2**31) -> None:
        while self._threads and number > 0:
            self._scheduler.wake(self._threads.popleft())
            number -= 1


class Lock:
    """`threading.Lock`; whoever wants it next may get it first."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters = _Waiters(scheduler)
        self._locked = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._scheduler.give_way()
        while self._locked:
            if not blocking:
                return False
            if not self._waiters.wait(None if timeout < 0 else timeout) and timeout >= 0:
                return False
        self._locked = True
        return True

    def release(self) -> None:
        self._locked = False
        self._waiters.wake(1)

    def locked(self) -> bool:
        return self._locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def giving_way(kind: type[locks.Lock], scheduler: Scheduler) -> type[locks.Lock]:
    """One of the library's own locks, at which others may run first."""

    class Simulated(kind):  # type: ignore[valid-type,misc]
        def __enter__(self) -> None:
            scheduler.give_way()
            self.take(sys._getframe(1))

        def __exit__(self, *error: Any) -> None:
            self.give_back(sys._getframe(1))

        def try_take(self, frame: FrameType) -> bool:
            scheduler.give_way()
            return bool(super().try_take(frame))

    return Simulated


class RLock:
    """`threading.RLock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self._owner: SimulatedThread | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = self._scheduler.current
        if self._count and self._owner is here:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = here, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Event:
    """`threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = _Waiters(scheduler)
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiters.wait(timeout)
        return self._set


class Condition:
    """`threading.Condition`."""

    def __init__(self, scheduler: Scheduler, lock: Any = None) -> None:
        self.no = scheduler.number()
        self._lock = lock if lock is not None else RLock(scheduler)
        self._waiters = _Waiters(scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._waiters.wait(timeout)
        finally:
            self._lock.acquire()

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def notify_all(self) -> None:
        self._waiters.wake()


class Semaphore:
    """`threading.Semaphore`."""

    def __init__(self, scheduler: Scheduler, value: int = 1) -> None:
        self._waiters = _Waiters(scheduler)
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        while not self._value:
            if not blocking or timeout == 0:
                return False
            if not self._waiters.wait(timeout) and timeout is not None:
                return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n
        self._waiters.wake(n)


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = _Waiters(scheduler)
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._waiters.wake(1)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while not self._items:
            if not block or not (self._waiters.wait(timeout) or timeout is None):
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class Thread:
    """`threading.Thread`: one of the process that makes it."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert target is not None
        self._scheduler = scheduler
        self._call = lambda: target(*args, **(kwargs or {}))
        self.name = name or "thread"
        self._no = scheduler.number()
        self._thread: SimulatedThread | None = None

    def __hash__(self) -> int:
        return self._no  # a pool keeps its threads in a set: their order must be the same each time

    def start(self) -> None:
        self._scheduler.check()
        process = current_process(self._scheduler)
        self._thread = process.spawn(self.name, self._call)
        self._thread.shown = self

    def join(self, timeout: float | None = None) -> None:
        thread, here = self._thread, self._scheduler.current
        while thread is not None and not thread.over:
            assert here is not None
            thread.joiners.append(here)
            if not self._scheduler.wait(timeout) and timeout is not None:
                return

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.over


def future_number(future: Any) -> int:
    """In place of `id` where futures are locked one after the other, in its order."""
    return int(future._condition.no)


def current_process(scheduler: Scheduler) -> Process:
    assert scheduler.current is not None, "only simulated threads belong to a process"
    return scheduler.current.process


class Threading:
    """In place of the module `threading`. What is not simulated is the real thing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> Lock:  # noqa: N802 - as in the module
        return Lock(self._scheduler)

    def RLock(self) -> RLock:  # noqa: N802
        return RLock(self._scheduler)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._scheduler)

    def Condition(self, lock: Any = None) -> Condition:  # noqa: N802
        return Condition(self._scheduler, lock)

    def Semaphore(self, value: int = 1) -> Semaphore:  # noqa: N802
        return Semaphore(self._scheduler, value)

    def Thread(self, *args: Any, **kwargs: Any) -> Thread:  # noqa: N802
        return Thread(self._scheduler, *args, **kwargs)

    def current_thread(self) -> Any:
        here = self._scheduler.current
        return threading.current_thread() if here is None or here.shown is None else here.shown

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class Queue:
    """In place of the module `queue`."""

    Empty = queue.Empty

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def SimpleQueue(self) -> SimpleQueue:  # noqa: N802
        return SimpleQueue(self._scheduler)


class Time:
    """In place of the module `time`: each process has a clock of its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return current_process(self._scheduler).monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class System:
    """In place of the module `os`: chance follows from the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def urandom(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)
