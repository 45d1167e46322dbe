"""The async store: opening one, and its agents. Its methods are documented in `perdure.Store`."""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from perdure.aio.agent import AsyncAgent
from perdure.aio.loops import Home
from perdure.aio.runs import AsyncOptions, AsyncRunHandle
from perdure.core.arguments.not_entered import ToEnter
from perdure.core.schema.digest_keys import DigestKey
from perdure.core.schema.schema import Schema
from perdure.engine.control.deletions import WHY, is_over
from perdure.engine.control.naming_all import CheckpointedAll
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.control.waiting_for_runs import wait_until
from perdure.engine.dispatch.heartbeat import LEASE_TTL
from perdure.engine.functions.async_run import AsyncRun
from perdure.engine.journal.questions import Question
from perdure.errors import Conflict, NotFound
from perdure.missing import MISSING
from perdure.model import MAIN, AgentInfo, Durability, RunInfo, RunStatus, Verified
from perdure.retention.purging import Purged
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.event_loop.loop_waits import in_own_thread
from perdure.state.guards import Guards
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.answers import Sizes
from perdure.storage.group_policy import GroupPolicy
from perdure.store import Store, open
from perdure.transfer.whole_log import LogEntry, Progress

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def open_async(
    url: str | os.PathLike[str],
    *,
    durability: Durability = "sync",
    snapshots: SnapshotPolicy | None = None,
    create: bool = True,
    lease_ttl: timedelta = LEASE_TTL,
    checkpoints: CheckpointPolicy | None = None,
    digest_key: DigestKey | None = None,
    group: GroupPolicy | None = None,
    guards: Guards | None = None,
) -> Opening:
    """Opens a store like `perdure.open`, for coroutines: ``async with
    perdure.open_async("agents.db") as store:``, or ``store = await
    perdure.open_async("agents.db")`` with ``await store.close()`` at the end.

    The store belongs to the event loop on which it was opened.
    """
    return Opening(
        partial(
            open,
            url,
            durability=durability,
            snapshots=snapshots,
            create=create,
            lease_ttl=lease_ttl,
            checkpoints=checkpoints,
            digest_key=digest_key,
            guards=guards,
            group=group,
        )
    )


class Opening(ToEnter):
    """The result of `open_async`: to be awaited, or used in an ``async with``."""

    _entered = "store = await perdure.open_async(…)"

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._open_it = open_it
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        opened: list[Store] = []
        try:
            await in_own_thread(lambda: opened.append(self._open_it()))
        except BaseException:  # cancelled when it was there: nobody would close it
            for store in opened:
                await in_own_thread(store.close)
            raise
        return AsyncStore(opened[0])

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *error: object) -> None:
        if self._store is not None:
            await self._store.close()


