"""Room on the stack: whether a value can be processed must not depend on its caller's depth.

A caller may have used up nearly all of Python's stack. The stored data is sound nonetheless, and a
`RecursionError` that comes from the caller's depth says nothing about it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from perdure.errors import StoreUnavailable
from perdure.system.threads import begin

P = ParamSpec("P")
R = TypeVar("R")

SHALLOW = 200
"""Frames. Who fails above so few fails for what he goes through, not for his callers."""


class _Afresh(threading.Thread):
    """A thread that makes one call with a whole stack."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._do = do

    def run(self) -> None:
        self._do()


def afresh(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls a function that failed with a `RecursionError` again, on a stack of its own. For
    functions that may be called twice.

    Raises:
        RecursionError: it needs more than a whole stack; or the caller has no room for the call.
    """
    if isinstance(threading.current_thread(), _Afresh):
        raise RecursionError("nested deeper than a whole stack")
    returned: list[R] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            returned.append(fn(*args, **kwargs))
        except BaseException as error:
            raised.append(error)

    try:
        thread = _Afresh(do)
        begin(thread)
    except (RuntimeError, StoreUnavailable) as error:  # no thread can be had: it stays what it was
        raise RecursionError(str(error)) from error
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]


def pass_on(error: BaseException) -> None:
    """Raises the error if it is a `RecursionError` that probably comes from the callers' depth, not
    from the value: a sound log must not pass for a damaged one."""
    if not isinstance(error, RecursionError):
        return
    frame = sys._getframe()
    for _ in range(SHALLOW):
        if frame.f_back is None:
            return
        frame = frame.f_back
    raise error
