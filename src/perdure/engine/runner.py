"""Starting, resuming and standing by for runs: who executes one, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from perdure.core.values import Plain
from perdure.engine.current import Frame, counted, current, inside
from perdure.engine.failures import error_record, rebuild_error
from perdure.engine.functions import AgentSpec, spec_of
from perdure.engine.journal import Journal
from perdure.engine.liveness import LEASE_TTL, Claim, Liveness
from perdure.engine.run import Fakes, Run
from perdure.engine.values import Results, bind, digests, preview
from perdure.errors import Conflict, Fenced, NeedsAttention, PerdureError, RunFailed, RunInterrupted
from perdure.model import Cause, RunInfo
from perdure.state.context import Context
from perdure.state.extras import Extras
from perdure.state.projections import FINISHED, row_problem, row_text
from perdure.state.working import WorkingCopy
from perdure.storage.committer import HERE, HeldError

STANDBY_S = 0.02
"""How often a standby looks whether the owner has ended. The lock file's look-up costs 10 µs."""


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
    """A run is named by agent, function and key, and by the agent's incarnation after the first.

    The id separates them by ``/`` and ``~``, which are escaped as in URLs where a name has them.
    """
    parts = (agent, function, key)
    joined = "/".join(
        part.replace("%", "%25").replace("/", "%2F").replace("~", "%7E") for part in parts
    )
    return joined + (f"~{incarnation}" if incarnation > 1 else "")


class Runner:
    """Executes runs for one open store."""

    def __init__(self, context: Context, lease_ttl: timedelta = LEASE_TTL) -> None:
        self._context = context
        self._liveness = Liveness(context, lease_ttl)

    def close(self) -> None:
        self._liveness.stop()

    def run(self, command: Command) -> Any:
        """Start the run, resume it, or stand by while a living executor has it; see `Store.run`."""
        self._refuse_waiting_for_itself(command)
        while True:
            working: WorkingCopy[Any] = WorkingCopy(
                self._context, command.agent, command.spec.schema, "main"
            )
            attempt = _Attempt(self._context, command, working, self._liveness)
            info = attempt.find()
            if info is not None and info.status in FINISHED:
                return attempt.recorded(info)
            attempt.refuse_other_arguments(info)
            self._liveness.settle()
            if self._must_wait(attempt, info):
                time.sleep(STANDBY_S)
                continue
            self._liveness.start()
            try:
                return attempt.execute()
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
            ref is not None and ref.holder is not None and not self._liveness.leaked(reader.no, ref)
            and self._context.backend.alive(ref.holder)
        )  # fmt: skip
        if not live:
            attempt.refuse_while_another_is_unfinished(info)
        return live

    def _refuse_waiting_for_itself(self, command: Command) -> None:
        frame = current()
        while frame is not None:
            run = frame.run
            if run is not None and run.agent == command.agent and run.context is self._context:
                raise PerdureError(
                    f"run {run.id} has the agent, and would wait for itself",
                    target=f"agent {command.agent!r}",
                    hint="call the function as it is, or run it on another agent",
                )
            frame = frame.outer


