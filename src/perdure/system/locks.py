"""Locks that no exception leaves behind: each names the frame that holds it.

A signal's exception may come between any two instructions: between taking a lock and the `try`
after it, in the `finally` that releases it, at the end of a `with` block. Then a lock stays taken
by nobody, and all later callers wait for ever. So a lock names the frame that holds it, in the same
operation that takes it, and a waiter checks whether that frame still runs. If it does not, the lock
is free.

No function keeps its own frame in a variable, nor in an object that a variable holds: that is a
reference cycle, which keeps all locals of it and its callers in memory until the garbage collector
runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from sys import _getframe

from perdure.errors import PerdureError
from perdure.system.holders import Holder, is_on_this_thread, is_over, name_of

LOOK_FIRST_S = 0.02
LOOK_MAX_S = 0.25
"""The interval at which a waiter checks whether the holder still runs."""

_reclaiming = threading.Lock()
"""Orders those who take a lock from a frame that is over; held for moments, by them alone."""


class WithinItselfError(PerdureError):
    """Code waits for the call that it was called from, as a signal's handler may. Not a `Conflict`:
    another try would be refused again."""


class Lock:
    """A lock for ``with lock:`` in a plain function, whose frame is the holder.

    Code that has it may not take it again, as with `threading.Lock`; but if it tries, as a signal's
    handler may that uses the same store, it gets an error instead of waiting for ever.
    """

    __slots__ = ("_holder", "_waiting")

    def __init__(self) -> None:
        self._holder: dict[None, Holder] = {}
        """Empty, or the holder: `setdefault` takes the lock and names the holder in one."""
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        frame = _getframe(1)
        if self._holder.setdefault(None, frame) is not frame:
            self._contend(frame, None)

    def __exit__(self, *error: object) -> None:
        self._holder.pop(None, None)
        if self._waiting:
            self._wake()

    @property
    def held(self) -> bool:
        """True if it seems to be held."""
        return bool(self._holder)

    @property
    def is_left(self) -> bool:
        """True if the call that has it ended without giving it back."""
        holder = self._holder.get(None)
        return holder is not None and is_over(holder)

    def is_held_by(self, frame: Holder) -> bool:
        """True if that call holds it."""
        return self._holder.get(None) is frame

    def try_take(self, frame: Holder) -> bool:
        """Takes it for a frame if it is not held. `give_back` releases it."""
        return self._holder.setdefault(None, frame) is frame

    def take_if_left(self, frame: Holder) -> bool:
        """Takes it for a frame if it is not held, or if its holder has ended."""
        while (holder := self._holder.setdefault(None, frame)) is not frame:
            if not is_over(holder):
                return False
            self._reclaim(holder)
        return True

    def refuse_within(self, frame: Holder) -> None:
        """Raises if the holder is another call, below the calling code: it would wait for itself.

        Raises:
            WithinItselfError: the holder is below the calling code.
        """
        holder = self._holder.get(None)
        if holder is not None and holder is not frame and is_on_this_thread(holder):
            self._meet_own(holder)

    def take(self, frame: Holder, timeout_s: float | None = None) -> bool:
        """Takes it for a frame; returns False if that fails within the timeout."""
        if self._holder.setdefault(None, frame) is frame:
            return True
        return self._contend(frame, timeout_s)

    def give_back(self, frame: Holder) -> None:
        """Releases it if the frame holds it."""
        if self._holder.get(None) is frame:
            self._holder.pop(None, None)
            if self._waiting:
                self._wake()

    def _contend(self, frame: Holder, timeout_s: float | None) -> bool:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = LOOK_FIRST_S
        while (holder := self._holder.setdefault(None, frame)) is not frame:
            if is_over(holder):  # first: a block may be over whose function goes on
                self._reclaim(holder)
                continue
            if is_on_this_thread(holder):
                self._meet_own(holder)
                return True
            left_s = pause_s if until is None else min(pause_s, until - time.monotonic())
            if left_s <= 0:
                return False
            if self._wait(frame, left_s):
                return True
            pause_s = min(2 * pause_s, LOOK_MAX_S)
        return True

    def _meet_own(self, holder: Holder) -> None:
        raise WithinItselfError(
            f"called from within itself, in {name_of(holder)}",
            hint="a signal handler must not use a store that its program uses; let it set a flag, "
            "or raise",
        )

    def _wait(self, frame: Holder, seconds: float) -> bool:
        """Waits to be woken; returns True if it has the lock then."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting.append(gate)
        try:
            # After becoming visible as a waiter: a release from now on wakes this one.
            if self._holder.setdefault(None, frame) is frame:
                return True
            if gate.acquire(timeout=seconds):
                return self._holder.setdefault(None, frame) is frame
            return False
        finally:
            with suppress(ValueError):
                self._waiting.remove(gate)

    def _wake(self) -> None:
        with suppress(IndexError):
            self._waiting.popleft().release()

    def _reclaim(self, holder: Holder) -> None:
        """Takes it from a frame that has ended; once, however many threads notice."""
        got = _reclaiming.acquire(timeout=1.0)
        try:
            if self._holder.get(None) is holder:
                self._holder.pop(None)
        finally:
            if got:
                _reclaiming.release()
        self._wake()


class ReentrantLock(Lock):
    """A lock that the code that has it may take again in a call that it makes."""

    __slots__ = ()

    def __exit__(self, *error: object) -> None:
        # The call that took it releases it; calls inside of it leave it alone.
        if self._holder.get(None) is _getframe(1):
            self._holder.pop(None, None)
            if self._waiting:
                self._wake()

    def _meet_own(self, holder: Holder) -> None:
        """Does nothing: the lock is ours already."""
