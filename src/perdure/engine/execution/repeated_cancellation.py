"""Repeated cancellation: a scope of anyio's cancels its tasks in each round of the loop, until they
have left it.

A task of a run may have to wait until it hears of the cancellation in its place. While everything
that such a scope would cancel again waits so, its callbacks do not count as work of the function.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.state.event_loop.delayed_cancel import Deaf

NAME = "_deliver_cancellation"
"""The name of the callback that it schedules."""


def in_vain(callback: Any) -> bool:
    """Returns True if a callback of a loop's is that of such a scope, and no task hears it."""
    scope = getattr(callback, "__self__", None)
    if scope is None or getattr(callback, "__name__", "") != NAME:
        return False
    try:
        return _nobody_hears(scope)
    except AttributeError:  # it is made in another way now
        return False


def _nobody_hears(scope: Any) -> bool:
    inner = [one for one in scope._child_scopes if not one.shield and not one.cancel_called]
    return all(map(_hears_later, scope._tasks)) and all(map(_nobody_hears, inner))


def _hears_later(future: Any) -> bool:
    """Returns True if cancelling this future (a task, or what one waits for) wakes no code."""
    if isinstance(future, Deaf):
        return future.is_deaf
    if future is None or future.done():
        return future is not None
    if isinstance(future, asyncio.Task):
        return _hears_later(getattr(future, "_fut_waiter", None))
    parts = getattr(future, "_children", ())  # of `gather`, which cancels each
    return bool(parts) and all(map(_hears_later, parts))