class AsyncStore:
    """An open store, for the tasks of one event loop; close it, or use it in an ``async with``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._home = Home(store._context)

    def __repr__(self) -> str:
        return f"<perdure async store {self.url}>"

    @property
    def url(self) -> str:
        return self._store.url

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `Store.close`: queued commits are made first; later calls are refused."""
        await in_own_thread(self._store.close)

    # -- agents ----------------------------------------------------------------------------

    @overload
    async def agent(
        self, name: str, *, initial: dict[str, Any] = ..., branch: str = MAIN
    ) -> AsyncAgent[dict[str, Any]]: ...

    @overload
    async def agent(
        self, name: str, schema: type[T] | Schema[T], *, initial: T = ..., branch: str = MAIN
    ) -> AsyncAgent[T]: ...

    async def agent(
        self, name: str, schema: Any = None, *, initial: Any = MISSING, branch: str = MAIN
    ) -> AsyncAgent[Any]:
        """See `Store.agent`; the state is read here. If that fails, using the state raises the
        error."""
        agent = await self._home.call(
            self._store.agent, name, schema, initial=initial, branch=branch
        )
        made = AsyncAgent(self._home, agent)
        await made.look()
        return made

    async def agents(
        self, prefix: str = "", *, after: str = "", limit: int = 1000
    ) -> list[AgentInfo]:
        """See `Store.agents`."""
        return await self._home.call(self._store.agents, prefix, after=after, limit=limit)

    async def find(self, name: str) -> AgentInfo | None:
        """See `Store.find`."""
        return await self._home.call(self._store.find, name)

    async def incarnations(self, name: str) -> list[AgentInfo]:
        """See `Store.incarnations`."""
        return await self._home.call(self._store.incarnations, name)

    async def origins(self, info: AgentInfo) -> list[AgentInfo]:
        """See `Store.origins`."""
        return await self._home.call(self._store.origins, info)

    async def delete(
        self,
        name: str | None = None,
        *,
        prefix: str | None = None,
        purge: bool = False,
        cancel_runs: bool = False,
        timeout: float | timedelta | None = None,
    ) -> list[str]:
        """See `Store.delete`."""
        until = wait_until(cancel_runs, timeout, "cancel_runs")
        deletion = self._store._deleting(name, prefix=prefix, purge=purge, cancel_runs=cancel_runs)
        deleted: list[str] = []

        def further() -> RunHandle[Any] | None:
            try:
                return next(deletion)
            except StopIteration as end:
                deleted.extend(end.value)
                return None

        while (run := await self._home.call(further)) is not None:
            try:
                handle = AsyncRunHandle(self._home, self._store.runner, run)
                await handle._wait_for_its_end(WHY, until)
            except (Conflict, NotFound):
                if not await self._home.call(is_over, run):
                    raise
        return deleted

    async def agent_of(self, info: AgentInfo, *, branch: str = MAIN) -> AsyncAgent[dict[str, Any]]:
        """See `Store.agent_of`."""
        agent = await self._home.call(self._store.agent_of, info, branch=branch)
        made = AsyncAgent(self._home, agent)
        await made.look()
        return made

    def export_log(self, info: AgentInfo, *, until: int | None = None) -> AsyncIterator[LogEntry]:
        """See `Store.export_log`; read in pages."""
        return self._home.pages(lambda: self._store.export_log(info, until=until))

    async def import_log(
        self,
        entries: Iterable[LogEntry],
        *,
        root: str | None = None,
        progress: Progress | None = None,
        total: int = 0,
    ) -> Verified:
        """See `Store.import_log`; `entries` are read on another thread, `progress` is called on the
        event loop."""
        return await self._home.reporting(
            lambda report: self._store.import_log(entries, root=root, progress=report, total=total),
            progress,
        )

    # -- runs ------------------------------------------------------------------------------

    async def run(
        self,
        function: Callable[Concatenate[AsyncRun[T], P], Coroutine[Any, Any, R]],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """See `Store.run`, for ``async def`` agent functions: they run in this event loop.

        A cancelled caller leaves the run where it is, as a crash would: the next call resumes it.
        """
        return await self.options().run(function, agent, *args, **kwargs)

    async def start(
        self,
        function: Callable[Concatenate[Any, P], Any],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AsyncRunHandle[Any]:
        """See `Store.start`, for agent functions of either kind."""
        return await self.options().start(function, agent, *args, **kwargs)

    def options(
        self,
        *,
        key: str = MAIN,
        queue: str = "default",
        deadline: float | timedelta | None = None,
        time_limit: float | timedelta | None = None,
        trace: str | None = None,
        initial: Any = MISSING,
        branch: str = MAIN,
    ) -> AsyncOptions:
        """See `Store.options`."""
        options = self._store.options(
            key=key,
            queue=queue,
            deadline=deadline,
            time_limit=time_limit,
            trace=trace,
            initial=initial,
            branch=branch,
        )
        return AsyncOptions(self._home, self._store.runner, options)

    async def handle(self, run_id: str) -> AsyncRunHandle[Any]:
        """See `Store.handle`."""
        handle = await self._home.call(self._store.handle, run_id)
        return AsyncRunHandle(self._home, self._store.runner, handle)

    async def runs(
        self,
        agent: str | None = None,
        *,
        unfinished: bool = False,
        status: Sequence[RunStatus] | None = None,
        function: str | None = None,
        parent: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[RunInfo]:
        """See `Store.runs`."""
        return await self._home.call(
            self._store.runs,
            agent,
            unfinished=unfinished,
            status=status,
            function=function,
            parent=parent,
            limit=limit,
            newest_first=newest_first,
        )

    async def questions(
        self,
        agent: str | None = None,
        *,
        after: Question | str | None = None,
        limit: int | None = None,
        damaged_too: bool = False,
    ) -> list[Question]:
        """See `Store.questions`."""
        more = {"after": after, "limit": limit, "damaged_too": damaged_too}
        return await self._home.call(self._store.questions, agent, **more)

    async def alive(self, executor: str) -> bool:
        """See `Store.alive`."""
        return await self._home.call(self._store.alive, executor)

    # -- housekeeping ----------------------------------------------------------------------

    async def checkpoint_all(
        self,
        name: str,
        *,
        prefix: str = "",
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> CheckpointedAll:
        """See `Store.checkpoint_all`."""
        return await self._home.call(
            self._store.checkpoint_all,
            name,
            prefix=prefix,
            config=config,
            dependencies=dependencies,
        )

    async def purge(self, name: str | None = None, *, seconds: float | None = None) -> Purged:
        """See `Store.purge`."""
        return await self._home.call(self._store.purge, name, seconds=seconds)

    async def shrink(self) -> None:
        """See `Store.shrink`."""
        await self._home.call(self._store.shrink)

    async def check_pages(self) -> tuple[str, ...]:
        """See `Store.check_pages`."""
        return await self._home.call(self._store.check_pages)

    async def sizes(self, name: str | None = None) -> Sizes:
        """See `Store.sizes`."""
        return await self._home.call(self._store.sizes, name)

    async def flush(self) -> None:
        """See `Store.flush`."""
        await self._home.call(self._store.flush)
