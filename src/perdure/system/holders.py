"""Holders: a call, by its frame, or a `with` block; and whether they have ended.

A signal's exception may come between any two instructions, also where a block ends: before the
first one of `__exit__`, say, so that no code of ours ever hears of the end. The frame of a call
shows that the call has ended. It does not show the end of a block whose function goes on: a loop
that catches Ctrl-C, a cell of a notebook. So the block's context manager gives the interpreter an
`__exit__` that nobody else has. The interpreter keeps it exactly as long as the block is open.
"""

from __future__ import annotations

import inspect
import opcode
import os
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial, update_wrapper
from itertools import accumulate, chain, repeat, starmap, takewhile
from sys import _getframe
from types import FrameType
from typing import Any

from msgspec import Struct

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


Holder = FrameType | Span


def is_over(holder: Holder) -> bool:
    """Returns True if a call, or a block, has provably ended: it cannot do anything any more.

    Always False for a generator's or coroutine's call: asking would close it.
    """
    if isinstance(holder, Span):
        return holder.is_over
    frame = holder
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
    return holder.frame if isinstance(holder, Span) else holder
