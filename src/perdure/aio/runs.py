"""The async side of runs: starting and running them, and their handles."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from perdure.aio.loops import Home
from perdure.core.arguments.checks import seconds
from perdure.core.arguments.names import check_words
from perdure.engine.control.explanation import Explanation
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.control.run_report import RunReport
from perdure.engine.control.wait_circles import WaitingInPlace
from perdure.engine.control.waiting_for_runs import has_result, unfinished, wait_until
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.runner import Runner
from perdure.engine.execution.wakeups import POLL_S
from perdure.engine.functions.agent_functions import check_kind
from perdure.engine.functions.async_run import AsyncRun
from perdure.engine.functions.run_lookup import refuse_moved
from perdure.engine.journal.ledger import EffectInfo
from perdure.engine.journal.left_history import Again
from perdure.engine.journal.questions import Question
from perdure.errors import Conflict, TimedOut
from perdure.missing import MISSING
from perdure.model import Commit, RunInfo, RunStatus
from perdure.state.event_loop.loop_waits import LoopWait, bell
from perdure.store import Options
from perdure.system.done_already import DoneAlready

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncOptions:
    """Options for making runs; from `AsyncStore.options`."""

    def __init__(self, home: Home, runner: Runner, options: Options) -> None:
        self._home = home
        self._runner = runner
        self._options = options

    async def run(
        self,
        function: Callable[Concatenate[AsyncRun[T], P], Coroutine[Any, Any, R]],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """See `AsyncStore.run`."""
        self._home.check()
        check_kind(function, is_async=True)
        order = self._options.order(function, agent, args, kwargs, storable=False)
        command = Command(function, order, args, kwargs)
        return await self._runner.run_async(command)  # type: ignore[no-any-return]

    async def start(
        self,
        function: Callable[Concatenate[Any, P], Any],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AsyncRunHandle[Any]:
        """See `AsyncStore.start`."""
        handle = await self._home.call(self._options.start, function, agent, *args, **kwargs)
        return AsyncRunHandle(self._home, self._runner, handle)


class AsyncRunHandle(Generic[R]):
    """The handle of one run; its methods do what those of `perdure.RunHandle` do."""

    def __init__(self, home: Home, runner: Runner, handle: RunHandle[R]) -> None:
        self._home = home
        self._runner = runner
        self._handle = handle

    @property
    def id(self) -> str:
        return self._handle.id

    async def info(self) -> RunInfo:
        """See `RunHandle.info`; asks the store."""
        return await self._home.call(lambda: self._handle.info)

    async def status(self) -> RunStatus:
        """See `RunHandle.status`; asks the store."""
        return (await self.info()).status

    async def result(self, timeout: timedelta | float | None = None) -> R:
        """See `RunHandle.result`."""
        until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout=")

        def ended() -> RunInfo | None:
            info = self._handle.info
            return info if has_result(info) else None

        info = await self._until(ended, until)
        return await self._home.call(self._handle._result_of, info)

    async def _until(self, look: Callable[[], T | None], until: float | None) -> T:
        """Returns what a look at the run gives, once it gives something.

        Raises:
            TimedOut: that takes longer. Conflict: it is the run of the code that waits.
            ClosedError: it goes on in another store.
        """
        wait = LoopWait(bell())
        wakeups, backend = self._runner.wakeups, self._home.context.backend
        here = WaitingInPlace(self._home.context, wakeups, self.id, alone=False)
        with wakeups.watch(self.id, lambda: wait.done()):
            while True:
                found = await self._home.call(look)
                if found is not None:
                    return found
                info = await self.info()
                await self._home.call(refuse_moved, backend, info)
                if until is None:
                    await self._home.call(here.refuse)
                elif time.monotonic() >= until:
                    raise unfinished(info)
                left = POLL_S if until is None else min(until - time.monotonic(), POLL_S)
                await wait.rest(left)
                wait = LoopWait(bell())

    async def signal(
        self, name: str, value: Any = None, *, key: str | None = None, by: str = ""
    ) -> bool:
        """See `RunHandle.signal`."""
        return await self._home.call(self._handle.signal, name, value, key=key, by=by)

    async def questions(self) -> list[Question]:
        """See `RunHandle.questions`."""
        return await self._home.call(self._handle.questions)

    async def answer(self, value: Any, *, to: Question | str | None = None, by: str = "") -> None:
        """See `RunHandle.answer`."""
        await self._home.call(self._handle.answer, value, to=to, by=by)

    async def why(self) -> Explanation:
        """See `RunHandle.why`."""
        return await self._home.call(self._handle.why)

    async def report(self) -> RunReport:
        """See `RunHandle.report`."""
        return await self._home.call(self._handle.report)

    async def effects(self, *, damaged_too: bool = False) -> list[EffectInfo]:
        """See `RunHandle.effects`."""
        return await self._home.call(self._handle.effects, damaged_too=damaged_too)

    async def settle(
        self, call: str, *, done: Any = MISSING, not_done: bool = False, by: str = ""
    ) -> Commit:
        """See `RunHandle.settle`."""
        return await self._home.call(self._handle.settle, call, done=done, not_done=not_done, by=by)

    async def cancel(
        self, why: str = "", *, wait: bool = False, timeout: timedelta | float | None = None
    ) -> None:
        """See `RunHandle.cancel`."""
        why, until = check_words(why, "why="), wait_until(wait, timeout)
        with DoneAlready(Conflict, TimedOut) as done:
            if not await self._home.call(self._handle._ask_to_end, why, done) and wait:
                await self._wait_for_its_end(why, until)

    async def _wait_for_its_end(self, why: str, until: float | None) -> None:
        """See `RunHandle._wait_for_its_end`."""
        await self._until(lambda: self._handle._end_if_free(why) or None, until)

    async def fork(
        self, step: str, *, branch: str, effects: Again = "ask", key: str | None = None
    ) -> AsyncRunHandle[R]:
        """See `RunHandle.fork`."""
        forked = await self._home.call(
            self._handle.fork, step, branch=branch, effects=effects, key=key
        )
        return AsyncRunHandle(self._home, self._runner, forked)

    async def retry(self, step: str, *, effects: Again = "ask") -> None:
        """See `RunHandle.retry`."""
        await self._home.call(self._handle.retry, step, effects=effects)

    async def resume(self) -> None:
        """See `RunHandle.resume`."""
        await self._home.call(self._handle.resume)
