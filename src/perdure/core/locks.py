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

import inspect
import opcode
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from sys import _getframe
from types import FrameType, TracebackType

from perdure.errors import PerdureError

LOOK_FIRST_S = 0.02
LOOK_MAX_S = 0.25
"""How often one who waits looks whether the holder still runs."""

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_reclaiming = threading.Lock()
"""Orders those who take a lock from a frame that is over; held for moments, by them alone."""


_before_fork: set[FrameType] = set()
"""The calls that other threads were in when this process was forked off: nobody goes on with them
here, and they look as if somebody did."""


def _note_other_threads() -> None:
    found: set[FrameType] = set()
    here = threading.get_ident()
    for thread, newest in sys._current_frames().items():
        frame = newest if thread != here else None
        while frame is not None:
            found.add(frame)
            frame = frame.f_back
    _noted.append(found)


def _forget_noted() -> None:
    _noted.clear()


def _keep_noted() -> None:
    for found in _noted:
        _before_fork.update(found)
    _noted.clear()


_noted: list[set[FrameType]] = []
os.register_at_fork(
    before=_note_other_threads, after_in_parent=_forget_noted, after_in_child=_keep_noted
)


def is_over(frame: FrameType) -> bool:
    """Whether a call has provably ended: it cannot do anything any more.

    Never so of a generator's or coroutine's, which is not to be asked: it would be closed.
    """
    if frame in _before_fork:
        return True
    if frame.f_code.co_flags & _SUSPENDABLE:
        return False
    try:
        # The only question to the interpreter that is answered in one go: one that runs refuses.
        frame.clear()
    except RuntimeError:
        return False
    return True


def is_on_this_thread(frame: FrameType) -> bool:
    """Whether a call goes on below the calling code."""
    here: FrameType | None = _getframe(1)
    while here is not None:
        if here is frame:
            return True
        here = here.f_back
    return False


def holder_of_block(caller: FrameType) -> FrameType:
    """Who holds what ``with`` took, in a context manager's `__enter__` that was called by this
    frame: that one, if it is the block's own; else (an `ExitStack`, a coroutine, which may rest
    inside the block) the thread, by its first frame."""
    code = caller.f_code
    if not code.co_flags & _SUSPENDABLE and code.co_code[caller.f_lasti] == _BEFORE_WITH:
        return caller
    return first_frame()


def first_frame() -> FrameType:
    """The call that this thread began with: as a holder, it stands for the thread."""
    frame = _getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


_BEFORE_WITH = opcode.opmap.get("BEFORE_WITH", -1)


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
        self._holder: dict[None, FrameType] = {}
        """Empty, or the holder: `setdefault` takes the lock and names the holder in one."""
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        frame = _getframe(1)
        if self._holder.setdefault(None, frame) is not frame:
            self._contend(frame, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
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

    def is_held_by(self, frame: FrameType) -> bool:
        """Whether it is that call's."""
        return self._holder.get(None) is frame

    def try_take(self, frame: FrameType) -> bool:
        """Take it for a frame if it is free at first sight. `give_back` ends that."""
        return self._holder.setdefault(None, frame) is frame

    def take_if_left(self, frame: FrameType) -> bool:
        """As `try_take`; one whose holder is over is free, too."""
        while (holder := self._holder.setdefault(None, frame)) is not frame:
            if not is_over(holder):
                return False
            self._reclaim(holder)
        return True

    def refuse_within(self, frame: FrameType) -> None:
        """Raise where the holder is another call, below the calling code, which is to wait for it:
        it would wait for itself.

        Raises:
            WithinItselfError: it is so.
        """
        holder = self._holder.get(None)
        if holder is not None and holder is not frame and is_on_this_thread(holder):
            self._meet_own(holder)

    def take(self, frame: FrameType, timeout_s: float | None = None) -> bool:
        """Take it for a frame; False: not in time."""
        return self.try_take(frame) or self._contend(frame, timeout_s)

    def give_back(self, frame: FrameType) -> None:
        """End what a frame holds, if it holds it."""
        if self._holder.get(None) is frame:
            self._holder.pop(None, None)
            if self._waiting:
                self._wake()

    def _contend(self, frame: FrameType, timeout_s: float | None) -> bool:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = LOOK_FIRST_S
        while (holder := self._holder.setdefault(None, frame)) is not frame:
            if is_on_this_thread(holder):
                self._meet_own(holder)
                return True
            if is_over(holder):
                self._reclaim(holder)
                continue
            left_s = pause_s if until is None else min(pause_s, until - time.monotonic())
            if left_s <= 0:
                return False
            if self._wait(frame, left_s):
                return True
            pause_s = min(2 * pause_s, LOOK_MAX_S)
        return True

    def _meet_own(self, holder: FrameType) -> None:
        raise WithinItselfError(
            f"called from within itself, in {holder.f_code.co_name}",
            hint="a signal's handler must not use the store that its program uses; let it set a "
            "mark, or raise",
        )  # fmt: skip

    def _wait(self, frame: FrameType, seconds: float) -> bool:
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

    def _reclaim(self, holder: FrameType) -> None:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        # The call that took it gives it back; those inside of it leave it alone.
        if self._holder.get(None) is _getframe(1):
            self._holder.pop(None, None)
            if self._waiting:
                self._wake()

    def _meet_own(self, holder: FrameType) -> None:
        """It is ours already."""
