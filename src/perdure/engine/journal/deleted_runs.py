"""Runs that others started, and that do not exist any more: their agents were deleted and purged;
or they never came to this store, into which the logs of their parents were imported. Runs with
their ids may have been started by others.

The parents' records of such a run's end, made when they waited for it, are all that is known of it.
They count also in a history that the parent left: the end does not depend on the parent.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct, field

from perdure.core.arguments.names import incarnation_of
from perdure.core.format.records import Outcome, WaitEnded
from perdure.core.format.rows import order_of
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.earlier_turns import left_of, outcome_at
from perdure.engine.journal.run_log import lineage, reader_of
from perdure.errors import Corrupt, NeedsAttention, NotFound, UnsupportedFormat
from perdure.model import Commit, RunInfo
from perdure.state.runs.family_messages import CHILD, agent_of, starter_of
from perdure.state.runs.run_reading import RecordedWaits
from perdure.state.runs.run_rows import DELETED, args_digest
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import LogReader
from perdure.system import shell
from perdure.visible import visible


class Trace(Struct):
    """The traces of a run in the log of one that waits for it.

    Attributes:
        end: its end, in the form of its row; None if unknown.
        place: the place of the call that started it; empty if that is gone, too.
        starters: the runs that requested it: the one that waits, or those that it was forked from.
        named: a person decided that it is the one to wait for.
        shared: a fork of the one that waits started it, or what that was forked from: in a turn
            that may have begun earlier.
    """

    end: dict[str, Plain] | None = None
    place: str = ""
    starters: set[str] = field(default_factory=set)
    named: bool = False
    shared: bool = False


def trace_of(backend: Backend, run: str, child: str) -> Trace:
    """Returns the traces, in the log of a run that executes, of one that it waits for, since its
    turn began; and in the histories that it left before."""
    trace = Trace()
    rows = backend.runs(RunQuery(run_id=run))
    reader = reader_of(backend, rows[0]) if rows else None
    if reader is None:
        return trace
    waits, awaited = RecordedWaits(), ("child", CHILD + child)
    for commit in reader.commits(rows[0].turn_at, damaged_too=True):
        if commit.seq == rows[0].turn_at:
            _trace_earlier(trace, reader, commit, child)
        for record in commit.typed:
            waits.note(record)
            started = record.child
            match record:
                case WaitEnded(t="wait-ended"):
                    branch = waits.branch_of(record)
                    if branch is not None and (branch.kind, branch.name) == awaited:
                        trace.end = dict(record.value)
                case _ if started is not None and started.run == child:
                    trace.place = record.place
                    if record.made != child or not started.let_live:
                        trace.starters.add(record.run)
                    elif record.run == run:
                        trace.shared = True
                case Outcome(by_person=True):
                    trace.named |= record.value == child
    if trace.end is None and trace.place and _never_began(backend, child):
        trace.end = {"status": "cancelled", "value": None, "problem": DELETED}
    return trace


def _trace_earlier(trace: Trace, reader: LogReader, began: Commit, child: str) -> None:
    """Adds the traces in histories that the run left in earlier turns."""
    said = None
    with suppress(Corrupt, UnsupportedFormat):
        said = left_of(reader, began)
    if said is None:
        return
    for call in said[0].calls:
        if call.key == child:
            trace.place = call.place
            trace.starters.add(call.run)
    for end in said[0].ends:
        taken = outcome_at(reader, end.seq, end.place) if end.name == CHILD + child else None
        if taken is not None:
            trace.end = dict(taken.value)


def _never_began(backend: Backend, child: str) -> bool:
    """Returns True if a run that was requested does not exist because its agent was deleted before
    it began. That was reported once, to a run that may have left without hearing it."""
    info = backend.agent(agent_of(child), incarnation_of(child))
    deleted = info is not None and info.deleted and not info.purged
    return deleted and not backend.runs(
        RunQuery(run_id=child)
    )  # it may have come and gone meanwhile


def find_stranger(backend: Backend, run: str, child: str, trace: Trace | None = None) -> str | None:
    """Returns the run that started, or requested, the run that exists under the id of one that a
    run waits for, if that was another one: its id, or an empty text. None if it is the right one,
    or none exists."""
    starter = starter_of(backend, child)
    if starter is None or starter == run:
        return None
    rows = backend.runs(RunQuery(run_id=child))
    trace = trace or trace_of(backend, run, child)
    if trace.named or starter in trace.starters or (rows and _asked_too(backend, run, rows[0])):
        return None
    if trace.shared and _are_relatives(backend, run, starter):
        return None
    return starter


def _are_relatives(backend: Backend, run: str, other: str) -> bool:
    with suppress(Corrupt, NotFound, UnsupportedFormat):
        return not lineage(backend, run).isdisjoint(lineage(backend, other))
    return False


def _asked_too(backend: Backend, run: str, row: RunInfo) -> bool:
    """Returns True if a run requested the same, after another one had begun it."""
    asked = [order_of(message.value) for message in backend.inbox(row.id, kind="start")]
    return any(one.parent == run and args_digest(one.args) == row.args for one in asked)


def never_comes(backend: Backend, run: str, child: str, trace: Trace | None = None) -> str:
    """Returns the reason why a run that is waited for cannot come any more, as one of a log that is
    imported later can; empty if it can, or exists."""
    info = backend.agent(agent_of(child), incarnation_of(child))
    if info is not None and info.purged:
        return "was purged with its agent"
    stranger = find_stranger(backend, run, child, trace)
    if stranger is None:
        return ""
    by = f"run {visible(stranger)}" if stranger else "somebody else"
    return f"is not there: the run of that id was started by {by}"


def unknown_end(run: str, child: str, place: str, why: str) -> NeedsAttention:
    """For a run that waits for nothing but the ends of such as never come.

    Args:
        child: one of them; `place`: of the call that started it; `why`: as `never_comes` says it.
    """
    end = f"end this run: `{shell.perdure('cancel', run)}`"
    again = shell.perdure("retry", run, **{"from": place})
    return NeedsAttention(
        f"run {visible(child)}, for which it waits, {why}; and its end is not recorded",
        target=f"run {run}",
        hint=f"set this run back to where it started that one, `{again}`, and decide that another "
        f"one is started; or {end}"
        if place
        else end,
    )