class _Attempt:
    """One try at executing a run in this process."""

    def __init__(
        self, context: Context, command: Command, working: WorkingCopy[Any], liveness: Liveness
    ) -> None:
        self._context = context
        self._command = command
        self.working = working
        self._liveness = liveness
        arguments = bind(command.function, command.args, command.kwargs, skip=1)
        self._digests = digests(arguments)
        self._preview = preview(arguments)
        joined = "\0".join(f"{name}={digest}" for name, digest in sorted(self._digests.items()))
        self._args = sha256(joined.encode()).hexdigest()[:16]
        self._results = Results(command.function)
        self._started = HERE

    @property
    def id(self) -> str:
        spec, working = self._command.spec, self.working
        return run_id(working.name, spec.name, self._command.key, working.incarnation)

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

    def refuse_while_another_is_unfinished(self, info: RunInfo | None) -> None:
        """For when nobody has the lease: what another run left must be finished first.

        Raises:
            Conflict: naming that run, and the way out.
        """
        reader = self.working.reader_if_created()
        if reader is None:
            return
        for run in self._context.backend.runs(agent=self.working.name, unfinished=True):
            ours = run.id == self.id or run.branch != "main" or run.agent_no != reader.no
            if not ours and (info is None or info.started > run.started):
                raise Conflict(
                    f"run {run.id} has the branch: it is not finished ({run.status}), and nobody "
                    "is running it",
                    target=f"agent {self.working.name!r}",
                    hint=run.problem or "run it again to finish it, or cancel it",
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

    def execute(self) -> Any:
        """Take the lease, replay, go on, and record how it ended.

        Raises:
            HeldError, Fenced: another executor has the run.
            NeedsAttention: with the way out.
            Exception: the function's own.
        """
        working = self.working
        with working.lock:
            self._create()
            claim = Claim(working.reader.no, working.branch)
            try:
                working.epoch = self._liveness.take(claim)
                run = self._begin()
                with counted(), inside(Frame(run, "function")):
                    return self._execute(run)
            except RunInterrupted as interrupt:  # before the function was called
                raise interrupt.reason from None
            finally:
                self._liveness.release(claim)

    def _create(self) -> None:
        working = self.working
        working.load()
        try:
            working.create()
        except Conflict:  # by another process, which was asked for the same at the same moment
            working.reopen_if_created_meanwhile()
            working.load()

    def _begin(self) -> Run[Any]:
        """The run, ready to go over what is recorded; all is looked up anew under the lease."""
        working = self.working
        working.refresh()
        info = self.find()
        if info is not None and info.status in FINISHED:
            raise _FinishedMeanwhileError
        self.refuse_other_arguments(info)
        self.refuse_while_another_is_unfinished(info)
        if info is None:
            journal = Journal(self.id)
            run = Run(working, self.id, journal, self._command.fakes)
            record = {
                "t": "run-started", "run": self.id, "function": self._command.spec.name,
                "key": self._command.key, "args": self._digests, "preview": self._preview,
            }  # fmt: skip
            run.commit(self._cause("run-started"), (record,), runs=[self._row("running")])
            self._started = working.seq
            journal.origin = working.reader.commit(self._started).id
            return run
        self._started = info.started
        if info.status != "running":  # it was stopped, and is not any more
            row = [self._row("running")]
            extras = Extras(records=[{"t": "run-resumed", "run": self.id}], runs=row)
            working.commit_delta([], self._cause("run-resumed"), extras)
        commits = []
        for commit in working.reader.ancestors(working.seq):
            if commit.seq <= info.started:
                break
            commits.append(commit)
        origin = working.reader.commit(info.started).id
        journal = Journal.read(self.id, reversed(commits), origin)
        working.rewind(info.started)
        return Run(working, self.id, journal, self._command.fakes)

    def _execute(self, run: Run[Any]) -> Any:
        try:
            result = self._command.function(run, *self._command.args, **self._command.kwargs)
            if run.interrupted:
                raise run.interrupted
            run.check_finished()
            plain = self._results.take(result)
        except RunInterrupted as interrupt:
            raise self._stopped(run, interrupt.reason) from interrupt.reason.__cause__
        except Exception as error:
            if run.interrupted:  # it caught what must not be caught, and raised something else
                raise self._stopped(run, run.interrupted.reason) from error
            failure = error_record(error)
            self._finish(run, "failed", failure, problem=row_problem(failure))
            raise
        self._finish(run, "done", plain)
        return self._results.build(plain)

    def _finish(self, run: Run[Any], status: Any, value: Plain, problem: str | None = None) -> None:
        record = {"t": "run-finished", "run": run.id, "status": status, "value": value}
        row = replace(self._row(status), ended=HERE, result=value, problem=problem)
        try:
            run.commit(self._cause("run-finished"), (record,), sync=True, runs=[row], release=True)
        except RunInterrupted as interrupt:
            raise interrupt.reason from interrupt.reason.__cause__

    def _stopped(self, run: Run[Any], reason: PerdureError) -> PerdureError:
        """Record that a person is needed; other reasons leave the run to whoever is next."""
        if not isinstance(reason, NeedsAttention):
            return reason
        record = {"t": "run-stopped", "run": run.id, "problem": str(reason)}
        row = replace(self._row("needs_attention"), problem=row_text(str(reason)))
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
