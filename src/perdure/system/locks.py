"""Locks that no exception leaves behind, and their holders: a call, by its frame, or a `with`
block.

A signal's exception may come between any two instructions: between taking a lock and the `try`
after it, in the `finally` that releases it, at the end of a `with` block. Then a lock stays taken
by nobody, and all later callers wait for ever. So a lock names the frame that holds it, in the same
operation that takes it, and a waiter checks whether that frame still runs. If it does not, the lock
is free.

The frame of a call shows that the call has ended. It does not show the end of a block whose
function goes on: a loop that catches Ctrl-C, a cell of a notebook. There an exception may come
before the first instruction of `__exit__`, so that no code of ours ever hears of the end. So the
block's context manager gives the interpreter an `__exit__` that nobody else has. The interpreter
keeps it exactly as long as the block is open.

No function keeps its own frame in a variable, nor in an object that a variable holds: that is a
reference cycle, which keeps all locals of it and its callers in memory until the garbage collector
runs.
"""

from __future__ import annotations

import inspect
import opcode
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial, update_wrapper
from itertools import accumulate, chain, repeat, starmap, takewhile
from sys import _getframe
from types import FrameType
from typing import Any

from msgspec import Struct

from perdure.errors import PerdureError

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_before_fork: set[FrameType] = set()
"""The calls that other threads were in when this process was forked off: nobody goes on with them
here, and they look as if somebody did."""


def _note_other_threads() -> None:
    found = set(_frames_of_all())
    frame: FrameType | None = _getframe()
    while frame is not None:
        found.discard(frame)
        frame = frame.f_back
    _noted.append(found)


def _frames_of_all() -> Iterator[FrameType]:
    """Yields the calls that each thread is in. All of it is made of functions in C, so that no
    other thread goes on meanwhile: frames that are just torn down have crashed the interpreter."""
    newest = chain.from_iterable(map(dict.values, starmap(sys._current_frames, [()])))
    lines: Any = map(chain, zip(newest), repeat(repeat("f_back")))
    return chain.from_iterable(
        map(takewhile, repeat(bool), map(accumulate, lines, repeat(getattr)))
    )


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


Going = list[weakref.ref[Coroutine[Any, Any, Any]]]


def _end_async(
    function: Callable[..., Any], manager: object, going: Going, *error: object
) -> Coroutine[Any, Any, Any]:
    """Calls an `__aexit__`. From its call on the interpreter keeps only the coroutine, not the
    function: so the coroutine is noted."""
    ending: Coroutine[Any, Any, Any] = function(manager, *error)
    going.append(weakref.ref(ending))
    return ending


End = weakref.ref[Any]
"""To the `__exit__` that the interpreter keeps while a block is open."""


class Span(Struct, eq=False):
    """A `with` block as a holder.

    Attributes:
        going: the coroutine that ends it, once there is one.
        frame: the frame of the code with the block, or of its thread.
    """

    end: End
    going: Going
    frame: FrameType

    @property
    def is_over(self) -> bool:
        """True once the interpreter has left the block, for whatever reason."""
        if self.frame in _before_fork:
            return True
        if self.end() is not None:
            return False
        ending: Any = self.going[0]() if self.going else None
        return ending is None or not (ending.cr_running or ending.cr_suspended)


