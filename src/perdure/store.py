"""The store: opening one, its agents, and running agent functions on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from perdure.agents import Agent
from perdure.core.arguments.checks import count, flag
from perdure.core.arguments.checks import function as callable_
from perdure.core.arguments.names import check_name, check_words
from perdure.core.schema.digest_keys import DigestKey, DigestKeys, digest_keys
from perdure.core.schema.schema import Schema
from perdure.engine.control.deletions import deleting, wait_for_each
from perdure.engine.control.naming_all import CheckpointedAll, checkpoint_all
from perdure.engine.control.open_questions import open_questions
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.control.run_listing import list_runs, wanted_runs
from perdure.engine.control.waiting_for_runs import wait_until
from perdure.engine.dispatch.heartbeat import LEASE_TTL
from perdure.engine.dispatch.open_settings import check_settings
from perdure.engine.dispatch.run_options import Options as Options
from perdure.engine.dispatch.runner import Runner
from perdure.engine.functions.run import Run
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.questions import Question
from perdure.missing import MISSING
from perdure.model import MAIN, AgentInfo, Durability, RunInfo, RunStatus, Verified
from perdure.retention.housekeeping import Housekeeping
from perdure.retention.purging import incarnations, origins
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.checkpoints import config_hash
from perdure.state.context import Context
from perdure.state.guards import Guards
from perdure.state.incarnation import own_agent
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.state.working_copy import WorkingCopy
from perdure.storage.capabilities import Backend
from perdure.storage.group_policy import GROUPED, GroupPolicy
from perdure.storage.locate import is_store_file as is_store_file
from perdure.storage.locate import locate
from perdure.storage.log.committer import Committer
from perdure.storage.log.reader import LogReader
from perdure.transfer.portable_file import PORTABLE_VERSION as PORTABLE_VERSION
from perdure.transfer.portable_file import read_file as read_file
from perdure.transfer.whole_log import LogEntry as LogEntry
from perdure.transfer.whole_log import Progress, export_log, import_log

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def open(
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
) -> Store:
    """Opens a store, making it if it is not there.

    Args:
        url: a path, ``sqlite:///path``, ``postgresql://…`` (docs/postgres.md), or ``memory://``.
        durability: when a commit is acknowledged: ``"sync"`` after its fsync; ``"group"`` at one
            fsync per 64 commits or 20 ms, or as `group` says; ``"os"`` without (survives the
            process, not the machine). Outcomes of tools are always recorded at ``"sync"``.
        snapshots: when whole states are stored; the default weighs deltas.
        create: False refuses a store that is not there, e.g. for tools that only look.
        lease_ttl: the time for which this process counts as alive after its last heartbeat (it
            sends one every third of that), if it is paused or cut off. A process that ended is
            known to be dead at once, whatever this is.
        checkpoints: which commits of runs that execute here are named as checkpoints by themselves;
            default: none.
        digest_key: the key under which arguments that `record_args=` leaves out of the log are told
            apart, of 16 bytes or more; or several, the newest first. Kept outside of the store, it
            keeps who has that from trying values. Default: ``PERDURE_DIGEST_KEY``; else none.
        group: when commits at ``"group"`` reach the disk: all but tools' where that is the
            store's durability, and those of steps that say so.
        guards: what runs that resume here are compared by; default: what their checkpoints name.

    Raises:
        NotFound: it is not there and `create` is False.
        NotAStore, UnsupportedFormat, Corrupt, StoreUnavailable: it cannot be used as it is.
        TypeError, ValueError: an argument is invalid; nothing was opened.
    """
    lease_ttl = check_settings(snapshots, checkpoints, lease_ttl, group, guards)
    keys, create, group = digest_keys(digest_key), flag(create, "create="), group or GROUPED
    backend = locate(url, durability=durability, create=create, group=group)
    return Store(backend, snapshots, lease_ttl, checkpoints, keys, guards)


class Store(Housekeeping):
    """An open store. Safe to share between threads; close it, or use it in a ``with``. Anything
    that reads or writes may raise `StoreUnavailable` and `Corrupt`."""

    def __init__(
        self,
        backend: Backend,
        snapshots: SnapshotPolicy | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        checkpoints: CheckpointPolicy | None = None,
        keys: DigestKeys | None = None,
        guards: Guards | None = None,
    ) -> None:
        self._context = Context(backend, Committer(backend), snapshots or SnapshotPolicy())
        self._context.checkpoints, self._context.guards = checkpoints, guards
        self._context.digest_keys = digest_keys(None) if keys is None else keys
        self._lease_ttl = lease_ttl
        self._runners: dict[None, Runner] = {}

    def __repr__(self) -> str:
        return f"<perdure store {self.url}>"

    @property
    def url(self) -> str:
        return self._context.backend.url

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Flushes, releases leases, and closes the files. Idempotent."""
        for runner in [*self._runners.values()]:
            runner.close()
        self._context.close()

    @property
    def runner(self) -> Runner:
        """The engine of this store; for `perdure.testing` and for faces of the library. Made when
        first used: most programs that open a store read a little, and run nothing."""
        found = self._runners.get(None)  # in one go, as `setdefault`: there is never a second one
        return found or self._runners.setdefault(None, Runner(self._context, self._lease_ttl))

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
        """Returns a handle on an agent. One that is not there yet is created by its first commit.

        Args:
            name: any text of up to 200 characters; the agent's identity.
            schema: a pydantic model, dataclass, TypedDict, msgspec Struct, or `Schema`; without
                one the state is a plain dict.
            initial: the state to create it with; default: the schema's type, called without
                arguments.

        The handle is bound to the agent that is there now, or to the next one of its name: if that
        is deleted, a late write does not bring it back.

        Raises:
            ValueError: the name is empty or too long. TypeError: the schema is not a type.
            SchemaError: no state may be of this type; it says what to declare instead.
        """
        name, branch = check_name(name, "an agent"), check_name(branch, "a branch")
        declared = Schema.of(schema)
        if schema is not None:
            _ = declared.is_declared
        working = WorkingCopy(self._context, name, declared, branch, initial)
        working.settle()
        return Agent(self._context, working)

    def agents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[AgentInfo]:
        """Returns the store's agents by name, a page at a time: pass the last name as `after`."""
        prefix, after = check_words(prefix, "prefix="), check_words(after, "after=")
        limit = count(limit, "limit=")
        return self._context.backend.agents(prefix, after, limit)

    def find(self, name: str) -> AgentInfo | None:
        """Returns an agent's latest incarnation, deleted or not; None if there is none."""
        return self._context.backend.agent(check_name(name, "an agent"))

    def incarnations(self, name: str) -> list[AgentInfo]:
        """Returns all agents of a name, deleted ones too, oldest first."""
        return [*incarnations(self._context.backend, check_name(name, "an agent"))]

    def origins(self, info: AgentInfo) -> list[AgentInfo]:
        """Returns the agents whose logs one reads, because it is a copy of them, the nearest first.
        They may be deleted.

        Raises:
            NotFound: it is not from this store, or one of them is not there.
        """
        return [*origins(self._context.backend, self._ours(info))]

    def delete(
        self,
        name: str | None = None,
        *,
        prefix: str | None = None,
        purge: bool = False,
        cancel_runs: bool = False,
        timeout: float | timedelta | None = None,
    ) -> list[str]:
        """Deletes an agent, or all agents whose names begin with `prefix`; returns their names.
        What was requested of them and has not begun goes along, also of agents that are not there
        yet. Each is deleted in whole or not at all.

        A name may be used again, for a new incarnation; a write that was under way in the old one
        fails and cannot bring it back. Its log stays, for an audit; with `purge` the next
        `Store.purge` removes it.

        Args:
            cancel_runs: ends runs that are executed, and waits: they leave at their next step.
            timeout: the longest time to wait for runs, seconds or a timedelta.

        Raises:
            NotFound: there is no such agent.
            Conflict: a living executor is running one, on whatever branch. The others are deleted.
            TimedOut: a run was asked to end, and has not ended. Its agent is not deleted.
        """
        until = wait_until(cancel_runs, timeout, "cancel_runs")
        deletion = self._deleting(name, prefix=prefix, purge=purge, cancel_runs=cancel_runs)
        return wait_for_each(deletion, until)

    def _deleting(self, name: str | None, **how: Any) -> Generator[RunHandle[Any], None, list[str]]:
        """For the faces: the same, which yields the runs that are to be waited for."""
        return deleting(self._context, self.runner.wakeups, name, **how)

    def checkpoint_all(
        self,
        name: str,
        *,
        prefix: str = "",
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> CheckpointedAll:
        """Names the states of all agents, on their main branches, as of one moment by the store's
        clock, also of those whose runs execute: they hear nothing of it.

        Args:
            prefix: only of agents whose names begin so.
            config, dependencies: as for `Agent.checkpoint`.

        Returns:
            The moment, the checkpoints by agent, and why an agent has none.

        Raises:
            ValueError, TypeError: the name, or another argument, is invalid.
        """
        prefix, digest = check_words(prefix, "prefix="), config_hash(config)
        return checkpoint_all(self._context, name, prefix, digest, dependencies)

    def agent_of(self, info: AgentInfo, *, branch: str = MAIN) -> Agent[dict[str, Any]]:
        """Returns a handle on one incarnation of an agent with its state as a plain dict, whatever
        its schema: for tools that look around."""
        return Agent(self._context, self._working(self._ours(info), check_name(branch, "a branch")))

    def _ours(self, info: AgentInfo) -> AgentInfo:
        return own_agent(self._context.backend, info)

    def _working(self, info: AgentInfo, branch: str) -> WorkingCopy[Any]:
        """Returns a branch with its state as it was written, whatever its schema."""
        reader = LogReader(self._context.backend, info)
        ref = self._context.backend.ref(info.no, branch)
        head = reader.peek(ref.seq if ref is not None else reader.last_seq())
        schema: Schema[Any] = Schema(Any)
        schema.id, schema.version = head.schema_id, head.schema_version  # as they are, even odd
        return WorkingCopy(self._context, info.name, schema, branch, incarnation=info.incarnation)

    def export_log(self, info: AgentInfo, *, until: int | None = None) -> Iterator[LogEntry]:
        """Yields the present log of one incarnation of an agent as exact bytes, oldest first.

        Args:
            until: the last commit to yield, e.g. the one before a damaged one. One more says what
                retention has since removed up to there.

        Raises:
            Corrupt: a commit cannot be read; see the hint.
            NotFound: there is no commit `until`, or retention removed `main`'s state there.
        """
        reader = LogReader(self._context.backend, self._ours(info))
        return export_log(self._context.backend, reader, until)

    def import_log(
        self,
        entries: Iterable[LogEntry],
        *,
        root: str | None = None,
        progress: Progress | None = None,
        total: int = 0,
    ) -> Verified:
        """Takes in a log from `export_log`, byte by byte, so that every commit id stays valid here.
        Checked before anything is written, and written in one transaction.

        Args:
            root: the id of the source's last commit; only it shows that the end is not missing.
            progress: called with entries read so far, and `total`.

        Raises:
            Corrupt: the entries are not a whole log.
            Conflict: the store has an agent of that name.
        """
        if root is not None:
            root = check_words(root, "root=")
        if progress is not None:
            callable_(progress, "progress=")
        total = count(total, "total=")
        return import_log(self._context, entries, root=root, progress=progress, total=total)

    # -- runs ------------------------------------------------------------------------------

    def run(
        self,
        function: Callable[Concatenate[Run[T], P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Runs an agent function durably on an agent, and returns its result.

        Called again, it returns the recorded result of a finished run; it resumes a run whose
        executor died, at the step where it was; and it stands by for a run that a living executor
        has, and takes over when that one dies. So a standby is just the same call in another
        process. While the run waits (for a signal, an answer, a time) this call waits, too, and
        then resumes it.

        Raises:
            Conflict: the run was started with other arguments (use another key), or another run
                has the branch, and no executor runs it; or it is of a version that nobody replays;
                or the key ends with a branch's name, as a fork's (docs/runs.md, "Which run is it").
            NeedsAttention: a person must settle something; the message says what and how.
            Exception: whatever the function raised, now or before.
        """
        return self.options().run(function, agent, *args, **kwargs)

    @overload
    def start(
        self,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...

    @overload
    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...

    def start(
        self, function: Callable[..., Any], agent: str, /, *args: Any, **kwargs: Any
    ) -> RunHandle[Any]:
        """Requests a run, durably, and returns at once: a worker of this version picks it up.

        Raises:
            Conflict: it was requested with other arguments; use another key.
            Unstorable: an argument is not stored. SchemaError: a new agent's state needs values.
        """
        return self.options().start(function, agent, *args, **kwargs)

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
    ) -> Options:
        """Returns the same store with other settings for runs.

        Args:
            key: names the run: one command, one key. On another branch than main it is another
                run: its name is ``key@branch``.
            queue: for workers that pick up one kind of runs only.
            deadline: the time that it may take from its begin, seconds or a timedelta; then it
                fails with `TimedOut`. Runs that it starts must have ended by then, too.
            time_limit: the same, without the time in queues, and that in which nobody executes it.
            trace: a trace id: each commit of the run has it as `cause.trace`, whichever process
                makes it, and so have those of the runs that it starts.
            initial: the state to create the agent with, if it is not there when the run begins.
            branch: of the agent, on which the run begins, and stays.

        Raises:
            ValueError: key, queue or branch is empty, longer than 200 characters, or not valid
                text; or the deadline or time limit is not positive, or over a thousand years.
            TypeError: an argument has the wrong type.
        """
        return Options(self.runner, key, queue, deadline, trace, initial, time_limit, branch)

    def runs(
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
        """Returns the runs of one agent or of all, oldest first; requested runs that have not begun
        come last, as ``pending``. With a limit the cost depends on what is returned, and on what
        `function` and `parent` skip.

        Args:
            parent: only runs that the run of this id started; ``""``: those that no run started.
        """
        query = wanted_runs(
            agent,
            unfinished=unfinished,
            status=status,
            function=function,
            parent=parent,
            limit=limit,
            newest_first=newest_first,
        )
        return list_runs(self._context.backend, query)

    def questions(
        self,
        agent: str | None = None,
        *,
        after: Question | str | None = None,
        limit: int | None = None,
        damaged_too: bool = False,
    ) -> list[Question]:
        """Returns the questions that runs ask and nobody has answered, of one agent or of all, in
        the order in which their runs began. `RunHandle.answer` answers one: by its `run`, and
        ``to=`` it.

        Args:
            after: the last question of the page before, or its run.
            limit: a page ends with all questions of the run with which it has so many.
            damaged_too: passes over runs that cannot be read.

        Raises:
            Corrupt: the log of a run cannot be read.
        """
        return open_questions(
            self._context.backend, self._questions_of, agent, after, limit, damaged_too
        )

    def _questions_of(self, info: RunInfo) -> list[Question]:
        handle: RunHandle[Any] = RunHandle(self._context, self.runner.wakeups, info.id)
        return handle.questions()

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Returns a handle on a run by its id.

        Raises:
            NotFound: there is none.
        """
        run_id = check_words(run_id, "a run's id")
        agent = find_run(self._context.backend, run_id).agent
        return RunHandle(self._context, self.runner.wakeups, run_id, agent=agent)

    def alive(self, executor: str) -> bool:
        """Returns True if an executor, e.g. a branch's `holder`, may still be running. In doubt it
        is True until its time is up."""
        return self._context.backend.alive(check_name(executor, "an executor"))
