"""Rollback, adoption, undo and redo: new commits that bring earlier states back (I7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.checks import flag
from perdure.core.format import chain
from perdure.core.format.records import Passed, RunCancelled
from perdure.core.undo import undo_plan
from perdure.core.values.ops import OpError
from perdure.core.values.plain_values import Plain
from perdure.errors import Conflict, Corrupt, Hint, NotFound
from perdure.model import Cause, Commit, RunInfo
from perdure.public_data import PublicData
from perdure.state.jump_commits import committing_move, find_head
from perdure.state.runs.family_messages import to_family
from perdure.state.runs.run_rows import MOVED
from perdure.state.runs.unused_signals import Unused
from perdure.state.threads import refuse_inner, refuse_redo, refuse_thinned, refuse_undo
from perdure.state.undo_conflicts import hindrance
from perdure.state.working_copy import Flow, WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.proposals import HERE
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import ConsumedError, UnreadError
from perdure.visible import visible

Back = Literal["undo", "redo"]


class BranchMove(PublicData, Struct, frozen=True):
    """The result of a rollback, adoption, undo or redo.

    Attributes:
        commit: the commit that it made.
        tool_calls: intents of commits that are no longer in the state: their effects on the world
            were not taken back.
        untold: True if some of those commits are damaged, or were removed by retention: their calls
            are unknown.
    """

    commit: Commit
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    untold: bool = False


def moving(
    working: WorkingCopy[Any],
    target: Callable[[], int],
    cause: Callable[[int], Cause],
    *,
    cancel_run: bool,
) -> Flow[BranchMove]:
    """Makes the state of `target` the branch's, as a new commit."""
    flag(cancel_run, "cancel_run=")

    def plan() -> tuple[int, int, Riders, list[Commit]]:
        seq = target()
        head = find_head(working)  # not its state: this is the way back from one that is damaged
        reader, branch = working.reader, working.branch
        refuse_inner(reader, branch)
        refuse_thinned(reader, branch, seq)
        cancelled = _cancelled(working, cancel_run)
        return head, seq, _riders(working, cancelled), left_behind(reader, head, seq)

    while True:
        head, seq, riders, left = yield plan
        try:
            made = yield from committing_move(working, head, seq, cause(seq), riders)
        except (ConsumedError, UnreadError):  # its inbox was read while it ended by itself
            continue
        _tell(working, riders)
        return BranchMove(made.read(), tool_calls(left), is_untold(left))


def undoing(
    working: WorkingCopy[Any],
    *,
    cancel_run: bool,
    of: Callable[[], undo_plan.RunChanges] | None = None,
) -> Flow[BranchMove]:
    """Takes back the latest change, or what a run changed."""
    return _going_back(working, "undo", cancel_run, of)


def redoing(working: WorkingCopy[Any], *, cancel_run: bool) -> Flow[BranchMove]:
    return _going_back(working, "redo", cancel_run)


def _going_back(
    working: WorkingCopy[Any],
    kind: Back,
    cancel_run: bool,
    of: Callable[[], undo_plan.RunChanges] | None = None,
) -> Flow[BranchMove]:
    def prepare() -> tuple[undo_plan.Plan, Riders, tuple[Mapping[str, Any], ...], bool]:
        working.refresh()
        shown = working.take_as_stored()
        # Beside a run that waits, this is a commit on top like any other: its journal stays.
        cancelled = _cancelled(working, cancel_run) if cancel_run else _at_rest(working)
        plan, calls = planned(working, kind, working.seq, None if of is None else of())
        riders = _riders(working, cancelled)
        if plan.record is not None:
            riders = replace(riders, records=[*riders.records, plan.record])
        return plan, riders, calls, shown

    flag(cancel_run, "cancel_run=")
    while True:
        try:
            plan, riders, calls, shown = yield prepare
            cause = Cause(kind, refers=tuple(plan.seqs))
            made = yield from working.committing_delta(plan.ops, cause, riders, anew=not shown)
        except (ConsumedError, UnreadError):  # its inbox was read while it ended by itself
            continue
        except OpError as error:  # e.g. a log whose undo says that it took back what it did not
            raise Corrupt(
                f"what its log says of undos does not fit its state: {error}",
                target=_target(working),
                hint=chain.HINT,
            ) from error
        _tell(working, riders)
        return BranchMove(made.read(), calls)


def planned(
    working: WorkingCopy[Any], kind: Back, head: int, of: undo_plan.RunChanges | None = None
) -> tuple[undo_plan.Plan, tuple[Mapping[str, Any], ...]]:
    """Returns the plan of an undo or redo on the state at a commit, and the tool calls that it does
    not take back. Reads the log.

    Args:
        of: what an undo takes back; default: the latest change.

    Raises:
        NotFound: there is nothing to take back. Conflict: it cannot be.
    """
    reader, path = working.reader, _Path(working.reader, head)
    if kind == "redo":
        refuse_redo(reader, working.branch, path.since(head))
    _, (major, _) = working.schema_to_write
    state_at = partial(_state_before, working, kind)
    if of is not None:
        plan = undo_plan.plan_undo_of_run(path, state_at, major, of)
    else:
        make_plan = undo_plan.plan_undo if kind == "undo" else undo_plan.plan_redo
        plan = make_plan(path, state_at, major)
    if plan is None:
        what = "" if of is None else f": run {visible(of.run)} has changed nothing that is left"
        raise NotFound(f"there is nothing to {kind}{what}", target=_target(working))
    if (problem := hindrance(working, kind, plan)) is not None:
        raise problem
    plan = replace(plan, ops=working.in_own_form(plan.ops))
    if kind == "redo":
        return plan, ()
    before = islice(path.since(plan.seqs[0]), 1, None)
    refuse_undo(reader, working.branch, plan.seqs[0], before)
    if of is None:
        return plan, tool_calls(reader.commit(seq) for seq in plan.seqs)
    made = takewhile(lambda commit: commit.seq >= plan.since, path.newest())
    return plan, tuple(call for call in tool_calls(made) if call.get("run") == of.run)


