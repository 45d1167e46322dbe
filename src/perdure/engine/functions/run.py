"""`Run[T]`: the interface of a run to its synchronous agent function."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from datetime import datetime
from threading import get_ident
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from perdure.core.arguments.checks import Seconds, count, iterable
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import cause_of
from perdure.engine.execution.activity import Crew
from perdure.engine.execution.call_limits import Lending
from perdure.engine.execution.current_run import enter_scope
from perdure.engine.execution.execution import Execution
from perdure.engine.functions import run_moves
from perdure.engine.functions.any_callable import recorded_as, unbound
from perdure.engine.functions.any_run import AnyRun
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.child_starter import ChildStarter
from perdure.engine.functions.children import ChildOptions
from perdure.engine.functions.compensations import undo_all
from perdure.engine.functions.run_edit import RunEdit
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.values import is_async, label
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
from perdure.system.late_imports import loading
from perdure.system.locks import LOOK_MAX_S
from perdure.system.thread_pool import ThreadPool
from perdure.system.user_errors import of_code

if TYPE_CHECKING:
    from perdure.engine.execution.thread_futures import RunFuture

T = TypeVar("T")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item
P = ParamSpec("P")


class Run(AnyRun[T]):
    """One execution of an agent function. Made by `Store.run`, passed to the function."""

    # -- calls -----------------------------------------------------------------------------

    def call(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Calls any callable, and records it as a step; a step or tool is recorded as such."""
        check_function(function, "function, what is called,")
        called, given, named = unbound(function, args, kwargs)
        recorded = recorded_as(called)
        _refuse_async(recorded.function)
        execution = self._execution
        if execution.inside() in ("step", "tool") and recorded.kind == "step":
            return function(*args, **kwargs)  # a step inside a step is plain
        call = recorded.call(execution, given, named)
        return execution.performer.make(call)  # type: ignore[no-any-return]

    def edit(
        self,
        what: str = "",
        *,
        key: str | None = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        trace: str | None = None,
    ) -> RunEdit[T]:
        """Edits the state like `Agent.edit`, recorded at its place in the run.

        On replay its body runs on a throwaway draft, and the recorded result counts.

        Args:
            key: an idempotency key, for what several runs may be asked to do. Used before with the
                same `what`, the block runs on a throwaway draft and the state stays as it is; used
                for something else, the run needs attention.
            group: commits that share it are undone together.
            trace: default: that of the run.
        """
        cause = cause_of("edit", what, key, tags, group=group, trace=trace)
        return RunEdit(self._execution, cause)

    # -- going back ------------------------------------------------------------------------

    def checkpoint(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> Checkpoint:
        """Names the state as a recovery point, like `Agent.checkpoint`, at this place of the run.

        Returns:
            The checkpoint. Where its name is taken (by the loop's last round, or before the run was
            set back), it is the next free one: ``before refund#2``.

        Raises:
            NotFound: a distribution is not installed. SchemaError: the state does not fit.
            ValueError: the name is invalid, or reads as a commit's number or a moment.
        """
        effects = run_moves.checkpoint(self._execution, name, config, dependencies)
        return self._execution.performer.call(effects)  # type: ignore[no-any-return]

    def undo(self) -> BranchMove:
        """Takes back the latest commit (or group) that changed the state, like `Agent.undo`: of
        this run, or of whoever wrote before it. Calls, signals and answers stay as they were.

        Raises:
            NotFound, Conflict, SchemaError: as `Agent.undo`; on replay, too.
        """
        return self._execution.performer.call(run_moves.back(self._execution, "undo"))  # type: ignore[no-any-return]

    def redo(self) -> BranchMove:
        """Takes back the latest undo. Raises as `undo` does."""
        return self._execution.performer.call(run_moves.back(self._execution, "redo"))  # type: ignore[no-any-return]

    def rollback(self, to: Where | Checkpoint) -> BranchMove:
        """Makes the state that of an earlier commit, like `Agent.rollback`. Only the state goes
        back: the function goes on from here, with its recorded calls.

        Args:
            to: a `Checkpoint`; the name of one, which means the last that this turn made under that
                name; a branch's name, a seq, or a moment.

        Returns:
            Its `tool_calls`, at most 1,000, are those that are not taken back in the world; the
            same ones on replay.

        Raises:
            NotFound: there is no such commit, or retention removed its state.
            SchemaError: that state does not fit the schema.
            TypeError, ValueError: it names no commit.
        """
        return self._execution.performer.call(run_moves.rollback(self._execution, to))  # type: ignore[no-any-return]

    def compensate(self) -> list[str]:
        """Undoes what the tool calls of this turn did, the last first, by the ``compensate=`` of
        each tool; calls without one stay. Each compensation is a tool call: recorded, retried as
        that says, in the ledger; what was undone before is not undone again.

        Returns:
            The places of the calls that were undone, in that order.

        Raises:
            PerdureError: such a call is under way in another task or thread.
            TypeError: a compensation is async.

        A compensation that fails for good stops the run: it needs attention, and goes on when it is
        resumed, or that call is settled.
        """
        return undo_all(self._execution)

    # -- several at once -------------------------------------------------------------------

    def map(self, function: Callable[[I], R], items: Iterable[I], *, limit: int = 8) -> list[R]:
        """Calls a function for each item, on up to `limit` threads, as a part of this run.

        Returns:
            The results, in the order of the items.

        Raises:
            The first error in the order of the items. All are called, even if some fail: which ones
            are called must not depend on speed. ValueError: the limit is below 1.
        """
        limit = check_limit(limit)
        check_function(function, "function, what is called for each item,")
        items = list(iterable(items, "items"))  # before any of them is called
        self._execution.check()
        execution = self._execution
        scope = execution.scope().child("map")
        try:
            with self.executor(limit, scope) as threads:
                futures = [threads.submit(function, item) for item in items]
                with execution.going.joining(lambda: scope.alive > 0):
                    threads._wait()
                execution.check()  # an item's `sys.exit()` counts, whatever one before it raised
                return [future.result() for future in futures]
        finally:
            scope.ended()

    @contextmanager
    def executor(self, limit: int = 8, _scope: Scope | None = None) -> Iterator[RunThreads]:
        """Context manager with threads for this run's own code: ``with run.executor() as threads:
        threads.submit(f)``.

        Each call is a task of the run, numbered in the order in which they were submitted, so that
        its records are found again on replay.
        """
        limit = check_limit(limit)
        self._execution.leaving.look_behind()
        self._execution.check()
        scope, going = _scope or self._execution.scope(), self._execution.going
        with going.crew(limit) as crew:
            threads = RunThreads(self._execution, ThreadPool(limit, "perdure-run"), scope, crew)
            with going.lending(threads._lending.lend):
                try:
                    yield threads
                finally:
                    own = get_ident() == self._execution.scope().home  # of no other is it known
                    with going.joining(lambda: crew.submitted > 0) if own else nullcontext():
                        threads._close()

    # -- waiting ---------------------------------------------------------------------------

    def sleep(self, duration: Seconds) -> None:
        """Waits for a duration, in seconds or as a timedelta, even if the process ends in the
        meantime. During longer sleeps, as in all waiting, the run takes no process: it is unloaded,
        and continues here."""
        self._wait("sleep", {"timeout": Timer(duration)})

    def wait_for(
        self,
        signal: str,
        *,
        schema: Any = None,
        timeout: Seconds | None = None,
        default: Any = MISSING,
    ) -> Any:
        """Returns the value of the next signal of a name. It may have come before.

        Args:
            schema: the value's type; a value that does not fit is refused, which is recorded.

        Raises:
            TimedOut: none came in time, and there is no `default`.
        """
        signal = check_signal(signal)
        waits = with_timeout(Signal(signal, schema), timeout)
        return only(self._wait(f"wait_for:{signal}", waits), f"signal {signal!r}", default)

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
    ) -> Any:
        """Asks a person, and waits for the answer; its author is recorded.

        Args:
            schema: the type of the answer; one that does not fit is refused, and the run waits on.
            key: identifies the question, if its words or type may change during a run. Without one,
                a recorded answer counts only for the same words and type; others stop the run.
            data, expires: shown with it, and binding for the answer; when answers end to count.

        Raises:
            TimedOut: nobody answered in time, and there is no `default`.
        """
        waits = asking(Ask(question, schema, key, data, expires), timeout)
        return only(self._wait("ask", waits), f"an answer to {question!r}", default)

    def select(self, **waits: Awaitable | Child[Any]) -> Selected:
        """Waits for the first of several events, each under a name of your choice.

        ``run.select(yes=Signal("approve"), late=Timer(3600))`` gives a `Selected`, with the name
        of the one that came and its value. What comes later stays where it is, for another wait.
        """
        return self._wait("select", waits)

    def _wait(self, name: str, waits: Mapping[str, Awaitable | Child[Any]]) -> Selected:
        ends = {k: w.end if isinstance(w, Child) else w for k, w in waits.items()}
        effects = Wait(self._execution.id, name, ends).effects()
        return self._execution.performer.call(effects)  # type: ignore[no-any-return]

    # -- other runs ------------------------------------------------------------------------

    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Child[R]:
        """Starts a run of another agent, for a worker to pick up; it is cancelled with this one.

        Returns:
            A handle on it; `result` waits for it.
        """
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
    ) -> ChildStarter:
        """Sets options of runs that this one starts.

        Args:
            key: names the run; default: its function, and a part that is made of this call.
            let_live: the run continues when this run is cancelled, or its time is up: it is
                detached. Otherwise this run's deadline is its, too.
            initial: the state to create the agent with, if it is not there when the run begins.
            deadline, time_limit: see `Store.options`.
        """
        options = ChildOptions(key, queue, let_live, initial, deadline, time_limit)
        return ChildStarter(self._execution, options)


