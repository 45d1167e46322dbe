"""Locks that no exception leaves behind: each names the frame that holds it.

A signal's exception may come between any two instructions: between a lock's taking and the `try`
behind it, in the `finally` that gives it back, where a `with` block ends. Then a lock stays taken
by nobody, and all who come later wait for ever. So one that is held says by which frame, with the
very operation that takes it, and who waits looks whether that frame still runs. Where it does not,
the lock is free.

Nobody keeps his own frame in a variable, nor in what a variable of his holds: that is a circle, and
with it stays in memory all that he and his callers had at hand, until the collector comes by.
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
"""How often one who waits looks whether the holder still runs."""

_reclaiming = threading.Lock()
"""Orders those who take a lock from a frame that is over; held for moments, by them alone."""


class WithinItselfError(PerdureError):
    """Code waits for the call that it was called from, as a signal's handler may. No `Conflict`:
    to try again would only be refused again."""


class Lock:
    """See the module. ``with lock:`` in a plain function, whose frame is the holder.

    Code that has it may not take it again, as with `threading.Lock`; but where it tries, as a
    signal's handler may that uses the same store, it is told so instead of waiting for ever.
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
        """Whether somebody seems to have it."""
        return bool(self._holder)

    @property
    def is_left(self) -> bool:
        """Whether the call that has it is over, and did not give it back."""
        holder = self._holder.get(None)
        return holder is not None and is_over(holder)

    def is_held_by(self, frame: Holder) -> bool:
        """Whether it is that call's."""
        return self._holder.get(None) is frame

    def try_take(self, frame: Holder) -> bool:
        """Take it for a frame if it is free at first sight. `give_back` ends that."""
        return self._holder.setdefault(None, frame) is frame

    def take_if_left(self, frame: Holder) -> bool:
        """As `try_take`; one whose holder is over is free, too."""
        while (holder := self._holder.setdefault(None, frame)) is not frame:
            if not is_over(holder):
                return False
            self._reclaim(holder)
        return True

    def refuse_within(self, frame: Holder) -> None:
        """Raise where the holder is another call, below the calling code, which is to wait for it:
        it would wait for itself.

        Raises:
            WithinItselfError: it is so.
        """
        holder = self._holder.get(None)
        if holder is not None and holder is not frame and is_on_this_thread(holder):
            self._meet_own(holder)

    def take(self, frame: Holder, timeout_s: float | None = None) -> bool:
        """Take it for a frame; False: not in time."""
        if self._holder.setdefault(None, frame) is frame:
            return True
        return self._contend(frame, timeout_s)

    def give_back(self, frame: Holder) -> None:
        """End what a frame holds, if it holds it."""
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
            hint="a signal's handler must not use the store that its program uses; let it set a "
            "mark, or raise",
        )

    def _wait(self, frame: Holder, seconds: float) -> bool:
        """Wait to be woken; whether it was had then."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting.append(gate)
        try:
            # Behind being seen as one who waits: whoever gives it back now wakes this one.
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
        """Take it from a frame that is over; once, however many found that."""
        got = _reclaiming.acquire(timeout=1.0)
        try:
            if self._holder.get(None) is holder:
                self._holder.pop(None)
        finally:
            if got:
                _reclaiming.release()
        self._wake()


class ReentrantLock(Lock):
    """As `Lock`, and the code that has it may take it again in a call that it makes."""

    __slots__ = ()

    def __exit__(self, *error: object) -> None:
        # The call that took it gives it back; those inside of it leave it alone.
        if self._holder.get(None) is _getframe(1):
            self._holder.pop(None, None)
            if self._waiting:
                self._wake()

    def _meet_own(self, holder: Holder) -> None:
        """It is ours already."""
