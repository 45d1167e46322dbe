"""The store: opening one, its agents, and running agent functions on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from perdure.agent import Agent
from perdure.core.names import check_name
from perdure.core.schema import Schema
from perdure.engine.handle import RunHandle
from perdure.engine.liveness import LEASE_TTL
from perdure.engine.run import Fakes, Run
from perdure.engine.runner import Command, Runner
from perdure.errors import NotFound
from perdure.model import MAIN, MISSING, AgentInfo, Cause, Durability, RunInfo, Verified
from perdure.state.context import Context
from perdure.state.extras import Extras
from perdure.state.policy import SnapshotPolicy
from perdure.state.projections import DELETED
from perdure.state.transfer import LogEntry as LogEntry
from perdure.state.transfer import Progress, export_log, import_log
from perdure.state.verify import verify_log
from perdure.state.working import WorkingCopy
from perdure.storage.committer import HERE, Committer
from perdure.storage.locate import locate, rebuild_checksums
from perdure.storage.port import Backend, Sizes
from perdure.storage.reader import LogReader

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def open(
    url: str | os.PathLike[str], *, durability: Durability = "sync",
    snapshots: SnapshotPolicy | None = None, create: bool = True,
    lease_ttl: timedelta = LEASE_TTL,
) -> Store:  # fmt: skip
    """Open a store, making it if it is not there.

    Args:
        url: a path, ``sqlite:///path``, or ``memory://``.
        durability: when a commit is acknowledged: ``"sync"`` after its fsync; ``"group"`` at one
            fsync per 64 commits or 20 ms; ``"os"`` without (survives the process, not the machine).
            What tools did is always recorded at ``"sync"``.
        snapshots: when whole states are stored; the default weighs deltas.
        create: False: refuse a store that is not there, e.g. for tools that only look.
        lease_ttl: how long this process counts as alive after its last sign of life (it gives one
            every third of that), where it is paused or cut off. A process that ended is known to
            be dead at once, whatever this is.

    Raises:
        NotFound: it is not there and `create` is False.
        NotAStore, UnsupportedFormat, Corrupt, StoreUnavailable: as they say; nothing was changed.
    """
    backend = locate(url, durability=durability, create=create)
    return Store(backend, snapshots or SnapshotPolicy(), lease_ttl)


def repair(url: str | os.PathLike[str]) -> list[Verified]:
    """Give a SQLite store its page checksums back, after another SQLite moved pages without them.

    Every log is verified first; if one does not, nothing is changed. Nobody else may have the store
    open.

    Returns:
        What was verified, agent by agent.

    Raises:
        Corrupt: the data itself is damaged: restore the store from a copy.
        StoreUnavailable: another process has it open.
        NotFound: it is not there.
    """
    proved: list[Verified] = []

    def prove(backend: Backend, info: AgentInfo) -> None:
        proved.append(verify_log(backend, LogReader(backend, info)))

    rebuild_checksums(url, prove)
    return proved


class Store:
    """An open store. Safe to share between threads; close it, or use it in a ``with``."""

    def __init__(
        self, backend: Backend, snapshots: SnapshotPolicy | None = None,
        lease_ttl: timedelta = LEASE_TTL,
    ) -> None:  # fmt: skip
        self._context = Context(backend, Committer(backend), snapshots or SnapshotPolicy())
        self._runner = Runner(self._context, lease_ttl)

    def __repr__(self) -> str:
        return f"<perdure store {self.url}>"

    @property
    def url(self) -> str:
        return self._context.backend.url

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Flush, give back leases, and close the files. Idempotent."""
        self._runner.close()
        self._context.backend.close()

    @property
    def runner(self) -> Runner:
        """The engine of this store; for `perdure.testing` and for faces of the library."""
        return self._runner

    # -- agents ----------------------------------------------------------------------------

    @overload
    def agent(
        self, name: str, *, initial: dict[str, Any] = ..., branch: str = MAIN
    ) -> Agent[dict[str, Any]]: ...

    @overload
    def agent(
        self, name: str, schema: type[T] | Schema[T], *, initial: T = ..., branch: str = MAIN
    ) -> Agent[T]: ...

    def agent(
        self, name: str, schema: Any = None, *, initial: Any = MISSING, branch: str = MAIN
    ) -> Agent[Any]:
        """A handle on an agent. One that is not there yet is created by its first commit.

        Args:
            name: any text of up to 200 characters; the agent's identity.
            schema: a pydantic model, dataclass, TypedDict, msgspec Struct, or `Schema`; without
                one the state is a plain dict.
            initial: the state to create it with; default: the schema's type, called without
                arguments.

        Raises:
            ValueError: an empty or overlong name.
        """
        _check_name(name)
        working = WorkingCopy(self._context, name, Schema.of(schema), branch, initial)
        return Agent(self._context, working)

    def agents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[AgentInfo]:
        """The store's agents by name, a page at a time: pass the last name as `after`."""
        return self._context.backend.agents(prefix, after, limit)

    def find(self, name: str) -> AgentInfo | None:
        """What there is of an agent's latest incarnation, deleted or not; None if nothing."""
        return self._context.backend.agent(name)

    def delete(self, name: str) -> None:
        """Delete an agent. Its name may be used again, for a new incarnation; a write that was
        under way in the old one fails and cannot bring it back.

        Raises:
            NotFound: there is no such agent.
            Conflict: a living executor is running it.
        """
        info = self._context.backend.agent(name)
        if info is None or info.deleted:
            raise NotFound("there is no such agent", target=f"agent {name!r}")
        working = self._working(info, self._any_branch(info))
        with working.lock:
            runs = self._context.backend.runs(agent=name, unfinished=True)
            cancelled = [
                replace(run, status="cancelled", ended=HERE, problem=DELETED)
                for run in runs if run.agent_no == info.no
            ]  # fmt: skip
            records = [{"t": "run-cancelled", "run": run.id} for run in cancelled]
            extras = Extras([*records, {"t": "agent-deleted"}], runs=cancelled, delete_agent=True)
            working.commit_delta([], Cause("delete"), extras)

    def agent_of(self, info: AgentInfo, *, branch: str = MAIN) -> Agent[dict[str, Any]]:
        """A handle on one incarnation of an agent with its state as a plain dict, whatever its
        schema: for tools that look around."""
        return Agent(self._context, self._working(info, branch))

    def _working(self, info: AgentInfo, branch: str) -> WorkingCopy[Any]:
        """A branch with its state as it was written, of whatever schema."""
        reader = LogReader(self._context.backend, info)
        ref = self._context.backend.ref(info.no, branch)
        head = reader.commit(ref.seq if ref is not None else reader.last_seq())
        schema: Schema[Any] = Schema(Any, id=head.schema_id, version=head.schema_version)
        return WorkingCopy(self._context, info.name, schema, branch, incarnation=info.incarnation)

    def _any_branch(self, info: AgentInfo) -> str:
        """Main, or where that was deleted another branch."""
        refs = self._context.backend.refs(info.no)
        names = [ref.name for ref in refs if ref.kind == "branch" and not ref.deleted]
        return MAIN if MAIN in names or not names else names[0]

    def export_log(self, info: AgentInfo) -> Iterator[LogEntry]:
        """The whole log of one incarnation of an agent as exact bytes, oldest first; commits that
        are made meanwhile are not in it.

        Raises:
            Corrupt: naming the commit.
        """
        return export_log(self._context.backend, LogReader(self._context.backend, info))

    def import_log(
        self, entries: Iterable[LogEntry], *, root: str | None = None,
        progress: Progress | None = None, total: int = 0,
    ) -> Verified:  # fmt: skip
        """Take in a log that `export_log` gave, byte by byte, so that every commit id holds here
        too. Checked before anything is written, and written in one transaction.

        Args:
            root: the id of the source's last commit; only it shows that the end is not missing.
            progress: called with entries read so far, and `total`.

        Raises:
            Corrupt: the entries are no whole log.
            Conflict: the store has an agent of that name.
        """
        return import_log(self._context, entries, root=root, progress=progress, total=total)

    # -- runs ------------------------------------------------------------------------------

    def run(
        self, function: Callable[Concatenate[Run[T], P], R], agent: str, /,
        *args: P.args, **kwargs: P.kwargs,
    ) -> R:  # fmt: skip
        """Run an agent function durably on an agent, and return its result.

        Asked for again, a run that is finished gives its recorded result; one whose executor died
        goes on at the step where it was; one that a living executor has is stood by for, and taken
        over when that one dies. So a standby is just the same call in another process.

        Raises:
            Conflict: the run was started with other arguments (use another key), or another run
                has the branch and nobody is running it.
            NeedsAttention: a person must settle something; the message says what and how.
            Exception: what the function raised, now or when it was run before.
        """
        return self.options().run(function, agent, *args, **kwargs)

    def options(self, *, key: str = MAIN) -> Options:
        """The same store, for runs under another key: one command, one key.

        Raises:
            ValueError: the key is empty, longer than 200 characters, or no text.
        """
        check_name(key, "a run's key")
        return Options(self._runner, key)

    def runs(self, agent: str | None = None, *, unfinished: bool = False) -> list[RunInfo]:
        """The runs of one agent or of all, oldest first."""
        return self._context.backend.runs(agent=agent, unfinished=unfinished)

    def handle(self, run_id: str) -> RunHandle[Any]:
        """A handle on a run by its id.

        Raises:
            NotFound: there is none.
        """
        found = self._context.backend.runs(run_id=run_id)
        if not found:
            raise NotFound("there is no such run", target=f"run {run_id}")
        return RunHandle(self._context, found[0])

    def alive(self, executor: str) -> bool:
        """Whether an executor, e.g. a branch's `holder`, may still be running. In doubt, the
        answer is True until its time is up."""
        return self._context.backend.alive(executor)

    # -- housekeeping ----------------------------------------------------------------------

    def check_pages(self) -> None:
        """Read every page of the store and check it.

        Raises:
            Corrupt: with what is damaged.
        """
        self._context.backend.maintain("check")

    def sizes(self, name: str | None = None) -> Sizes:
        """Bytes kept for one agent, or for all.

        Raises:
            NotFound: there is no such agent.
        """
        if name is None:
            return self._context.backend.maintain("sizes")
        info = self._context.backend.agent(name)
        if info is None:
            raise NotFound("there is no such agent", target=f"agent {name!r}")
        return self._context.backend.maintain("sizes", no=info.no)

    def flush(self) -> None:
        """Make everything that was acknowledged durable, whatever the store's durability."""
        self._context.backend.maintain("flush")


class Options:
    """How runs are to be made; from `Store.options`."""

    def __init__(self, runner: Runner, key: str, fakes: Fakes | None = None) -> None:
        self._runner = runner
        self._key = key
        self._fakes = fakes

    def run(
        self, function: Callable[Concatenate[Run[T], P], R], agent: str, /,
        *args: P.args, **kwargs: P.kwargs,
    ) -> R:  # fmt: skip
        """As `Store.run`."""
        _check_name(agent)
        command = Command(function, agent, self._key, args, kwargs, self._fakes)
        return self._runner.run(command)  # type: ignore[no-any-return]


def _check_name(agent: str) -> None:
    check_name(agent, "an agent")
