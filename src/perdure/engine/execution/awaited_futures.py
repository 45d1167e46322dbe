"""The futures that a suspended task waits for, as far as asyncio shows them.

A task that waits for others of its run goes on only when they do. Other things that it may wait for
(a queue, an event, a lock) may be released by anybody, and are not considered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Futures = Iterable["asyncio.Future[Any]"]


def joined(task: asyncio.Task[Any]) -> Futures | None:
    """Futures of which a task waits for some, or all, to end; None: it waits for something else."""
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return None
    if isinstance(waiter, asyncio.Task):
        return (waiter,)
    parts = parts_of(waiter)
    return parts if parts is not None else _awaited_in(task.get_coro())


def parts_of(future: asyncio.Future[Any]) -> Futures | None:
    """Returns the futures that a future made by `gather` or `shield` stands for; None for another
    future."""
    children = getattr(future, "_children", None)
    if children is not None:
        return children  # type: ignore[no-any-return]
    for callback, _ in getattr(future, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            named = zip(callback.__code__.co_freevars, callback.__closure__, strict=True)
            return [cell.cell_contents for name, cell in named if name == "inner"]
    return None


def consumed(task: asyncio.Future[Any]) -> None:
    """Consumes the result of a task that nobody awaits."""
    if not task.cancelled():
        task.exception()


_AWAITED: Mapping[str, Callable[[Mapping[str, Any]], Futures]] = {
    "TaskGroup.__aexit__": lambda found: getattr(found["self"], "_tasks", ()),
    "_wait": lambda found: found["fs"],
    "_cancel_and_wait": lambda found: (found["fut"],),  # of `wait_for`, before Python 3.12
}
"""By the coroutine function in which a task is suspended, and by its local names."""


def _awaited_in(coroutine: Any) -> Futures | None:
    innermost = None
    while coroutine is not None and hasattr(coroutine, "cr_code"):
        innermost = coroutine
        coroutine = coroutine.cr_await
    if innermost is None or innermost.cr_frame is None:
        return None
    code = innermost.cr_code
    if code.co_qualname.startswith("_") and code.co_filename != asyncio.tasks.__file__:
        return None  # a function of somebody else's that has that name
    found = _AWAITED.get(code.co_qualname)
    return found(innermost.cr_frame.f_locals) if found is not None else None
