"""The end of an attempt at a run: what its function came to, as the last commit that this makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from perdure import errors
from perdure.core.format import records
from perdure.core.values.plain_values import Plain
from perdure.engine.control.stopping import stop_in_circle
from perdure.engine.control.unbegun import tell_others
from perdure.engine.dispatch.branch_lease import BranchLease
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.drive_end import (
    End,
    FinishedMeanwhileError,
    NextTurn,
    RunResult,
    Unloaded,
    cancelled_end,
)
from perdure.engine.dispatch.heartbeat import Heartbeat
from perdure.engine.execution.driven_run import Ends
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.compensations import UndoneError, plan_of, undoing_turn
from perdure.engine.functions.other_versions import misfit
from perdure.engine.functions.time_taken import TimeTaken, earlier, whole_ms
from perdure.engine.functions.turn_end import Again, handed_on, next_turn
from perdure.engine.journal.deferred_records import PutOff
from perdure.engine.journal.effects import Carried, uncarried
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.engine.journal.lacking_resources import lacking, lacks
from perdure.engine.journal.leaving import CancelAsked, DeadlinePassed, overdue
from perdure.engine.journal.own_errors import its_own
from perdure.engine.journal.values import Results
from perdure.engine.journal.waits import Suspended
from perdure.model import Cause, RunInfo
from perdure.state.context import Context
from perdure.state.runs.family_messages import to_family
from perdure.state.runs.run_rows import FINISHED, row_problem, row_text
from perdure.state.runs.unused_signals import Unused
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import HERE
from perdure.storage.log.refusals import UnreadError
from perdure.system.late_imports import NotLoadedError


class Means(Struct, frozen=True):
    """The parts of a store that execute runs."""

    context: Context
    liveness: Heartbeat
    wakeups: Wakeups


class _UndoesFirstError(Exception):
    """The run does not end yet: in this turn, what it did is undone."""

    def __init__(self, turn: records.Turn) -> None:
        super().__init__()
        self.turn = turn


class Conclusion:
    """See the module. The part of a `Drive` that ends it; what it ends is the drive's.

    Attributes:
        version: the run's, or of its order, when last looked at.
    """

    id: str
    version: str
    working: WorkingCopy[Any]

    _means: Means
    _command: Command
    _function: Any
    _given: Any
    _hold: BranchLease
    _row: RunInfo
    _results: Results
    _deadline: int
    _ends: Ends
    _taken: TimeTaken | None
    _mail: RunInbox | None
    _failed: Exception | None
    """The error that it fails with once what it did is undone."""

    def _begun(self, info: RunInfo) -> records.Started | None:
        """The record of the run's begin."""
        raise NotImplementedError

    def conclude(self, execution: Execution[Any], result: Any, error: BaseException | None) -> End:
        """Records the outcome of the function's call. Code that kept its `run` cannot use it any
        more."""
        execution.writer.close()
        try:
            return self._concluded(execution, result, error)
        except _UndoesFirstError as first:
            self._turn(execution, first.turn)
            return NextTurn()
        finally:
            execution.interrupt(
                errors.PerdureError("its function has ended", target=f"run {self.id}")
            )

    def _concluded(
        self, execution: Execution[Any], result: Any, error: BaseException | None
    ) -> End:
        if isinstance(error, errors.RunInterrupted):
            execution.interrupt(error.reason)
        if execution.interrupted is not None:  # whatever it caught, and raised or returned instead
            return self._stopped(execution, execution.interrupted.reason, error)
        if isinstance(
            error, errors.NeedsAttention | NotLoadedError
        ):  # also that of a run inside it
            return self._stopped(execution, error, None)
        if (lacked := lacking(error)) is not None:
            return self._stopped(execution, self._lacks(lacked), lacked)
        assert error is None or isinstance(error, Exception)
        if isinstance(error, UndoneError):
            raise self._undone(execution, error.why)
        turn: records.Turn | None = None
        plain: Plain = None
        try:
            execution.check_finished(error)
            if isinstance(result, Again):
                execution.news()  # a turn may hold no other boundary
                execution.check_stop()
                given, function, until = self._given, self._function, self._handed_on()
                turn = its_own(lambda: next_turn(self.id, function, result, given, until))
            elif error is None:
                plain = its_own(lambda: handed_on(self.id, lambda: self._results.take(result)))
        except errors.RunInterrupted as interrupt:
            return self._stopped(execution, interrupt.reason, error)
        except errors.UnknownZone as unknown:
            return self._stopped(execution, self._lacks(unknown), unknown)
        except (Carried, errors.PerdureError) as raised:
            error = uncarried(raised)
            if isinstance(error, errors.NeedsAttention):
                return self._stopped(execution, error, None)
        if error is not None:
            self._fail(execution, error, overdue=execution.undoes == "overdue")
            raise error
        try:  # I8: a store that is busy now is no failure of the function, which would be its end
            if turn is not None:
                self._turn(execution, turn)
                return NextTurn()
            self._finish(execution, "done", plain)
        except errors.Unstorable as too_big:
            try:
                self._fail(execution, too_big)
            except errors.Unstorable:  # so is what waited
                execution.writer.take_waiting()
                self._fail(execution, too_big)
            raise
        return RunResult(self._results.build(plain))

    def _handed_on(self) -> int | UnsetType:
        """The deadline of the next turn; 0: that of its parent counted, and does no longer."""
        began = self._begun(self._row)
        return self._deadline or (0 if began is not None and began.until else UNSET)

    def _lacks(self, error: errors.UnknownZone) -> errors.NeedsAttention:
        return lacks(error, self.id, f"agent {self.working.name!r}, run {self.id}")

    def _turn(self, execution: Execution[Any], record: records.Turn) -> None:
        row = replace(self._row, turn=self._row.turn + 1, turn_at=HERE)
        execution.carry_tickets()
        if self._taken is not None:
            now = whole_ms(self._means.context.backend.now())
            record = replace(record, spent=self._taken.until(now))
        if execution.before is not None:
            record = execution.before.carried_on(record, self._row)
        if (carried := execution.journal.surroundings.carried(self.id)) is not None:
            execution.writer.later(Riders([carried]))
        self._commit(execution, "run-turn", record, row, last=False)
        self._row = replace(row, turn_at=self.working.seq)
        self._mail = execution.mail.next_turn()

    def _undone(
        self, execution: Execution[Any], why: str | Mapping[str, Plain]
    ) -> FinishedMeanwhileError | Exception:
        """Ends the run when all that it did is undone; returns what its caller gets."""
        if isinstance(why, str):
            self._commit(execution, *cancelled_end(self._row, why))
            return FinishedMeanwhileError()
        failure = dict(why)
        self._finish(execution, "failed", failure, row_problem(failure))
        return self._failed or rebuild_error(failure, f"run {self.id}")

    def _fail(self, execution: Execution[Any], error: Exception, *, overdue: bool = False) -> None:
        failure = error_record(error)
        if (turn := self._to_undo(execution, failure)) is not None:
            self._failed = error
            raise _UndoesFirstError(turn)
        self._finish(execution, "failed", failure, row_problem(failure), overdue=overdue)

    def _finish(
        self,
        execution: Execution[Any],
        status: Any,
        value: Plain,
        problem: str | None = None,
        *,
        overdue: bool = False,
    ) -> None:
        record = records.Finished(run=self.id, status=status, value=value, overdue=overdue)
        row = replace(self._row, status=status, ended=HERE, result=value, problem=problem)
        if self._commit(execution, "run-finished", record, row).status != status:
            raise FinishedMeanwhileError

    def _stopped(
        self, execution: Execution[Any], reason: errors.PerdureError, error: BaseException | None
    ) -> End:
        """Records the reason why the function was left, if others must know it; other reasons leave
        the run to the next executor."""
        cause = error if isinstance(error, Exception) else reason.__cause__
        match reason:
            case Suspended():
                ends_at = 0 if execution.is_undone else self._ends.at
                wake_at = earlier(reason.wake_at, ends_at)
                seen = reason.seen
                record: records.Record = records.Waiting(
                    run=self.id, waits=reason.waits, wake_at=wake_at, seen=seen
                )
                row = replace(
                    self._row,
                    status="waiting",
                    waits=row_text(reason.waits),
                    wake_at_micros=wake_at,
                    seen=seen,
                )
                self._commit(execution, "run-waiting", record, row)
                if reason.runs and not row.wake_at_micros:  # I8
                    stop_in_circle(self._means.context, self._means.wakeups, self.id, reason.runs)
                return Unloaded()
            case errors.NeedsAttention():
                execution.writer.drop_unordered()
                row, ours = self._row, not execution.writer.take_back()
                if not ours:  # nothing of it is in the log: the run's own version may continue
                    execution.seeing.catch_up()
                    reason = misfit(reason, self._function, self.version)
                    row = replace(row, version=self.version)
                record = records.Stopped(run=self.id, problem=str(reason))
                row = replace(row, status="needs_attention", problem=row_text(str(reason)))
                self._commit(execution if ours else None, "run-stopped", record, row)
                if row.parent:
                    self._means.wakeups.tell(row.parent)
            case CancelAsked() | DeadlinePassed() if turn := self._to_undo(execution, reason):
                self._turn(execution, turn)
                return NextTurn()
            case CancelAsked():
                self._commit(execution, *cancelled_end(self._row, reason.problem))
                raise FinishedMeanwhileError from cause  # its row says how, whoever asks
            case DeadlinePassed():
                late = overdue(self.id, reason.problem)
                self._fail(execution, late, overdue=True)
                raise late
        raise reason from cause

    def _commit(
        self, execution: Execution[Any] | None, kind: str, record: records.Record,
        row: RunInfo, *, last: bool = True,
    ) -> RunInfo:  # two lines, for the limit of the file  # fmt: skip
        """Makes the last commit of an execution, with all that waited for one, and news for those
        that wait for the run. A commit that ends the run notes the signals that nobody took, and
        tells the run's parents. Returns its row as it is then: if the run was asked to end, it has
        ended."""
        waiting = execution.writer.take_waiting() if execution else PutOff()
        if execution is not None:
            waiting.add(execution.late_answers())
            execution.seeing.catch_up()
        before, taken = waiting.records, waiting.consumed
        riders = Riders([*before, record], sync=last, release=last, consumed=taken)
        anew = row.status == "cancelled"  # else most runs have nothing left, and need not ask
        while True:
            if row.status in FINISHED:
                backend, mail = self._means.context.backend, execution and execution.mail
                unused = mail.unused(anew=anew) if mail else Unused.read(backend, self.id)
                if unused.cancels and row.status != "cancelled":
                    why = str(unused.cancels[0].value or "")
                    if execution is not None:
                        self._undo_first(execution, why, waiting)
                    kind, record, row = cancelled_end(self._row, why)
                riders = replace(
                    riders,
                    records=[*before, *unused.records(record)],
                    read_to=unused.read_to,
                    consumed=[*taken, *unused.consumed],
                    sends=to_family(
                        backend, row, self.working.reader, unused.asked, overdue=_is_overdue(record)
                    ),
                )
            try:
                self.working.commit_delta([], self._cause(kind), replace(riders, runs=[row]))
                break
            except UnreadError:
                anew = True
            except errors.Unstorable:
                if execution is not None:
                    execution.writer.put_back(waiting)
                raise
        if last:
            self._hold.released()
            tell_others(self._means.context, self._means.wakeups, self.id, riders.sends)
        return row

    def _to_undo(
        self, execution: Execution[Any], reason: errors.PerdureError | Mapping[str, Plain]
    ) -> records.Turn | None:
        """Returns the record of a turn in which what the run did is undone before it ends for this
        reason, see `undoing_turn`; None if there is nothing, or none of it is to be."""
        if execution.undoes or not self._compensates():
            return None
        plan = plan_of(execution, under_way="in doubt")
        if not plan:
            return None
        # They are heard: in the next turn they would be news, and end it before all is undone.
        asked = [one.no for one in execution.mail.cancels()]
        execution.mail.take(asked)
        execution.writer.later(Riders(consumed=asked))
        return undoing_turn(self.id, plan, reason)

    def _compensates(self) -> bool:
        """True if what the run did is undone before a bad end, as its function says now, or said
        when it began."""
        began = self._begun(self._row)
        return spec_of(self._function).compensate or (began is not None and began.compensate)

    def _undo_first(self, execution: Execution[Any], why: str, waiting: PutOff) -> None:
        """Refuses the last commit of a run that was cancelled behind its last call, and undoes what
        it did before it ends."""
        turn = self._to_undo(execution, CancelAsked(why, target=f"run {self.id}"))
        if turn is not None:
            execution.writer.put_back(waiting)
            raise _UndoesFirstError(turn)

    def _cause(self, kind: str) -> Cause:
        return Cause(kind, self._command.order.function, run=self.id)


def _is_overdue(record: records.Record) -> bool:
    return isinstance(record, records.Finished) and bool(record.overdue)