def check_limit(limit: int) -> int:
    """Raises TypeError, ValueError where nothing would ever be called."""
    return count(limit, "limit=", least=1)


class RunThreads:
    """Threads that belong to a run; see `Run.executor`."""

    def __init__(
        self, execution: Execution[Any], pool: ThreadPool, scope: Scope, crew: Crew
    ) -> None:
        self._execution = execution
        self._pool = pool
        self._scope = scope
        self._crew = crew
        self._closing = False
        self._lending = Lending(self._lend)
        self._open: dict[RunFuture[Any], None] = {}
        """Those that have not ended, in their order. One operation each, which needs no lock."""

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Calls a function on one of the threads, as a task of the run.

        Raises:
            RuntimeError: the block is over.
        """
        check_function(function, "function, what is submitted,")
        _refuse_async(function)
        self._execution.leaving.look_behind()
        self._execution.check()
        if self._closing and not self._open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        try:
            return self._submit(label(function), lambda: function(*args, **kwargs))
        except BaseException as error:
            # It is not the function's own, which may not go on: it may be that the call is made.
            failure = self._execution.leaving.failed(error)
            if failure is not error:
                raise failure from error
            raise

    def _submit(self, name: str, function: Callable[[], R]) -> Future[R]:
        with self._execution.asking, loading:
            from perdure.engine.execution.thread_futures import RunFuture  # 2 ms, for few

        execution, crew, lending = self._execution, self._crew, self._lending
        begun = lent = False
        scope = self._scope.child(name)
        context = contextvars.copy_context()
        context.run(enter_scope, scope, execution)

        def call() -> R:
            nonlocal begun, lent
            begun = True
            execution.going.thread_began(crew, scope)
            lending.begins(scope)
            future.begins()
            if (interrupted := execution.interrupted) is not None:
                raise interrupted
            try:
                return context.run(function)
            except of_code():
                raise
            except BaseException as left:
                # Before its thread begins another call: what that did would be behind an end.
                execution.leaving.left(left, "a thread of its own")
                raise
            finally:
                if lending.is_over():  # before its thread looks for another one
                    lent = True
                    self._pool.take_back()

        def ended(error: BaseException | None, cancelled: bool) -> None:
            self._open.pop(future, None)
            lending.begins(scope)
            execution.going.thread_ended(crew, scope, begun=begun, lent=lent)
            execution.scope_ended(scope, error, cancelled=cancelled)

        future: RunFuture[R] = RunFuture(execution, scope, ended)
        execution.going.submitted(crew)
        lending.holds(scope)
        future.submit(self._pool, call, self._open)
        return future

    def _lend(self, threads: int) -> None:
        self._execution.going.lent(self._crew, threads)
        self._pool.lend(threads)

    def _wait(self) -> None:
        """Waits until all submitted calls have ended; those not begun never do if the run is
        interrupted."""
        while left := [*self._open]:
            for future in left:
                while not future.wait(LOOK_MAX_S):
                    for one in [*self._open]:
                        if self._execution.interrupted is not None or one.is_left:
                            one.cancel()

    def _close(self) -> None:
        """Waits for the calls, and ends the threads."""
        self._closing = True
        try:
            self._wait()
        except BaseException:
            for one in [*self._open]:
                one.cancel()
            raise  # somebody insists: what goes on already is not waited for
        self._pool.close()


def _refuse_async(function: Callable[..., Any]) -> None:
    """Refuses an async function: its result would not be awaited, and a coroutine is always true.

    Raises:
        TypeError: it is an ``async def`` function.
    """
    if is_async(function):
        raise TypeError(
            f"{label(function)} is async: make the agent function `async def`, and await it there"
        )
