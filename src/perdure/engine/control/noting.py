"""Records that are committed of a run from outside, each along with the run's new row."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from perdure.core.format.records import Record, RunCancelled
from perdure.engine.control.unbegun import tell_others
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.functions.run_lookup import find_run, refuse_not_begun
from perdure.errors import Conflict, NotFound
from perdure.model import FINISHED, Cause, Commit, RunInfo
from perdure.state.context import Context
from perdure.state.runs.family_messages import to_family
from perdure.state.runs.run_rows import row_text
from perdure.state.runs.unused_signals import Unused
from perdure.state.stateless_commits import note
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import HERE
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import HeldError
from perdure.system.backoff import chances

Noting = Callable[[RunInfo], tuple[Record, RunInfo]]
"""Returns the record to write for a run, and its new row."""


def note_of_run(
    context: Context, wakeups: Wakeups, run: str, cause: Cause, noting: Noting
) -> Commit:
    """Commits a record along with the run's new row. If another commit comes in between, both are
    made anew, as of that one.

    Raises:
        Conflict: an executor has the branch; or others keep committing to it.
    """
    backend, lost = context.backend, None
    reader = reader_of_run(context, run)
    for _ in chances():
        branch = find_run(backend, run).branch
        head = reader.peek(reader.ref(branch).seq)  # a run's end needs no more
        record, row = noting(find_run(backend, run))  # as of this head
        row = replace(row, wake_at_micros=0, waits="")
        riders = Riders(records=[record], runs=[row], sync=True)
        if isinstance(record, RunCancelled):
            riders = _with_cancelled(context, record, row, reader)
        try:
            made = note(context, reader, branch, head, cause, riders)
        except HeldError:
            raise
        except Conflict as error:
            lost = error
            continue
        tell_others(context, wakeups, run, riders.sends)
        return made.read()
    assert lost is not None
    raise lost


def cancellation(run: str, why: str) -> Noting:
    """Returns what is noted of a run that is cancelled."""

    def cancelled(info: RunInfo) -> tuple[Record, RunInfo]:
        if info.status in FINISHED:
            raise Conflict(f"is {info.status} already", target=f"run {run}")
        problem = row_text(why) or "by request"
        row = replace(info, status="cancelled", ended=HERE, problem=problem)
        return RunCancelled(run=run, why=why), row

    return cancelled


def _with_cancelled(
    context: Context, record: RunCancelled, row: RunInfo, reader: LogReader
) -> Riders:
    """Returns the commit's additions, so that the run's parents and children hear of its end in the
    same commit."""
    unused = Unused.read(context.backend, row.id)
    return Riders(
        records=unused.records(record),
        runs=[row],
        sends=to_family(context.backend, row, reader, unused.asked),
        consumed=unused.consumed,
        read_to=unused.read_to,
        sync=True,
    )


def reader_of_run(context: Context, run: str) -> LogReader:
    """Returns the log that a run is in.

    Raises:
        Conflict: it has not begun. NotFound: its agent is gone.
    """
    info = find_run(context.backend, run)
    refuse_not_begun(info)
    agent = context.backend.agent(info.agent)
    while agent is not None and agent.no != info.agent_no:
        agent = context.backend.agent(info.agent, agent.incarnation - 1)
    if agent is None:
        raise NotFound("its agent is gone", target=f"run {run}")
    return LogReader(context.backend, agent)
