"""`@resource`: sessions, clients and handles that a run's steps and tools use, and that no log can
keep."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload

from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import check_name
from perdure.engine.execution.current_run import current
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.openings import (
    Opener,
    Ticket,
    is_async_opener,
    opened,
    opened_async,
    takes_ticket,
)
from perdure.engine.journal.values import label
from perdure.errors import OutsideRun, PerdureError

T = TypeVar("T")

_outside: ContextVar[tuple[tuple[Opener, Any], ...]] = ContextVar("perdure_resources", default=())
"""Those that `open` opened outside of runs, around this code."""


class AnyResource(Generic[T]):
    """The common part of `Resource` and `AsyncResource`."""

    __perdure_resource__ = True

    def __init__(self, opener: Opener, run: Execution[Any] | None = None) -> None:
        self._opener = opener
        self._run = run
        self.__doc__ = getattr(opener.function, "__doc__", None)

    @property
    def name(self) -> str:
        """Its name in the run's log; see `resource`."""
        return self._opener.name

    @property
    def __perdure_key__(self) -> str:
        """As an argument of steps and tools it is known by its name."""
        return self.name

    def _bound(self, run: Execution[Any]) -> Any:
        return type(self)(self._opener, run)

    def _place(self) -> Execution[Any] | None:
        """Returns the run that has it open, or opens it; None outside of runs.

        Raises:
            PerdureError: in the agent function itself.
        """
        frame = current()
        run = self._run or (frame.run if frame is not None else None)
        if run is None:
            return None
        if frame is not None and frame.inside not in ("step", "tool"):
            where = "an open edit" if frame.inside == "edit" else "the agent function itself"
            raise PerdureError(
                f"resource {self.name!r} is used in {where}, which a resumed run calls again",
                target=f"run {run.id}",
                hint=f"get it where it is used: `{self.name}.get()` in the body of a step or tool",
            )
        return cast(Execution[Any], run)

    def _outside(self) -> Any:
        """Returns it as `open` opened it, outside of runs."""
        for opener, value in reversed(_outside.get()):
            if opener.is_same(self._opener):
                return value
        raise OutsideRun(
            f"resource {self.name!r} is used outside of a run",
            hint=f"`with {self.name}.open():` (or `async with`) opens it around plain calls",
        )

    def _call(self) -> Callable[[], Any]:
        function = self._opener.function
        return partial(function, Ticket(None)) if self._opener.takes_ticket else function


class Resource(AnyResource[T]):
    """Something that steps and tools of a run use and that no log can keep; from `resource`."""

    def get(self) -> T:
        """Returns it, open: in the body of a step or tool, also of a probe.

        The first use in a run opens it, also after the run was resumed. After the run has waited
        its `check` is asked first.

        Raises:
            PerdureError: in the agent function itself, in an edit, or behind the function's end.
            OutsideRun: outside of runs, but for the block of `open`.
            Exception: its opener's own.
        """
        place = self._place()
        if place is None:
            return self._outside()  # type: ignore[no-any-return]
        return place.resources.get(self._opener)  # type: ignore[no-any-return]

    @contextmanager
    def open(self) -> Iterator[T]:
        """Context manager that opens it outside of runs, for tests and scripts; steps and tools
        that are called as plain functions in the block get it. It keeps no ticket."""
        value, close = opened(self._call())
        before = _outside.set((*_outside.get(), (self._opener, value)))
        try:
            yield value
        finally:
            _outside.reset(before)
            close()


class AsyncResource(AnyResource[T]):
    """The same for coroutines."""

    async def get(self) -> T:
        """Returns it, open; see `Resource.get`."""
        place = self._place()
        if place is None:
            return self._outside()  # type: ignore[no-any-return]
        return await place.loop_resources.get(self._opener)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[T]:
        """Async context manager that opens it outside of runs; see `Resource.open`."""
        value, close = await opened_async(self._call())
        before = _outside.set((*_outside.get(), (self._opener, value)))
        try:
            yield value
        finally:
            _outside.reset(before)
            closing = close()
            if inspect.isawaitable(closing):
                await closing


class ResourceDecorator:
    """The result of `resource` with options: a decorator of openers of either kind."""

    def __init__(self, check: Callable[[Any], Any] | None, name: str | None) -> None:
        self._options = check, name

    @overload
    def __call__(self, opener: Callable[..., AsyncIterator[T]], /) -> AsyncResource[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, opener: Callable[..., AbstractAsyncContextManager[T]], /
    ) -> AsyncResource[T]: ...
    @overload
    def __call__(self, opener: Callable[..., Awaitable[T]], /) -> AsyncResource[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, opener: Callable[..., Iterator[T]], /) -> Resource[T]: ...
    @overload
    def __call__(self, opener: Callable[..., AbstractContextManager[T]], /) -> Resource[T]: ...
    @overload
    def __call__(self, opener: Callable[..., T], /) -> Resource[T]: ...
    def __call__(self, opener: Any, /) -> Any:
        return _made(opener, *self._options)


@overload
def resource(opener: Callable[..., AsyncIterator[T]], /) -> AsyncResource[T]: ...  # type: ignore[overload-overlap]
@overload
def resource(opener: Callable[..., AbstractAsyncContextManager[T]], /) -> AsyncResource[T]: ...  # type: ignore[overload-overlap]
@overload
def resource(opener: Callable[..., Awaitable[T]], /) -> AsyncResource[T]: ...  # type: ignore[overload-overlap]
@overload
def resource(opener: Callable[..., Iterator[T]], /) -> Resource[T]: ...
@overload
def resource(opener: Callable[..., AbstractContextManager[T]], /) -> Resource[T]: ...
@overload
def resource(opener: Callable[..., T], /) -> Resource[T]: ...
@overload
def resource(
    *, check: Callable[[Any], Any] | None = None, name: str | None = None
) -> ResourceDecorator: ...
def resource(
    opener: Any = None,
    /,
    *,
    check: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Makes an opener a resource: a session, client or handle that steps and tools get by
    ``browser.get()``, and that is closed when its run waits unloaded, ends, is cancelled, or is
    left as its worker drains. A resumed run opens it again where it is used, and not before.

    Args:
        opener: a generator function with one ``yield``; or a function that returns something with
            a method ``close`` (or ``aclose``), a context manager, or anything else. ``async``
            ones, too. If it has a parameter, it gets a `Ticket`, for what it takes to open the
            same again.
        check: called with the open resource after the run has waited, or the resource was not used
            for a minute. If it raises or returns False, the resource is closed, and opened again.
        name: its name in the log, under which the ticket is kept; default: the opener's own.

    Raises:
        TypeError: the opener cannot be called, or needs other arguments.
    """
    if opener is None:
        if check is not None:
            check_function(check, "check=")
        return ResourceDecorator(check, None if name is None else check_name(name, "a resource"))
    return _made(opener, check, name)


def _made(opener: Any, check: Callable[[Any], Any] | None, name: str | None) -> Any:
    check_function(opener, "an opener")
    if check is not None:
        check_function(check, "check=")
    named = check_name(label(opener) if name is None else name, "a resource")
    is_async = is_async_opener(opener)
    made = Opener(named, opener, check, is_async, takes_ticket(opener))
    return (AsyncResource if is_async else Resource)(made)


def of_run(
    run: Execution[Any], opener: Any, check: Callable[[Any], Any] | None, name: str | None
) -> Any:
    """Returns a resource of this run; see `AnyRun.resource`."""
    if isinstance(opener, AnyResource):
        if check is not None or name is not None:
            raise TypeError("check= and name= are given where the resource is made")
        return opener._bound(run)
    return _made(opener, check, name)._bound(run)
