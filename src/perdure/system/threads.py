"""Threads that the library makes for itself, and what it says where the system gives it none.

Ctrl-C comes on the main thread, between any two instructions, and Python starts a thread by some
that are its own: where they are interrupted, the new thread waits for ever for a lock that they
left, or they raise another error, or the thread runs and its maker does not know. So a thread is
started where no signal is heeded, and whoever keeps it notes it first.
"""

from __future__ import annotations

import _thread
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct

from perdure.errors import StoreUnavailable
from perdure.system.flag import Flag

JOIN_MAX_S = 60.0
"""How long is waited for a thread that is to end; a disk that hangs must not hang its owner."""

BIRTH_MAX_S = 30.0
"""How long is waited for a thread's first instruction. Without memory it may never come to it, and
Python's own start of a thread waits for ever."""

LOOK_S = 0.25
"""How often one who waits for a thread looks whether it ended without a word."""


def begin(thread: threading.Thread) -> threading.Thread:
    """Start a thread. Where Ctrl-C comes meanwhile, it is started all the same, soon.

    Raises:
        StoreUnavailable: the system gives this process no more of them.
    """
    try:
        if threading.get_ident() == threading.main_thread().ident:
            _Start(thread).make()
        else:
            thread.start()
    except RuntimeError as error:
        raise no_thread(error) from error
    except KeyError as error:
        # Of Python's own books, where what came in between is seen to, and the thread is there.
        if error.__context__ is None:
            raise
        raise error.__context__ from None
    return thread


class _Held:
    """Only a thread holds it: once it is gone, so is that. Without memory, one may die in its first
    instruction, and say nothing."""


class _Start:
    """The start of a thread by another one, which is made and known to live by single operations
    of the system's: Ctrl-C is raised to the caller before or behind them."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._over: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None

    def make(self) -> None:
        held = _Held()
        lives = weakref.ref(held)
        _thread.start_new_thread(self._make_there, (held,))
        del held
        give_up_at = time.monotonic() + BIRTH_MAX_S
        while True:
            gone = lives() is None  # asked before the word is looked for: it comes first
            if self._is_over() or (gone and self._thread.is_alive()):
                break
            if gone or (time.monotonic() > give_up_at and self._thread.ident is None):
                raise RuntimeError("it gave no sign of life: this process may be out of memory")
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # or the error would hold itself

    def _is_over(self) -> bool:
        try:
            self._over.get(timeout=LOOK_S)
        except Empty:
            return False
        return True

    def _make_there(self, held: _Held) -> None:
        try:
            self._thread.start()
        except BaseException as error:  # it is the caller's
            self._error = error
        finally:
            self._over.put(None)


class _Servant(Struct, eq=False):
    """A thread, and the mark that it sets as its last act."""

    thread: threading.Thread
    over: Flag

    @property
    def lives(self) -> bool:
        return not self.over.is_set() and self.thread.is_alive()


class Servants:
    """The threads that an owner has begun to serve one thing, or may have begun.

    There is one at a time, unless Ctrl-C came as it was begun: then its owner may make another
    before it sees that the first lives. So what tells one to end must reach each of them: a mark
    that all of them look at, or a word in their queue that each puts back for the next.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[_Servant] = []

    @property
    def any_begun(self) -> bool:
        """Whether there may be one."""
        return bool(self._begun)

    @property
    def any_lives(self) -> bool:
        """Whether one serves. One that is about to may be overlooked."""
        for one in self._begun:  # noqa: SIM110  (a generator costs more than all of it)
            if one.lives:
                return True
        return False

    def begin(self, target: Callable[..., object], *args: Any) -> None:
        """Have one more serve.

        Raises:
            StoreUnavailable: the system gives no thread.
        """
        over = Flag()
        thread = threading.Thread(
            target=_serve, args=(over, target, args), name=self._name, daemon=True
        )
        self._begun = [*(one for one in self._begun if one.lives), _Servant(thread, over)]
        begin(thread)

    def leave(self) -> None:
        """By one of them: it is about to end, and serves no more."""
        here = threading.current_thread()
        self._begun = [one for one in self._begun if one.thread is not here]

    def join(self, timeout_s: float | None = JOIN_MAX_S) -> None:
        """Wait for all that live, but for the calling one, once they were told to end; not for
        longer than that."""
        for one in self._begun:
            if not await_end(one.thread, one.over, timeout_s):
                return


def _serve(over: Flag, target: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        target(*args)
    finally:
        over.set()


def await_end(thread: threading.Thread, over: Flag, timeout_s: float | None = JOIN_MAX_S) -> bool:
    """Wait until a thread, if it is not the calling one, sets that mark as its last act, or has
    ended without; not for longer than that. Whether it did.

    A `Thread.join` that is interrupted has Python take the thread for one that ended (its issue
    90882): who waits again would go on beside it.
    """
    if thread is threading.current_thread():
        return True
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while not over.is_set() and thread.is_alive():
        left_s = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
        if left_s <= 0:
            return False
        over.wait(left_s)
    return True


def no_thread(error: RuntimeError) -> Exception:
    """What to raise for a thread that did not start."""
    if type(error) is not RuntimeError:
        return error  # e.g. no stack is left
    return StoreUnavailable(
        f"no thread could be started ({error})",
        hint="this process, or this user, has too many: end some, or raise the limit (`ulimit -u`)",
    )
