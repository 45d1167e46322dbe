"""The async handle of one agent on one branch. Its methods are documented in `perdure.Agent`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from perdure.agents import Agent, AgentAt, Where
from perdure.aio.loops import HandleTurn, Home
from perdure.core.arguments.checks import Seconds, function
from perdure.core.arguments.names import cause_of
from perdure.core.arguments.not_entered import ToEnter
from perdure.core.live.drift import Drift
from perdure.engine.control.delivery import is_own
from perdure.engine.control.going_back import HasRunId, Step, Steps
from perdure.engine.journal.effects import drive_async as perform
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import Branch, Cause, Change, Checkpoint, Commit, Verified
from perdure.retention.trimming import Trimmed
from perdure.state import branch_operations
from perdure.state.edit_block import Block, used_key
from perdure.state.halting import HALT_S
from perdure.state.returned_drafts import refuse_generator, refuse_new_state
from perdure.state.time_travel import BranchMove
from perdure.state.working_copy import Flow, drive_async
from perdure.storage.log.refusals import is_race
from perdure.system.backoff import CHANCES_MAX, pauses
from perdure.system.locks import End, ends_block, first_frame, is_over, span_of
from perdure.verification.verify import Progress

T = TypeVar("T")
R = TypeVar("R")


class AsyncAgent(Generic[T]):
    """One agent, on one branch. Made by `AsyncStore.agent`.

    A handle may be shared by the tasks of one event loop; edits through it happen one after the
    other. `state`, `seq` and `exists` are as of its last operation; `refresh` looks again.

    When an operation is cancelled, a queued commit is withdrawn, and one that is under way is
    awaited first: afterwards `seq` says whether it is done.
    """

    def __init__(self, home: Home, agent: Agent[T]) -> None:
        self._home = home
        self._agent = agent
        self._working = agent._working
        self._turn = HandleTurn(home, agent._working)
        self._seq = 0
        self._exists = False
        self._gone = False
        self._state: Any = None
        self._problem: PerdureError | None = None

    def __repr__(self) -> str:
        return f"<perdure async agent {self.id!r}, branch {self.branch_name!r}>"

    @property
    def id(self) -> str:
        return self._agent.id

    @property
    def branch_name(self) -> str:
        return self._agent.branch_name

    @property
    def seq(self) -> int:
        """Seq of the commit whose state this handle has; 0 before the first commit."""
        return self._seq

    @property
    def exists(self) -> bool:
        """True if the agent was there: it had a commit, and was not deleted."""
        return self._exists

    # -- state -----------------------------------------------------------------------------

    @property
    def state(self) -> T:
        """The state; see `Agent.state`.

        Raises:
            PerdureError: the error of the last attempt to read it; `refresh` tries again.
        """
        if self._problem is not None:
            raise self._problem
        return self._state  # type: ignore[no-any-return]

    @property
    def _shows_what_is_in_memory(self) -> bool:
        """True if `look` would change nothing unless the working copy does."""
        return self._problem is None and self._exists and self._seq == self._working.seq

    async def look(self, after: BaseException | None = None) -> None:
        """Updates the handle's state from memory; reads it if it is not there. A cancellation
        waits: the commit before it stands, and is shown.

        Args:
            after: the error of the last operation.
        """
        working = self._working
        cancelled: asyncio.CancelledError | None = None
        try:
            while not working.in_memory:
                try:
                    await self._home.call(lambda: working.typed)
                except asyncio.CancelledError as error:
                    cancelled = error
        except PerdureError as error:
            self._problem = error
        else:
            self._problem = None
            self._state = working.typed
            self._seq = working.seq
        if isinstance(after, NotFound) and working.known:
            with suppress(PerdureError):  # `after` says it
                self._gone = not await self._home.call(lambda: self._agent.exists)
        self._exists = working.known and not self._gone
        if cancelled is not None:
            raise cancelled

    async def refresh(self) -> T:
        """See `Agent.refresh`."""
        async with self._turn.hold():
            return await self._call(self._agent.refresh)

    async def follow(self) -> list[Commit] | None:
        """See `Agent.follow`."""
        async with self._turn.hold():
            return await self._call(self._agent.follow)

    async def _call(self, fn: Callable[[], R]) -> R:
        """Calls a reading function and looks at the result's state; the caller must have the
        turn."""
        try:
            result = await self._home.call(fn)
        except (Exception, asyncio.CancelledError) as error:
            await self.look(error)
            raise
        await self.look()
        return result

    def edit(
        self,
        what: str = "",
        *,
        key: str | None = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        trace: str | None = None,
    ) -> AsyncEdit[T]:
        """See `Agent.edit`: ``async with agent.edit("why") as draft: draft.status = "done"``.

        Another task's edit of this handle waits until this one ends; one inside it is a `Conflict`.
        """
        cause = cause_of("edit", what, key, tags, group=group, trace=trace)
        return AsyncEdit(self, cause)

    async def update(
        self,
        fn: Callable[[T], object],
        what: str = "",
        *,
        key: str | None = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        trace: str | None = None,
    ) -> Commit | None:
        """See `Agent.update`; `fn` may be a coroutine function."""
        function(fn, "fn, what makes the change,")
        name = what or str(getattr(fn, "__name__", ""))
        cause = cause_of("edit", name, key, tags, group=group, trace=trace)
        if key is not None:
            async with self._turn.hold():
                used = await self._home.call(used_key, self._working, cause)
            if used is not None:
                return used
        for tried, pause in enumerate(pauses()):
            if pause:
                await asyncio.sleep(pause)
            edit, lost = AsyncEdit(self, cause), False
            try:
                async with edit as draft:
                    result = fn(draft)
                    if inspect.isawaitable(result):
                        result = await result
                    if result is not None:
                        refuse_generator(result, fn, self.id)
                        refuse_new_state(result, fn, edit._block, self.id)
                    lost = True  # what is a conflict from here on was a race
                return edit.commit
            except Conflict as error:
                if not (lost and is_race(error)) or tried == CHANCES_MAX - 1:
                    raise
                async with self._turn.hold():
                    self._working.reopen_if_created_meanwhile()
        raise AssertionError("unreachable")

    async def save(
        self,
        state: T,
        what: str = "",
        *,
        key: str | None = None,
        tags: Iterable[str] = (),
    ) -> Commit | None:
        """See `Agent.save`."""
        cause = cause_of("save", what, key, tags)
        return await self._do(branch_operations.saving(self._working, state, cause))

    async def drift(self) -> list[Drift]:
        """See `Agent.drift`."""
        async with self._turn.hold(inside_edit=True):
            return await self._home.call(self._agent.drift)

    async def _do(self, flow: Flow[R]) -> R:
        async with self._turn.hold():
            return await self.drive(flow)

    async def drive(self, flow: Flow[R]) -> R:
        """Runs an operation; the caller must have the turn."""
        try:
            result = await drive_async(self._home.context, flow)
        except (Exception, asyncio.CancelledError) as error:
            await self.look(error)
            raise
        await self.look()
        return result

    # -- the log ---------------------------------------------------------------------------

    def log(
        self, *, newest_first: bool = False, all_branches: bool = False, damaged_too: bool = False
    ) -> AsyncIterator[Commit]:
        """See `Agent.log`; read in pages."""
        return self._home.pages(
            lambda: self._agent.log(
                newest_first=newest_first, all_branches=all_branches, damaged_too=damaged_too
            )
        )

    async def commit(self, where: Where, *, damaged_too: bool = False) -> Commit:
        """See `Agent.commit`."""
        return await self._home.call(self._agent.commit, where, damaged_too=damaged_too)

    async def at(
        self, where: Where, *, config: Mapping[str, Any] | None = None, strict: bool = False
    ) -> AgentAt[T]:
        """See `Agent.at`; everything that the `AgentAt` shows has been read."""

        def read() -> AgentAt[T]:
            past = self._agent.at(where, config=config, strict=strict)
            past.read()
            return past

        return await self._home.call(read)

    async def diff(self, a: Where, b: Where) -> list[Change]:
        """See `Agent.diff`."""
        return await self._home.call(self._agent.diff, a, b)

    async def verify(
        self, *, anchor: str | None = None, progress: Progress | None = None, heal: bool = False
    ) -> Verified:
        """See `Agent.verify`; `progress` is called on the event loop."""
        return await self._home.reporting(
            lambda report: self._agent.verify(anchor=anchor, progress=report, heal=heal), progress
        )

    async def trim(self, before: Where | timedelta) -> Trimmed:
        """See `Agent.trim`."""
        return await self._home.call(self._agent.trim, before)

    # -- checkpoints and branches ----------------------------------------------------------

    async def checkpoint(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> Checkpoint:
        """See `Agent.checkpoint`."""
        beside = not is_own(self._working)
        given = name, config, dependencies
        return await self._do(branch_operations.checkpointing(self._working, *given, beside=beside))

    async def checkpoints(self) -> list[Checkpoint]:
        """See `Agent.checkpoints`."""
        return await self._home.call(self._agent.checkpoints)

    async def branches(self) -> list[Branch]:
        """See `Agent.branches`."""
        return await self._home.call(self._agent.branches)

    async def branch(self, name: str) -> AsyncAgent[T]:
        """See `Agent.branch`."""
        return await self._beside(await self._home.call(self._agent.branch, name))

    async def _beside(self, agent: Agent[T]) -> AsyncAgent[T]:
        made = AsyncAgent(self._home, agent)
        await made.look()
        return made

    async def fork(
        self, name: str, *, at: Where | None = None, before: HasRunId | str | None = None
    ) -> AsyncAgent[T]:
        """See `Agent.fork`."""
        await self._do(self._agent._forking(name, at, before))
        return await self._beside(self._agent._on_branch(name))

    async def delete_branch(self, name: str) -> Commit:
        """See `Agent.delete_branch`."""
        return await self._do(branch_operations.deleting_branch(self._working, name))

    # -- going back ------------------------------------------------------------------------

    async def rollback(
        self, to: Where, *, cancel_run: bool = False, timeout: Seconds = HALT_S
    ) -> BranchMove:
        """See `Agent.rollback`."""
        return await self._take(self._agent._rolling_back(to, cancel_run, timeout))

    async def _take(self, steps: Steps) -> BranchMove:
        """Takes the steps of a way back; see `GoingBack._take`."""

        async def does(step: Step) -> Any:
            if isinstance(step, float):
                return await asyncio.sleep(step)
            if isinstance(step, Generator):
                return await self._do(step)
            return await self._home.call(step)

        with closing(steps):
            moved: BranchMove = await perform(steps, does)
        return moved

    async def adopt(
        self, branch: str, *, cancel_run: bool = False, timeout: Seconds = HALT_S
    ) -> BranchMove:
        """See `Agent.adopt`."""
        return await self._take(self._agent._adopting(branch, cancel_run, timeout))

    async def undo(
        self,
        *,
        run: HasRunId | str | None = None,
        turns: int | None = None,
        cancel_run: bool = False,
        timeout: Seconds = HALT_S,
    ) -> BranchMove:
        """See `Agent.undo`."""
        return await self._take(self._agent._undoing(run, turns, cancel_run, timeout))

    async def redo(self, *, cancel_run: bool = False, timeout: Seconds = HALT_S) -> BranchMove:
        """See `Agent.redo`."""
        return await self._take(self._agent._redoing(cancel_run, timeout))


class AsyncEdit(ToEnter, Generic[T]):
    """The context manager that `AsyncAgent.edit` returns; see `Edit`."""

    __slots__ = ("_agent", "_block", "_end", "_held", "_turn")

    _entered = "async with agent.edit(…) as draft: draft.x = 1"

    def __init__(self, agent: AsyncAgent[T], cause: Cause) -> None:
        self._agent = agent
        self._turn = agent._turn
        self._block = Block(agent._working, cause)
        self._end: End | None = None

    async def __aenter__(self) -> T:
        self._held = span = span_of(self, first_frame())
        await self._turn.take(span)
        working = self._agent._working
        try:
            if working.editing:
                working.refuse_inside_edit()
            working.edit_lost = partial(is_over, span) if span is not None else None
            draft = await self._begin_at_head()
            if draft is None:
                draft = await self._agent._home.call(self._block.begin)
                await self._agent.look()
        except BaseException as error:
            try:
                if self._block.begun:  # and then its task was cancelled
                    self._block.abandon()
                if not working.editing:
                    working.edit_lost = None
                if isinstance(error, Exception | asyncio.CancelledError):
                    await self._agent.look(error)
            finally:
                self._turn.give_back(self._held)
            raise
        return draft

    async def _begin_at_head(self) -> T | None:
        """Begins without reading, in the usual case: nobody else has written, and only the head has
        to be asked for."""
        place, agent = self._block.place, self._agent
        if place is None or not agent._shows_what_is_in_memory:
            return None
        return self._block.begin_at(await agent._home.context.heads.head(*place))

    @ends_block
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                await self._agent.drive(self._block.ending())
                return
            self._block.abandon()
            if error is None or isinstance(error, Exception | asyncio.CancelledError):
                await self._agent.look()
        finally:
            self._turn.give_back(self._held)

    @property
    def commit(self) -> Commit | None:
        """See `Edit.commit`."""
        return self._block.commit
