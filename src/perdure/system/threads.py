"""Threads that the library starts for itself, and the error if the system gives it none.

Ctrl-C comes on the main thread, between any two instructions, also between those by which Python
starts a thread: then the new thread waits for ever for a lock that they left, or they raise another
error, or the thread runs and its owner does not know. And Python's own start waits for the new
thread's first word, which one without memory never says. So a thread is started by another one,
where no signal is handled, which may wait for ever, and its owner notes it first.
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
"""The time that is waited for a thread to end; a hanging disk must not block its owner."""

BIRTH_MAX_S = 30.0
"""The maximum wait for a thread's first instruction. Without memory it may never come to it, and
Python's own start of a thread waits for ever."""

LOOK_S = 0.25
"""The interval at which a waiter for a thread checks whether it ended without an answer."""


def begin(thread: threading.Thread) -> threading.Thread:
    """Starts a thread. If Ctrl-C comes meanwhile, it is started all the same, soon.

    Raises:
        StoreUnavailable: the system gives this process no more of them, or it died at once.
    """
    try:
        _Start(thread).make()
    except RuntimeError as error:
        raise no_thread(error) from error
    return thread


class _Held:
    """Only a thread holds it: once it is gone, so is that. Without memory, one may die in its first
    instruction, and say nothing."""


class _Start:
    """The start of a thread by another one, which is made and known to live by single operations of
    the system: Ctrl-C is raised to the caller before or after them."""

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
        except KeyError as error:
            # Of Python's own bookkeeping: the exception in between was handled, and the thread is
            # there. What it came from is told here, as raising it elsewhere gives it another past.
            self._error = error.__context__ or error
        except BaseException as error:  # it is the caller's
            self._error = error
        finally:
            self._over.put(None)


class _Servant(Struct, eq=False):
    """A thread, and the flag that it sets as its last act."""

    thread: threading.Thread
    over: Flag

    @property
    def lives(self) -> bool:
        return not self.over.is_set() and self.thread.is_alive()


class Servants:
    """The threads that an owner has started to serve one thing, or may have started.

    There is one at a time, unless Ctrl-C came as it was started: then its owner may start another
    before it sees that the first lives. So a request to end must reach each of them: a flag that
    all of them check, or an item in their queue that each puts back for the next.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[_Servant] = []

    @property
    def any_begun(self) -> bool:
        """True if there may be one."""
        return bool(self._begun)

    @property
    def any_lives(self) -> bool:
        """True if one serves. One that is about to may be overlooked."""
        for one in self._begun:  # noqa: SIM110  (a generator costs more than all of it)
            if one.lives:
                return True
        return False

    def begin(self, target: Callable[..., object], *args: Any) -> None:
        """Starts one more.

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
        """Called by one of them that is about to end and serves no more."""
        here = threading.current_thread()
        self._begun = [one for one in self._begun if one.thread is not here]

    def join(self, timeout_s: float | None = JOIN_MAX_S) -> None:
        """Waits for all that live, except the calling one, after they were told to end; at most
        this long."""
        for one in self._begun:
            if not await_end(one.thread, one.over, timeout_s):
                return


def _serve(over: Flag, target: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        target(*args)
    finally:
        over.set()


def await_end(thread: threading.Thread, over: Flag, timeout_s: float | None = JOIN_MAX_S) -> bool:
    """Waits until a thread, if it is not the calling one, sets that flag as its last act, or ends
    without; at most this long. Returns True if it ended.

    After an interrupted `Thread.join` Python takes the thread for one that ended (its issue 90882):
    a second wait would return while it runs.
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
    """Returns the error for a thread that did not start."""
    if type(error) is not RuntimeError:
        return error  # e.g. no stack is left
    return StoreUnavailable(
        f"no thread could be started ({error})",
        hint="this process, or this user, has too many threads: end some, or raise the limit "
        "(`ulimit -u`)",
    )