def _state_before(working: WorkingCopy[Any], kind: str, seq: int) -> Plain:
    """Returns a fresh copy of the state at the commit before what is to be taken back."""
    try:
        return working.reader.fold(seq).state if seq else None
    except NotFound as error:
        problem = f"cannot {kind} what came behind commit {seq}: {error.problem}"
        raise NotFound(problem, target=_target(working), hint=error.hint) from error


class _Path:
    """The commits behind a state, including those whose headers retention left."""

    def __init__(self, reader: LogReader, head: int) -> None:
        self._reader = reader
        self._head = head

    def newest(self) -> Iterator[Commit]:
        return self.since(self._head)

    def since(self, seq: int, count: int | None = None) -> Iterator[Commit]:
        return self._reader.ancestors(seq, chunk=count)


def left_behind(reader: LogReader, head: int, target: int) -> list[Commit]:
    """Returns the commits behind one state and not behind another, newest first, as far as they may
    tell of tool calls. What a run has rolled back from is left out: that was told then."""
    left: list[Commit] = []
    passed = head
    for commit in _left_behind(reader, head, target):
        if commit.seq > passed:
            continue
        passed = _rolled_back_to(commit) or passed
        if commit.trimmed or commit.damaged or commit.records:
            left.append(commit)
    return left


def _left_behind(reader: LogReader, head: int, target: int) -> Iterator[Commit]:
    """Yields the commits behind one state and not behind another, newest first. Reads only those
    between: two paths that meet are one from there on. Of a path that a damaged commit cuts off,
    those after that commit, and it."""
    kept = reader.ancestors(target, damaged="all")
    other = next(kept, None)
    for commit in reader.ancestors(head, damaged="all"):
        while other is not None and other.seq > commit.seq:
            other = next(kept, None)
        if other is not None and other.seq == commit.seq:
            return
        yield commit


def _rolled_back_to(commit: Commit) -> int:
    """Returns the commit to which a run rolled back with this one; 0: it did not."""
    if commit.cause.kind != "rollback":
        return 0
    return next((one.to for one in commit.typed if isinstance(one, Passed)), 0)


def is_untold(commits: Iterable[Commit]) -> bool:
    """Returns True if nobody knows the tool calls of some of these commits."""
    return any(commit.trimmed or commit.damaged for commit in commits)


def unfinished_runs(working: WorkingCopy[Any], branch: str | None = None) -> list[RunInfo]:
    """Returns the unfinished runs of its branch, or of another one, oldest first."""
    reader = working.reader_if_created()
    if reader is None:
        return []
    runs = working.context.backend.runs(RunQuery(agent=working.name, unfinished=True))
    branch = working.branch if branch is None else branch
    return [run for run in runs if run.branch == branch and run.agent_no == reader.no]


def _cancelled(working: WorkingCopy[Any], cancel_run: bool) -> list[RunInfo]:
    """Returns the rows of unfinished runs as cancelled.

    Raises:
        Conflict: there are any, and cancelling was not asked for.
    """
    runs = unfinished_runs(working)
    if runs and not cancel_run:
        raise _unfinished(working, runs[0])
    return [
        replace(run, status="cancelled", ended=HERE, problem=MOVED, wake_at_micros=0, waits="")
        for run in runs
    ]


def _at_rest(working: WorkingCopy[Any]) -> list[RunInfo]:
    """Returns nothing, for no run is cancelled.

    Raises:
        Conflict: a run executes on the branch, or is about to.
    """
    for run in unfinished_runs(working):
        if run.status not in ("waiting", "needs_attention"):
            raise _unfinished(working, run)
    return []


def _unfinished(working: WorkingCopy[Any], run: RunInfo) -> Conflict:
    return Conflict(
        f"run {visible(run.id)} is not finished ({run.status})",
        target=_target(working),
        hint=Hint.RUN_UNFINISHED,
    )


def _riders(working: WorkingCopy[Any], cancelled: Sequence[RunInfo]) -> Riders:
    unused = [Unused.read(working.context.backend, run.id) for run in cancelled]
    return Riders(
        records=[record for one in unused for record in one.records(RunCancelled(run=one.run))],
        runs=cancelled,
        sends=[
            message
            for run, one in zip(cancelled, unused, strict=True)
            for message in to_family(
                working.context.backend, run, working.reader, one.asked, cancelled
            )
        ],
        consumed=[message.no for one in unused for message in (*one.asked, *one.cancels)],
        read_to={run: no for one in unused for run, no in one.read_to.items()},
    )


def _tell(working: WorkingCopy[Any], riders: Riders) -> None:
    """Notifies those who wait for the end of the cancelled runs, and the runs that were sent
    messages."""
    for run in {*(row.id for row in riders.runs), *(message.run for message in riders.sends)}:
        working.context.backend.notify(run)


def tool_calls(commits: Iterable[Commit]) -> tuple[Mapping[str, Any], ...]:
    calls: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for commit in commits:
        for record in commit.records:
            if record.get("t") != "intent":
                continue
            call = record.get("run"), record.get("key")
            known = calls.setdefault(call, record)
            if _attempt(record) > _attempt(known):  # of several attempts, the last one made
                calls[call] = record
    return tuple(calls.values())


def _attempt(intent: Mapping[str, Any]) -> int:
    said = intent.get("attempt")
    return said if isinstance(said, int) else 1


def _target(working: WorkingCopy[Any]) -> str:
    return f"agent {working.name!r}, branch {working.branch!r}"
