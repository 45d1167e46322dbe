"""`AsyncRun[T]`: what an asynchronous agent function sees of its run."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable as Awaits
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, overload

from perdure.core.arguments.checks import Seconds, iterable
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import cause_of
from perdure.engine.execution.execution import Execution
from perdure.engine.functions import run_moves
from perdure.engine.functions.any_callable import recorded_as, unbound
from perdure.engine.functions.any_run import AnyRun
from perdure.engine.functions.async_map import AsyncMap
from perdure.engine.functions.async_run_edit import AsyncRunEdit
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.children import ChildOptions, started_child
from perdure.engine.functions.compensations import undo_all_async
from perdure.engine.functions.run import check_limit
from perdure.engine.journal.effects import Effects
from perdure.engine.journal.values import is_async
from perdure.engine.journal.waits import (
    Ask,
    Awaitable,
    Selected,
    Signal,
    Timer,
    Wait,
    asking,
    check_signal,
    only,
    with_timeout,
)
from perdure.missing import MISSING
from perdure.model import Checkpoint
from perdure.state.commit_lookup import Where
from perdure.state.time_travel import BranchMove
from perdure.visible import visible

T = TypeVar("T")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item
P = ParamSpec("P")


class Pending(Coroutine[Any, Any, R]):
    """An awaitable without a truth value: ``if run.ask(…):`` without the ``await`` would take every
    question for answered with yes."""

    def __init__(self, what: str, make: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._what = what
        self._make = make
        self._made: Coroutine[Any, Any, R] | None = None

    def __del__(self) -> None:
        if getattr(self, "_made", self) is None:  # else it is awaited, or was never made
            said = visible(f"{self._what} was never awaited")
            warnings.warn(said, RuntimeWarning, stacklevel=2)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self._what} must be awaited before its result can be looked at")

    def _coroutine(self) -> Coroutine[Any, Any, R]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __await__(self) -> Generator[Any, Any, R]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine().throw(*error)

    def close(self) -> None:
        self._coroutine().close()


class AsyncRun(AnyRun[T]):
    """One execution of an asynchronous agent function. Made by `AsyncStore.run`, passed to it.

    Everything that is the same as in `Run` is described there.
    """

    # -- calls -----------------------------------------------------------------------------

    @overload
    def call(
        self, function: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any
    ) -> Pending[R]: ...
    @overload
    def call(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Pending[R]: ...

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Calls any callable, and records it as a step; a step or tool is recorded as such. A
        synchronous one is called on a thread, and does not block the event loop."""
        return Pending("run.call(…)", lambda: self._call(function, args, kwargs))

    async def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        called, given, named = unbound(function, args, kwargs)
        recorded = recorded_as(called)
        execution = self._execution
        if execution.inside() in ("step", "tool") and recorded.kind == "step":
            result = function(*args, **kwargs)  # a step inside a step is plain
            return await result if is_async(function) else result
        call = recorded.call(execution, given, named)
        return await execution.async_performer.make(call)

    def edit(
        self,
        what: str = "",
        *,
        key: str | None = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        trace: str | None = None,
    ) -> AsyncRunEdit[T]:
        """``async with run.edit("why") as draft``: like `Agent.edit`, recorded at its place in the
        run. Edits of several tasks happen one after the other."""
        cause = cause_of("edit", what, key, tags, group=group, trace=trace)
        return AsyncRunEdit(self._execution, cause)

    # -- going back ------------------------------------------------------------------------

    def checkpoint(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> Pending[Checkpoint]:
        """Names the state as a recovery point; see `Run.checkpoint`."""
        effects = run_moves.checkpoint(self._execution, name, config, dependencies)
        return self._moved("run.checkpoint(…)", effects)

    def undo(self) -> Pending[BranchMove]:
        """Takes back the latest commit that changed the state; see `Run.undo`."""
        return self._moved("run.undo()", run_moves.back(self._execution, "undo"))

    def redo(self) -> Pending[BranchMove]:
        """Takes back the latest undo; see `Run.redo`."""
        return self._moved("run.redo()", run_moves.back(self._execution, "redo"))

    def rollback(self, to: Where | Checkpoint) -> Pending[BranchMove]:
        """Makes the state that of an earlier commit; see `Run.rollback`."""
        return self._moved("run.rollback(…)", run_moves.rollback(self._execution, to))

    def _moved(self, what: str, effects: Effects) -> Pending[Any]:
        return Pending(what, lambda: self._execution.async_performer.call(effects))

    def compensate(self) -> Pending[list[str]]:
        """Undoes what the tool calls of this turn did; see `Run.compensate`."""
        return Pending("run.compensate()", lambda: undo_all_async(self._execution))

    # -- several at once -------------------------------------------------------------------

    def map(
        self, function: Callable[[I], Awaits[R] | R], items: Iterable[I], *, limit: int = 8
    ) -> Pending[list[R]]:
        """Calls a function for each item, up to `limit` at a time, as a part of this run.

        Returns:
            The results, in the order of the items.

        Raises:
            The first error in the order of the items. All are called, even if some fail; for
            siblings that end with the first that fails, use a TaskGroup. ValueError: the limit is
            below 1.
        """
        limit = check_limit(limit)
        check_function(function, "function, what is called for each item,")
        items = list(iterable(items, "items"))  # before any of them is called
        return Pending(
            "run.map(…)", lambda: AsyncMap(self._execution, self._call, function).over(items, limit)
        )

    # -- waiting ---------------------------------------------------------------------------

    def sleep(self, duration: Seconds) -> Pending[None]:
        """Waits for a duration; see `Run.sleep`."""
        return Pending("run.sleep(…)", lambda: self._sleep(duration))

    async def _sleep(self, duration: Seconds) -> None:
        await self._wait("sleep", {"timeout": Timer(duration)})

    def wait_for(
        self,
        signal: str,
        *,
        schema: Any = None,
        timeout: Seconds | None = None,
        default: Any = MISSING,
    ) -> Pending[Any]:
        """Waits for a signal; see `Run.wait_for`."""

        signal = check_signal(signal)

        async def wait() -> Any:
            waits = with_timeout(Signal(signal, schema), timeout)
            came = await self._wait(f"wait_for:{signal}", waits)
            return only(came, f"signal {signal!r}", default)

        return Pending("run.wait_for(…)", wait)

    def ask(
        self,
        question: str,
        *,
        schema: Any = bool,
        timeout: Seconds | None = None,
        default: Any = MISSING,
        key: str | None = None,
        data: Any = None,
        expires: Seconds | datetime | None = None,
    ) -> Pending[Any]:
        """Asks a person; see `Run.ask`."""
        waits = asking(Ask(question, schema, key, data, expires), timeout)

        async def wait() -> Any:
            return only(await self._wait("ask", waits), f"an answer to {question!r}", default)

        return Pending("run.ask(…)", wait)

    def select(self, **waits: Awaitable | AsyncChild[Any]) -> Pending[Selected]:
        """Waits for the first of several events; see `Run.select`."""
        return Pending("run.select(…)", lambda: self._wait("select", waits))

    async def _wait(self, name: str, waits: Mapping[str, Any]) -> Selected:
        ends = {k: w.end if isinstance(w, AsyncChild) else w for k, w in waits.items()}
        effects = Wait(self._execution.id, name, ends).effects()
        return await self._execution.async_performer.call(effects)  # type: ignore[no-any-return]

    # -- other runs ------------------------------------------------------------------------

    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pending[AsyncChild[R]]:
        """Starts another run; see `Run.start`."""
        return self.options().start(function, agent, *args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        queue: str = "default",
        let_live: bool = False,
        initial: Any = MISSING,
        deadline: Seconds | None = None,
        time_limit: Seconds | None = None,
    ) -> AsyncChildStarter:
        """Sets options of runs to start; see `Run.options`."""
        options = ChildOptions(key, queue, let_live, initial, deadline, time_limit)
        return AsyncChildStarter(self._execution, options)


class AsyncChild(Child[R]):
    """A run that this run started. Something to `select` on, too."""

    def result(  # type: ignore[override]
        self,
        *,
        timeout: Seconds | None = None,
        default: Any = MISSING,
        cancel: bool = True,
    ) -> Pending[R]:
        """Waits for the child's end; see `Child.result`."""

        async def wait() -> R:
            performer = self._execution.async_performer
            return self.ended(await performer.call(self.waiting(timeout, cancel)), default)

        return Pending("child.result(…)", wait)

    def cancel(self, why: str = "") -> Pending[bool]:  # type: ignore[override]
        """Asks the child to end; see `Child.cancel`."""
        return Pending(
            "child.cancel(…)", lambda: self._execution.async_performer.call(self.cancelling(why))
        )

    def signal(  # type: ignore[override]
        self, name: str, value: Any = None, *, key: str | None = None
    ) -> Pending[None]:
        """Sends the child a signal; see `Child.signal`."""

        async def send() -> None:
            await self._execution.async_performer.call(self.signalling(name, value, key))

        return Pending("child.signal(…)", send)


class AsyncChildStarter:
    """Starts runs from a run; from `AsyncRun.options`."""

    def __init__(self, execution: Execution[Any], options: ChildOptions) -> None:
        self._execution = execution
        self._options = options

    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pending[AsyncChild[R]]:
        """Starts another run; see `Run.start`."""
        execution = self._execution

        async def start() -> AsyncChild[R]:
            effects = started_child(execution, function, agent, args, kwargs, self._options)
            return AsyncChild(execution, await execution.async_performer.call(effects), function)

        return Pending("run.start(…)", start)
