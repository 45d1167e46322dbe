"""One attempt at executing a run in this process: its lease, its replay, and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sys import _getframe
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from perdure import errors
from perdure.core.format.records import Record, Started
from perdure.engine.control.stopping import stop_unread
from perdure.engine.control.unbegun import ended_at_once, tell_others
from perdure.engine.dispatch.branch_lease import BranchLease
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.conclusion import Conclusion
from perdure.engine.dispatch.conclusion import Means as Means
from perdure.engine.dispatch.drive_end import (
    End,
    FinishedMeanwhileError,
    NextTurn,
    branch_taken,
    cancelled_end,
    one_before,
)
from perdure.engine.dispatch.guarding import compare
from perdure.engine.execution import inside_calls as inside_calls  # loaded before it is asked for
from perdure.engine.execution.current_run import RunFrame, current, enter, inside
from perdure.engine.execution.driven_run import NO_END, Ends
from perdure.engine.execution.execution import Execution, executing
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.execution.undoing_here import UndoingHere
from perdure.engine.functions import orders
from perdure.engine.functions.agent_functions import spec_of, taking
from perdure.engine.functions.compensations import (
    compensated,
    plans_begun,
    undoer,
    undoes_one,
    undoing_in,
)
from perdure.engine.functions.other_versions import misfit, recorded_by, version_of
from perdure.engine.functions.run import Run
from perdure.engine.functions.time_taken import TimeTaken, in_words
from perdure.engine.journal.failures import rebuild_error
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.leaving import CancelAsked, end_of, unwrapped
from perdure.engine.journal.left_history import Origins, cut_off, made_before, path_of
from perdure.engine.journal.values import results_of
from perdure.model import Cause, Commit, RunInfo
from perdure.state.initial_state import LateInitial
from perdure.state.others_commits import any_changes
from perdure.state.runs.family_messages import begin_of
from perdure.state.runs.run_rows import FINISHED
from perdure.state.runs.unused_signals import Unused
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.log.commits import UNREADABLE
from perdure.storage.log.proposals import Committed
from perdure.storage.log.refusals import BegunError
from perdure.storage.looks import Look
from perdure.system.locks import is_over


class Drive(Conclusion):
    """See the module. Its methods but `run` and `run_async` may block."""

    execution_type: type[Execution[Any]] = Execution
    working_type: type[WorkingCopy[Any]] = WorkingCopy

    def __init__(self, means: Means, command: Command, look: Look | None = None) -> None:
        self._means = means
        self._command = command
        self._order = command.order
        self._function = command.function
        self._args: tuple[Any, ...]
        self._kwargs: Mapping[str, Any]
        self._given: Any = None
        """The stored arguments of the turn; None: they could not be stored."""
        self.look = look or command.order.look(means.context.backend)
        """The look from when this was made, and later from when it took the lease."""
        self.id = self.look.run = command.order.run_id(self.look)
        begun = self.find()
        self.working: WorkingCopy[Any] = self.working_type(
            means.context,
            command.order.agent,
            command.spec.schema,
            orders.branch_of(self._order, begun, self.look),
            LateInitial(partial(orders.brought_by, self._order, self.look)),
            reads=self.look,
        )
        self.going: Callable[[Execution[Any]], None] = lambda _: None
        """Told of each execution before the function is called."""
        self.wanted: Callable[[RunInfo | None], bool] = lambda _: True
        """Asked with the run as it was looked at: whether it is to be gone on with."""
        self.begun: Callable[[], None] = lambda: None
        """Told that it is this process's turn, and is wanted."""
        self.execution: Execution[Any] | None = None
        self._hold = BranchLease(means.liveness, self.working, self.look)
        self._row: RunInfo
        self.version = command.spec.version  # the run's, or of its order, when last looked at
        self._results = results_of(command.function)
        self._deadline = 0
        self._ends = NO_END
        self._taken: TimeTaken | None = None
        """The part of its time limit that it has taken, if it has one."""
        self._began: Commit | None = None
        self._compared = False
        self._mail: RunInbox | None = None
        self._failed: Exception | None = None
        self._doing: Callable[..., Any] = command.function  # what is called in this turn
        self._asked: str | None = None
        """Why the run was asked to end, where it must first undo what it did."""

    # -- before ------------------------------------------------------------------------------

    def find(self) -> RunInfo | None:
        """The run's row; None: it has not begun."""
        return self.look.run_row()

    def refuse_other_arguments(self, info: RunInfo | None) -> None:
        """Raises Conflict: the run was begun, or asked for, with others."""
        asked = self.look.inbox("start") if info is None else ()
        orders.refuse_others(self._order, self.id, info, asked)

    def refuse_while_another_is_unfinished(self, info: RunInfo | None) -> None:
        """For when nobody has the lease: what another run left must be finished first.

        Raises:
            BranchTaken: naming that run, and the way out.
        """
        if (run := one_before(info, self.id, self.working, self.look)) is not None:
            raise branch_taken(run, self.working.name)

    def recorded(self, info: RunInfo) -> Any:
        """The result of a run that is finished.

        Raises:
            Conflict: it was asked for with other arguments.
            RunFailed: it was cancelled.
            Exception: the one that the run failed with.
        """
        self.refuse_other_arguments(info)
        self.choose_function(info)
        if info.status == "done":
            return self._results.build(info.result)
        if info.status == "cancelled":
            raise errors.RunFailed(f"was cancelled: {info.problem}", target=f"run {info.id}")
        raise rebuild_error(info.result, f"run {info.id}")

    # -- executing ---------------------------------------------------------------------------

    def run(self) -> End:
        """Takes the lease, replays, continues the run, and records how it ended.

        Raises:
            HeldError, Fenced, FinishedMeanwhileError: another executor has, or had, the run.
            NeedsAttention: with the way out.
            Exception: the function's own.
        """
        outer = current()
        self._hold.is_left = partial(is_over, _getframe())
        try:
            execution = self.begin()
            while True:
                self.going(execution)
                outcome, error = None, None
                news = execution.wakeups.watch(execution.id, execution.news)
                with (
                    news,
                    executing(execution),
                    inside(RunFrame(execution, "function", execution.root)),
                ):
                    run, function = Run(execution), self._doing
                    try:
                        outcome = function(run, *self._args, **self._kwargs)
                    except BaseException as raised:
                        raised = unwrapped(raised, execution.interrupted)
                        error = end_of(raised, self.id, function)
                end = self.conclude(execution, outcome, error)
                if not isinstance(end, NextTurn):
                    return end
                execution = self._next_execution()
        finally:
            try:
                self.release()
            finally:
                enter(outer)

    def begin(self) -> Execution[Any]:
        """Returns the run's execution, ready to replay the record."""
        try:
            row = self._begin_at_once()
            self._row = row if row is not None else self._begin_under_lease()
            execution = self._next_execution()
        except (errors.NeedsAttention, errors.UnknownZone, *UNREADABLE) as error:
            self._hold.release()  # I8: it needs a person, and says why
            told = misfit(error, self._function, self.version)
            stop_unread(self._means.context, self._means.wakeups, self.id, told, error)
            raise
        self.look.forget()
        return execution

    def _begin_at_once(self) -> RunInfo | None:
        """Records that the run begins, or continues, and takes the lease with that, if nothing was
        seen that stands in its way. Returns None if nothing is written; the lease must then tell
        what there is."""
        info = self.find()
        if info is not None and (info.status == "running" or info.status in FINISHED):
            return None  # there is nothing to record
        if self.look.inbox("cancel") or not self.wanted(info) or not self.choose_function(info):
            return None
        try:
            self.refuse_other_arguments(info)
            self.refuse_while_another_is_unfinished(info)
        except errors.Conflict:
            return None
        made = self._hold.take_with(*self._beginning(info))
        if made is None:
            return None
        self.begun()
        return self._noted(made)

    def _begin_under_lease(self) -> RunInfo:
        """Looks everything up again under the lease, and records the begin."""
        commit, begins = self.working.commit_delta, True
        made = self._hold.create_with(self._beginning_if_wanted)
        if made is None:
            self._hold.take()
            info = self._find_if_wanted()
            self.begun()
            self.refuse_other_arguments(info)
            self.refuse_while_another_is_unfinished(info)
            begins = info is None
            row = info or self._begin_here()
        else:
            self.begun()
            row = self._noted(made)
            if row.status in FINISHED:
                sent = made.linked.riders.sends
                tell_others(self._means.context, self._means.wakeups, self.id, sent)
                raise FinishedMeanwhileError
        self._row = row
        asked = self.look.inbox("cancel")
        if asked and self._compensates():
            self._asked = str(asked[0].value or "")
        elif asked:
            self._commit(None, *cancelled_end(self._row, str(asked[0].value or "")))
            raise FinishedMeanwhileError
        if row.status != "running" or (not begins and self._limit_of(row)):
            row = self._noted(commit([], *self._beginning(row)))
        return row

    def _begin_here(self) -> RunInfo:
        try:
            return self._noted(self.working.commit_delta([], *self._beginning(None)))
        except BegunError:  # elsewhere, as a fork
            raise FinishedMeanwhileError from None

    def _find_if_wanted(self) -> RunInfo | None:
        info = self.find()
        if info is None:
            there = self._order.run_id(self.look) == self.id
        else:  # as a fork, it is on another branch than where it would have begun
            there = info.status not in FINISHED and info.branch == self.working.branch
        if not there or not self.wanted(info) or not self.choose_function(info):
            raise FinishedMeanwhileError  # or another version has it since it was looked at
        return info

    def _beginning_if_wanted(self) -> tuple[Cause, Riders]:
        self.refuse_other_arguments(self._find_if_wanted())
        cause, begins = self._beginning(None)
        if self.look.inbox("cancel"):  # who had it end, with its parent, was gone before it ended
            mail = Unused.read(self._means.context.backend, self.id)
            began, row = begins.records[0], begins.runs[0]
            assert isinstance(began, Record)
            return self._cause("run-cancelled"), ended_at_once(began, row, mail, "")
        return cause, begins

    def _beginning(self, info: RunInfo | None) -> tuple[Cause, Riders]:
        """The commit that the run begins with or, if it rested, goes on with."""
        working = self.working
        if info is not None:
            began = self._begun(info)
            working.trace = began.trace if began else None
            return self._cause("run-resumed"), orders.resuming(info, self._spent(info))
        branch, asked = working.branch, self.look.inbox("start")
        begins, working.trace = orders.starting(self._order, self._function, self.id, branch, asked)
        self.version = begins.runs[0].version
        return self._cause("run-started"), begins

    def _limit_of(self, info: RunInfo) -> int:
        """The run's time limit, in microseconds; 0: it has none."""
        began = self._begun(info)
        return began.limit if began is not None else 0

    def _begun(self, info: RunInfo) -> Started | None:
        return begin_of(self._first(info), info.id)

    def _spent(self, info: RunInfo) -> int | UnsetType:
        """Returns the part of its time limit that it has taken; UNSET if it has none."""
        reader = self.working.reader
        ref = self.look.ref(reader.no, info.branch)
        if not self._limit_of(info) or ref is None:
            return UNSET
        taken = self._time_taken(info, path_of(reader, ref.seq, info.turn_at))
        now = self._means.context.backend.now()
        return taken.when_resumed(now, self.look.inbox(), info.seen)

    def _time_taken(self, info: RunInfo, newest_first: Sequence[Commit]) -> TimeTaken:
        taken = TimeTaken(info.id)
        taken.note(self.working.reader.commit(info.turn_at))
        for commit in reversed(newest_first):
            taken.note(commit)
        return taken

    def _noted(self, made: Committed) -> RunInfo:
        """The row of a run that begins, or goes on, with this commit."""
        self.look.note(made.no, made.linked)
        return replace(made.linked.riders.runs[0], agent_no=made.no)

    def choose_function(self, info: RunInfo | None) -> bool:
        """Chooses the function for the version that the run is of, or is asked for with; returns
        False if this program cannot continue it."""
        self.version = version_of(info, self.look, self._command.spec.version)
        function = taking(self._command.function, self.version)
        if function is not None and function is not self._function:
            self._function, self._results = function, results_of(function)
        return function is not None

    def _next_execution(self) -> Execution[Any]:
        """Returns the execution from the begin of the run's current turn on."""
        working, info = self.working, self._row
        began = self._first(info)
        if info.turn_at != info.started:
            began = working.reader.commit(info.turn_at)
        commits = path_of(working.reader, working.seq, info.turn_at)
        if any(commit.trimmed for commit in commits):  # retention holds what a run needs
            raise working.reader.trimmed(info.turn_at)
        if commits and commits[-1].parent != info.turn_at:
            raise cut_off(info)
        origins = Origins.of(info, commits)
        # The world has not seen calls that are made again: their keys come from the commit that set
        # the run back, no longer from the one that began the turn.
        origin = (back := origins.back or began).seq, back.id
        journal = Journal.read(self.id, reversed(commits), origin, origins.runs, began)
        guarded = self._compare(journal)
        before = made_before(working.context.backend, working.reader, info, began, origins, journal)
        given = self._read_turn(began, origins) or self._order.input
        if undoes := undoing_in(began, self.id):
            called = undoer(self.id, undoes, is_async=spec_of(self._function).is_async)
        else:
            called = self._function
        self._given, filled_in = orders.completing(called, self.id, journal, given)
        self._args, self._kwargs = self._command.arguments(called, self.id, self._given)
        self._doing = called if undoes else compensated(called)
        if any_changes(commits):
            self._rewind(info.turn_at)  # else the state is what it was then
        options: Any = {"fakes": self._command.fakes, "played": self._command.played}
        self._ends = NO_END if undoes else self._find_end(info, commits)
        options |= {"ends": self._ends, "before": before, "mail": self._mail}
        execution = self.execution_type(working, self.id, journal, self._means.wakeups, **options)
        if undoes:
            execution.undoes = undoes
        if begun := plans_begun(journal):
            execution.calls.undoing = UndoingHere(begun)
        if self._asked is not None and not undoes and not undoes_one(journal):
            # Nothing of it is done any more.
            execution.interrupt(CancelAsked(self._asked, target=f"run {self.id}"))
        self._asked = None
        self._row, noted = recorded_by(self._function, self._row)
        execution.writer.later(guarded)
        execution.writer.later(noted)
        execution.writer.later(filled_in)
        return execution

    def _compare(self, journal: Journal) -> Riders:
        """Compares the surroundings with those that the run recorded, once for each attempt;
        returns what is to be recorded of that."""
        if self._compared or self._command.played is not None:
            return NOTHING
        guards = spec_of(self._function).guards
        noted = compare(self._means.context, guards, self.id, journal.surroundings)
        self._compared = True
        return noted

    def _find_end(self, info: RunInfo, commits: Sequence[Commit]) -> Ends:
        """Returns the end of the run's time: its deadline, or that of its time limit."""
        deadline, limit = self._deadline, self._limit_of(info)
        if not limit:
            return Ends(deadline, deadline=deadline) if deadline else NO_END
        self._taken = taken = self._time_taken(info, commits)
        up = taken.at + max(limit - taken.spent, 0)
        if deadline and deadline <= up:
            return Ends(deadline, deadline=deadline)
        return Ends(up, in_words(limit), deadline)

    def _first(self, info: RunInfo) -> Commit:
        """The commit that began the run; read once."""
        if self._began is None or self._began.seq != info.started:
            self._began = self.working.reader.commit(info.started)
        return self._began

    def _rewind(self, seq: int) -> None:
        self.working.rewind(self.working.reader.fold(seq))

    def _read_turn(self, began: Commit, origins: Origins) -> Any:
        """The arguments of the turn, if stored; notes the deadline and the trace id."""
        turn = orders.read_turn(self._first(self._row), began, origins, self._deadline)
        given, self._deadline, self.working.trace = turn
        return given

    def release(self) -> None:
        """Gives the lease back, however the run ended."""
        self._hold.release()
