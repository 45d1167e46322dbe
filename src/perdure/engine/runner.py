"""Starting, resuming and standing by for runs: who executes one, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from perdure.core.values import Plain
from perdure.engine.current import Frame, counted, inside
from perdure.engine.functions import AgentSpec, spec_of
from perdure.engine.journal import Journal
from perdure.engine.liveness import Liveness
from perdure.engine.run import Fakes, Run
from perdure.engine.values import Results, bind, digests, error_record, preview, rebuild_error
from perdure.errors import Conflict, Fenced, NeedsAttention, PerdureError, RunFailed, RunInterrupted
from perdure.model import Cause, RunInfo
from perdure.state.context import Context
from perdure.state.working import Extras, WorkingCopy
from perdure.storage.committer import HERE, HeldError

STANDBY_S = 0.02
"""How often a standby looks whether the owner has ended. The lock file's look-up costs 10 µs."""

FINISHED = ("done", "failed", "cancelled")


class _FinishedMeanwhileError(Exception):
    """Another executor finished the run while this one waited for the lease."""


@dataclass(frozen=True, slots=True)
class Command:
    """What was asked for: this function, on this agent, under this key, with these arguments."""

    function: Callable[..., Any]
    agent: str
    key: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    fakes: Fakes | None = None

    @property
    def spec(self) -> AgentSpec[Any]:
        return spec_of(self.function)


def run_id(agent: str, function: str, key: str, incarnation: int = 1) -> str:
    """A run is named by agent, function and key, and by the agent's incarnation after the first."""
    return f"{agent}/{function}/{key}" + (f"~{incarnation}" if incarnation > 1 else "")


