"""Opening and closing what an opener makes, in each of the forms that Python has for that."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Any

from msgspec import Struct

from perdure.core.types.nodes import isolate
from perdure.core.values.plain_values import Plain, take


class Ticket:
    """Given to an opener that has a parameter: what it kept when its resource was opened before,
    and a way to keep something for the next time."""

    def __init__(self, value: Plain) -> None:
        self._value = value
        self._kept: list[Plain] = []
        self._later: Callable[[Plain], None] | None = None

    @property
    def value(self) -> Any:
        """The data that was kept last, by whatever process opened the resource for this run; None
        the first time."""
        return isolate(self._value)

    def keep(self, value: Any) -> None:
        """Keeps plain data, such as the id of a session, for opening the resource again. What is
        kept before the opener hands out the resource is durable before that is used; later words
        come with the run's next commit.

        Raises:
            Unstorable: it is no plain data.
        """
        self._value = take(value, root="ticket")
        if self._later is None:
            self._kept.append(self._value)
        else:
            self._later(self._value)

    def settle(self, later: Callable[[Plain], None]) -> list[Plain]:
        """Returns what was kept so far; `later` is told of the rest."""
        self._later = later
        return self._kept


class Opener(Struct, frozen=True, eq=False):
    """The function that opens a resource, which may take a `Ticket`, and what goes with it."""

    name: str
    function: Callable[..., Any]
    check: Callable[[Any], Any] | None
    is_async: bool
    takes_ticket: bool

    def is_same(self, other: Opener) -> bool:
        """Returns True if both open the same: a function inside an agent function is made anew by
        each call of that."""
        mine, its = (getattr(one.function, "__code__", one.function) for one in (self, other))
        return self is other or mine is its


def is_async_opener(opener: Callable[..., Any]) -> bool:
    """Returns True if an opener works in an event loop only, as far as its kind tells."""
    kind = inspect.unwrap(_inner(opener))
    return inspect.isasyncgenfunction(kind) or inspect.iscoroutinefunction(kind)


def takes_ticket(opener: Callable[..., Any]) -> bool:
    """Returns True if an opener is called with a `Ticket`.

    Raises:
        TypeError: it needs more than that.
    """
    try:
        parameters = list(inspect.signature(opener).parameters.values())
    except ValueError:  # builtins without a signature
        return False
    needed = [one for one in parameters if one.default is one.empty and one.kind <= 1]
    others = [one for one in parameters if one.default is one.empty and one.kind == 3]
    if len(needed) > 1 or others:
        names = ", ".join(one.name for one in [*needed, *others])
        raise TypeError(
            f"an opener is called with a perdure.Ticket, or nothing, and this one needs {names}: "
            "give it what it needs by functools.partial, a closure, or perdure.lifespan()"
        )
    return bool(needed)


def opened(opener: Callable[[], Any]) -> tuple[Any, Callable[[], object]]:
    """Opens something; returns it, and what closes it."""
    made = contextmanager(opener)() if inspect.isgeneratorfunction(_inner(opener)) else opener()
    if callable(close := getattr(made, "close", None)):
        return made, close
    if isinstance(made, AbstractContextManager):
        return made.__enter__(), lambda: made.__exit__(None, None, None)
    if isinstance(made, AbstractAsyncContextManager) or hasattr(made, "aclose"):
        raise TypeError(
            f"a {type(made).__qualname__} is opened and closed in an event loop: make its opener "
            "`async def`, and get it by `await ….get()`"
        )
    return made, lambda: None


async def opened_async(opener: Callable[[], Any]) -> tuple[Any, Callable[[], Any]]:
    """Opens something in a coroutine; what closes it may return an awaitable, and is to be called
    in the same task."""
    inner = _inner(opener)
    if inspect.isasyncgenfunction(inner):
        made: Any = asynccontextmanager(opener)()
    elif inspect.isgeneratorfunction(inner):
        made = contextmanager(opener)()
    else:
        made = opener()
        if inspect.isawaitable(made) and not isinstance(made, AbstractAsyncContextManager):
            made = await made
    for name in ("aclose", "close"):
        if callable(close := getattr(made, name, None)):
            return made, close
    if isinstance(made, AbstractAsyncContextManager):
        return await made.__aenter__(), lambda: made.__aexit__(None, None, None)
    if isinstance(made, AbstractContextManager):
        return made.__enter__(), lambda: made.__exit__(None, None, None)
    return made, lambda: None


def _inner(opener: Callable[..., Any]) -> Callable[..., Any]:
    return opener.func if isinstance(opener, partial) else opener