class ends_block:  # noqa: N801 - a decorator, as `property` is
    """Decorates a context manager's `__exit__` or `__aexit__`: puts a reference to this block's one
    into its attribute `_end`, before `__enter__` is called; see `span_of`. An `ExitStack` does
    without."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)

    def __call__(self, manager: object, *error: object) -> Any:
        """Calls the function, for callers that find it on the class."""
        return self._function(manager, *error)

    def __get__(self, manager: Any, owner: type) -> Callable[..., Any]:
        if manager is None:
            return self._function
        if self._is_async:
            end = partial(_end_async, self._function, manager, [])
        else:
            end = partial(self._function, manager)
        manager._end = weakref.ref(end)
        return end


PASSED_MAX = 8
"""The number of times that others may take a lock before the first one who waits for it. Whoever
gives it back and takes it again in a loop is faster than any waiter; to change hands each time is
dear."""


class Turn(Struct, eq=False):
    """A wait for a lock. As a holder it keeps the lock for the waiter, whose turn it is.

    Attributes:
        taker: who is to hold the lock.
        call: the call that waits.
        gate: locked until the waiter is woken.
        passed: how often others gave the lock back while this one was the first to wait.
    """

    taker: Holder
    call: FrameType
    gate: threading.Lock
    passed: int = 0

    @property
    def is_due(self) -> bool:
        """True if it was passed by too often: it is given the lock."""
        return self.passed > PASSED_MAX

    def wait(self, seconds: float) -> None:
        """Waits to be woken, at most this long."""
        self.gate.acquire(timeout=seconds)

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self.gate.release()


def turn_of(taker: Holder, call: FrameType) -> Turn:
    """Returns a new wait. No variable of the waiting call may hold it: see above."""
    gate = threading.Lock()
    gate.acquire()
    return Turn(taker, call, gate)


def next_turn(waiting: deque[Turn]) -> Turn | None:
    """Returns the first one who waits, when something was given back, and counts that."""
    with suppress(IndexError):
        while is_over(turn := waiting[0]):
            with suppress(ValueError):
                waiting.remove(turn)
        turn.passed += 1
        return turn
    return None


Holder = FrameType | Span | Turn


def is_over(holder: Holder) -> bool:
    """Returns True if a call, a block, or a wait has provably ended: it cannot do anything any
    more.

    Always False for a generator's or coroutine's call: asking would close it.
    """
    if isinstance(holder, Span):
        return holder.is_over
    frame = holder.call if isinstance(holder, Turn) else holder
    if frame in _before_fork:
        return True
    if frame.f_code.co_flags & _SUSPENDABLE:
        return False
    try:
        # The only atomic question to the interpreter: a running frame refuses to be cleared.
        frame.clear()
    except RuntimeError:
        return False
    return True


def is_on_this_thread(holder: Holder) -> bool:
    """True if a call, or the one that has the block, is still running below the calling code."""
    frame = _frame_of(holder)
    here: FrameType | None = _getframe(1)
    while here is not None:
        if here is frame:
            return True
        here = here.f_back
    return False


def span_of(manager: Any, frame: FrameType) -> Span | None:
    """Returns, in a context manager's `__enter__`, the block that it was called for, with its
    frame; None if it was called by hand."""
    end: End | None = manager._end
    manager._end = None
    kept = end() if end is not None else None
    if end is None or kept is None:
        return None
    return Span(end, kept.args[2] if kept.func is _end_async else [], frame)


def holder_of_block(caller: FrameType) -> FrameType:
    """Returns the holder of what ``with`` took, in a context manager's `__enter__` that was called
    by this frame: the frame, if it is the block's own; otherwise (an `ExitStack`, a coroutine,
    which may be suspended inside the block) the thread, by its first frame."""
    code = caller.f_code
    if not code.co_flags & _SUSPENDABLE and code.co_code[caller.f_lasti] == _BEFORE_WITH:
        return caller
    return first_frame()


def first_frame() -> FrameType:
    """Returns the frame of the call that this thread began with: as a holder, it stands for the
    thread."""
    frame = _getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


_BEFORE_WITH = opcode.opmap.get("BEFORE_WITH", -1)


def name_of(holder: Holder) -> str:
    """Returns the name of the function that holds something, for people."""
    return _frame_of(holder).f_code.co_name


def _frame_of(holder: Holder) -> FrameType:
    if isinstance(holder, Turn):
        return _frame_of(holder.taker)
    return holder.frame if isinstance(holder, Span) else holder


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

    Waiters get it in their order; after `PASSED_MAX` others at the latest it is kept for the first.
    """

    __slots__ = ("_holder", "_waiting")

    def __init__(self) -> None:
        self._holder: dict[None, Holder] = {}
        """Empty, or the holder: `setdefault` takes the lock and names the holder in one."""
        self._waiting: deque[Turn] = deque()

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

    def pass_on(self, frame: Holder, to: Holder) -> None:
        """Makes another one the holder if the frame holds it."""
        if self._holder.get(None) is frame:
            self._holder[None] = to

    def _contend(self, frame: Holder, timeout_s: float | None) -> bool:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        return self._wait(turn_of(frame, _getframe()), until)

    def _wait(self, turn: Turn, until: float | None) -> bool:
        frame, pause_s = turn.taker, LOOK_FIRST_S
        queued = False
        try:
            while (holder := self._holder.setdefault(None, frame)) is not frame:
                if holder is turn:  # it is kept for this one, and nobody else changes that
                    self._holder[None] = frame
                elif is_over(holder):  # first: a block may be over whose function goes on
                    self._reclaim(holder)
                elif is_on_this_thread(holder):
                    self._meet_own(holder)
                    return True
                elif not queued:  # a release from now on wakes this one: one more look
                    queued = True
                    self._waiting.append(turn)
                else:
                    left_s = pause_s if until is None else min(pause_s, until - time.monotonic())
                    if left_s <= 0:
                        return False
                    turn.wait(left_s)
                    pause_s = min(2 * pause_s, LOOK_MAX_S)
            return True
        finally:
            if queued:
                self._give_up(turn)

    def _give_up(self, turn: Turn) -> None:
        """Ends a wait. If it ends without the lock, the next one gets what this one was given."""
        with suppress(ValueError):
            self._waiting.remove(turn)
        if self._holder.get(None) is turn:
            self._reclaim(turn)
        elif not self._holder and self._waiting:
            self._wake()

    def _meet_own(self, holder: Holder) -> None:
        raise WithinItselfError(
            f"called from within itself, in {name_of(holder)}",
            hint="a signal handler must not use a store that its program uses; let it set a flag, "
            "or raise",
        )

    def _wake(self) -> None:
        """Wakes the first who waits; it is given the lock if it was passed by too often."""
        turn = next_turn(self._waiting)
        if turn is not None:
            if turn.is_due:
                self._holder.setdefault(None, turn)
            turn.wake()

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