class Runner:
    """Executes runs for one open store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._liveness = Liveness(context)

    def close(self) -> None:
        self._liveness.stop()

    def run(self, command: Command) -> Any:
        """Start the run, resume it, or stand by while a living executor has it; see `Store.run`."""
        while True:
            working: WorkingCopy[Any] = WorkingCopy(
                self._context, command.agent, command.spec.schema, "main"
            )
            attempt = _Attempt(self._context, command, working)
            info = attempt.find()
            if info is not None and info.status in FINISHED:
                return attempt.recorded(info)
            attempt.refuse_other_arguments(info)
            if self._must_wait(attempt, info):
                time.sleep(STANDBY_S)
                continue
            self._liveness.start()
            try:
                return attempt.execute(info)
            except (HeldError, Fenced, _FinishedMeanwhileError):
                continue  # another executor was faster, or took over: stand by for its result

    def _must_wait(self, attempt: _Attempt, info: RunInfo | None) -> bool:
        """Whether a living executor has this run, or another unfinished run has the branch.

        Raises:
            Conflict: the other run needs attention, or nobody is running it.
        """
        reader = attempt.working.reader_if_created()
        if reader is None:
            return False
        ref = self._context.backend.ref(reader.no, "main")
        live = (
            ref is not None and ref.holder is not None and self._context.backend.alive(ref.holder)
        )
        others = [
            run for run in self._context.backend.runs(agent=attempt.working.name, unfinished=True)
            if run.branch == "main" and run.id != attempt.id and run.agent_no == reader.no
        ]  # fmt: skip
        if others and not live and (info is None or info.started > others[0].started):
            raise Conflict(
                f"run {others[0].id} has the branch: it is not finished ({others[0].status}), and "
                "nobody is running it",
                target=f"agent {attempt.working.name!r}",
                hint=others[0].problem or "run it again to finish it, or cancel it",
            )
        return live


class _Attempt:
    """One try at executing a run in this process."""

    def __init__(self, context: Context, command: Command, working: WorkingCopy[Any]) -> None:
        self._context = context
        self._command = command
        self.working = working
        arguments = bind(command.function, command.args, command.kwargs, skip=1)
        self._digests = digests(arguments)
        self._preview = preview(arguments)
        joined = "\0".join(f"{name}={digest}" for name, digest in sorted(self._digests.items()))
        self._args = sha256(joined.encode()).hexdigest()[:16]
        self._results = Results(command.function)
        self._started = HERE

    @property
    def id(self) -> str:
        reader = self.working.reader_if_created()
        incarnation = reader.incarnation if reader else 1
        return run_id(self.working.name, self._command.spec.name, self._command.key, incarnation)

    def find(self) -> RunInfo | None:
        found = self._context.backend.runs(run_id=self.id)
        return found[0] if found else None

    def refuse_other_arguments(self, info: RunInfo | None) -> None:
        if info is not None and info.args != self._args:
            raise Conflict(
                f"was started with other arguments than {self._preview or 'none'}",
                target=f"run {info.id}",
                hint="another command needs another key: store.options(key=…).run(…), "
                f"not {info.key!r}",
            )

    def recorded(self, info: RunInfo) -> Any:
        """The result of a run that is finished.

        Raises:
            Conflict: it was asked for with other arguments.
            Exception: the one that the run failed with.
        """
        self.refuse_other_arguments(info)
        if info.status == "done":
            return self._results.build(info.result)
        if info.status == "cancelled":
            raise RunFailed(f"was cancelled: {info.problem}", target=f"run {info.id}")
        raise rebuild_error(info.result, f"run {info.id}")

    def execute(self, info: RunInfo | None) -> Any:
        """Take the lease, replay, go on, and record how it ended.

        Raises:
            HeldError, Fenced: another executor has the run.
            NeedsAttention: with the way out.
            Exception: the function's own.
        """
        working = self.working
        with working.lock:
            working.load()
            working.create()
            lease = self._context.take_lease(working.reader.no, working.branch)
            working.epoch = lease.epoch
            try:
                run = self._begin(info)
                with counted(), inside(Frame(run, "function")):  # type: ignore[arg-type]
                    return self._execute(run)
            finally:
                self._release(lease.epoch)

    def _begin(self, info: RunInfo | None) -> Run[Any]:
        working = self.working
        working.refresh()
        info = self.find()  # again, now that nobody else can change it
        if info is not None and info.status in FINISHED:
            raise _FinishedMeanwhileError
        if info is None:
            run = Run(working, self.id, Journal(self.id), self._command.fakes)
            record = {
                "t": "run-started", "run": self.id, "function": self._command.spec.name,
                "key": self._command.key, "args": self._digests, "preview": self._preview,
            }  # fmt: skip
            run.commit(self._cause("run-started"), (record,), runs=[self._row("running")])
            self._started = working.seq
            return run
        commits = []
        for commit in working.reader.ancestors(working.seq):
            if commit.seq <= info.started:
                break
            commits.append(commit)
        journal = Journal.read(self.id, reversed(commits))
        working.rewind(info.started)
        self._started = info.started
        return Run(working, self.id, journal, self._command.fakes)

    def _execute(self, run: Run[Any]) -> Any:
        try:
            result = self._command.function(run, *self._command.args, **self._command.kwargs)
            if run.interrupted:
                raise run.interrupted
            run.check_finished()
            plain = self._results.take(result)
        except RunInterrupted as interrupt:
            raise self._stopped(run, interrupt.reason) from interrupt.__cause__
        except Exception as error:
            if run.interrupted:  # it caught what must not be caught, and raised something else
                raise self._stopped(run, run.interrupted.reason) from error
            failure = error_record(error)
            self._finish(run, "failed", failure, problem=f"{type(error).__name__}: {error}")
            raise
        self._finish(run, "done", plain)
        return self._results.build(plain)

    def _finish(self, run: Run[Any], status: Any, value: Plain, problem: str | None = None) -> None:
        record = {"t": "run-finished", "run": run.id, "status": status, "value": value}
        row = replace(self._row(status), ended=HERE, result=value, problem=problem)
        try:
            run.commit(self._cause("run-finished"), (record,), sync=True, runs=[row], release=True)
        except RunInterrupted as interrupt:
            raise interrupt.reason from None

    def _stopped(self, run: Run[Any], reason: PerdureError) -> PerdureError:
        """Record that a person is needed; other reasons leave the run to whoever is next."""
        if not isinstance(reason, NeedsAttention):
            return reason
        record = {"t": "run-stopped", "run": run.id, "problem": str(reason)}
        row = replace(self._row("needs_attention"), problem=str(reason))
        extras = Extras(records=[record], runs=[row], release=True, sync=True)
        self.working.refresh()
        self.working.commit_delta([], self._cause("run-stopped"), extras)
        return reason

    def _row(self, status: Any) -> RunInfo:
        return RunInfo(
            self.id, self.working.name, 0, self.working.branch, self._command.spec.name,
            self._command.key, status, self._started, args=self._args,
        )  # fmt: skip

    def _cause(self, kind: str) -> Cause:
        return Cause(kind, self._command.spec.name, run=self.id)

    def _release(self, epoch: int) -> None:
        with suppress(PerdureError):  # it expires by itself, and its file lock ends with us
            no = self.working.reader.no
            self._context.backend.lease(no, self.working.branch, None, release=epoch)
