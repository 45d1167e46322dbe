"""`AsyncRun[T]`: what an asynchronous agent function sees of its run."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable as Awaits
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, overload

from perdure.core.arguments.checks import Seconds, iterable
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import cause_of, check_words
from perdure.engine.execution.async_call import cancels
from perdure.engine.execution.current_run import RunFrame, inside
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.handover import CancelledCall
from perdure.engine.execution.run_edits import OpenEdit
from perdure.engine.functions import run_moves
from perdure.engine.functions.any_run import AnyRun
from perdure.engine.functions.async_map import AsyncMap
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.children import ChildOptions, started_child
from perdure.engine.functions.compensations import undo_all_async
from perdure.engine.functions.decorators import recorded_as, with_self
from perdure.engine.functions.run import check_limit
from perdure.engine.journal.cancellations import Heard, alone, as_told, told_of
from perdure.engine.journal.effects import Effects
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import CallCancelled
from perdure.engine.journal.values import is_async
from perdure.engine.journal.waits import (
    Ask,
    Awaitable,
    Selected,
    Signal,
    Timer,
    Wait,
    check_signal,
    only,
    with_timeout,
)
from perdure.errors import SchemaError
from perdure.missing import MISSING
from perdure.model import Cause, Checkpoint
from perdure.state.commit_lookup import Where
from perdure.state.event_loop.delayed_cancel import Told
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
        recorded = recorded_as(function)
        execution = self._execution
        if execution.inside() in ("step", "tool") and recorded.kind == "step":
            result = function(*args, **kwargs)  # a step inside a step is plain
            return await result if is_async(function) else result
        call = recorded.call(execution, with_self(function, args), kwargs)
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
    ) -> Pending[Any]:
        """Asks a person; see `Run.ask`."""

        question = check_words(question, "a question")

        async def wait() -> Any:
            came = await self._wait("ask", with_timeout(Ask(question, schema, key), timeout))
            return only(came, f"an answer to {question!r}", default)

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
    ) -> AsyncChildStarter:
        """Sets options of runs to start; see `Run.options`."""
        return AsyncChildStarter(self._execution, ChildOptions(key, queue, let_live, initial))


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


class AsyncRunEdit(Generic[T]):
    """The context manager of `AsyncRun.edit`."""

    def __init__(self, execution: Execution[T], cause: Cause) -> None:
        self._execution = execution
        self._cause = cause
        self._open: OpenEdit
        self._told: Told | None = None
        """On replay: its task was cancelled, before it was its turn."""

    async def __aenter__(self) -> T:
        with self._execution.async_performer.stopping:
            try:
                return await self._enter()
            except asyncio.CancelledError as cancelled:
                error = alone(cancelled)
            raise error

    async def _enter(self) -> T:
        execution = self._execution
        performer = execution.async_performer
        name = f"edit:{self._cause.what}"
        scope = performer.check_place(name)
        entry = execution.find_edit(name, scope)
        while True:
            try:
                await performer.wait_for_turn(entry, scope, name, told=self._told)
                if entry is None:
                    await performer.let_calls_end()
                with performer.resting():  # only who has it, a task of the run, lets it go on
                    await performer.edit_lock.acquire()
                break
            except asyncio.CancelledError as cancelled:
                if entry is not None and not entry.unbegun and performer.goes_on:
                    self._is_told(cancelled)  # it was later: in the block, or behind it
                    continue
                ended_at = entry.seq if entry is not None else None
                execution.journal.take_values(scope.path, ended_at)
                if entry is not None:
                    await performer.cancelled_before_turn(entry, scope, name, cancelled)
                if execution.interrupted is None:
                    place, since = execution.new_place(name, scope), time.monotonic()
                    await performer.cancelled_first(CancelledCall(place, "edit", since), cancelled)
                raise
            except BaseException:
                if entry is not None:
                    execution.turns.release(entry)
                raise
        if entry is not None and entry.unbegun:
            performer.edit_lock.release()
            execution.journal.take_values(scope.path, entry.seq)
            await performer.cancelled_again(entry)
        try:
            self._open = execution.edits.open(name, scope, entry, self._cause)
        except BaseException:
            performer.edit_lock.release()
            raise
        self._since = time.monotonic()
        self._inside = inside(RunFrame(execution, "edit", scope))
        self._inside.__enter__()
        outcome = entry.outcome if entry is not None else None
        if self._told is not None and outcome is not None and outcome.cancelled:
            cancel_once_more(as_told(outcome, Told(self._told.first)))
            if not self._told.several:
                self._told = None
        return self._open.recording.draft  # type: ignore[no-any-return]

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._execution.async_performer.stopping:
            try:
                await self._exit(error)
                return
            except asyncio.CancelledError as cancelled:
                left = alone(cancelled)
            raise left

    def _is_cancelled_behind(self, recorded: Entry) -> bool:
        """Returns True if its task was cancelled while the failure of its block was being
        recorded."""
        cancelled, outcome = recorded.cancelled or self._told is not None, recorded.outcome
        failed = outcome is not None and outcome.error is not None
        return cancelled and failed and not (outcome and outcome.cancelled)

    def _is_told(self, cancelled: asyncio.CancelledError) -> Told:
        """Notes the cancellation of its task, on replay."""
        if self._told is None:
            self._told = Told(cancelled)
        self._told.again(cancelled)
        return self._told

    def _check_behind(self, recorded: Entry, cancelled: asyncio.CancelledError) -> None:
        """
        Raises:
            CancelledError: its task was cancelled in the block, and once more behind it.
        """
        if self._told is not None or recorded.told is not recorded.call:
            raise as_told(recorded.told, self._told or Told(cancelled))

    def _leave_recorded(self, recorded: Entry, cancelled: asyncio.CancelledError) -> None:
        """Leaves a recorded edit whose task was cancelled after the commit, before it heard of
        that."""
        execution = self._execution
        if recorded.call.error is None:
            execution.edits.close(self._open, self._cause, None)
        execution.turns.release(recorded)
        if not recorded.cancelled and execution.async_performer.goes_on:
            performer = execution.async_performer
            call = CancelledCall(recorded.place, "edit", self._since)
            performer.note_cancelled(call, cancelled)

    async def _exit(self, error: BaseException | None) -> None:
        self._inside.__exit__(None, None, None)
        execution = self._execution
        cancelled, heard = None, None
        if isinstance(error, asyncio.CancelledError) and execution.interrupted is None:
            # The task was, and not the run: another one may go on.
            cancelled, heard = error, Heard("edit", told_of(error, several=_often()))
            error = CallCancelled("its task was cancelled in the block", target=self._open.place)
        performer, recorded = execution.async_performer, self._open.recorded
        try:
            if recorded is not None and (error is None or self._is_cancelled_behind(recorded)):
                try:
                    await performer.hand_over(None, recorded.place, recorded.shows)
                    if self._told is not None:
                        raise self._told.error
                    if recorded.cancelled:
                        await performer.cancelled_again(recorded)
                except asyncio.CancelledError as latest:
                    self._leave_recorded(recorded, latest)
                    raise as_told(recorded.told, self._is_told(latest)) from None
            item = execution.edits.close(self._open, self._cause, error, heard)
            if recorded is not None and cancelled is not None:
                self._check_behind(recorded, cancelled)
            if recorded is not None or (error is not None and not isinstance(error, Exception)):
                return
            try:
                execution.check()
                await performer.hand_over(item, self._open.place, heard=heard)
            except SchemaError as refused:
                failed, again = execution.edits.refused(self._open, refused)
                await performer.hand_over(failed, self._open.place)
                if again is not refused:
                    raise again from refused
                raise
            except asyncio.CancelledError as unseen:  # it is in, and the function does not see that
                if execution.interrupted is not None:
                    raise execution.interrupted from None
                if heard is None:
                    call = CancelledCall(self._open.place, "edit", self._since)
                    performer.note_cancelled(call, unseen)
                raise
        finally:
            performer.edit_lock.release()


def _often() -> bool:
    """Returns True if this task was cancelled more than once."""
    return cancels(asyncio.current_task()) > 1


def cancel_once_more(cancelled: asyncio.CancelledError) -> None:
    """This task was cancelled, and that was kept from it: where it awaits something next, it is."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    task.cancel(*cancelled.args[:1])
