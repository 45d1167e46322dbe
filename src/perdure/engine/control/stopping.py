"""Noting that a run needs a person, without executing it (I8)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from perdure.core.format.records import Record, Stopped
from perdure.engine.control.noting import note_of_run
from perdure.engine.control.unbegun import stop_unbegun
from perdure.engine.control.wait_circles import awaited_runs, endless, find_circle, in_place
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.deleted_runs import trace_of, unknown_end
from perdure.errors import (
    Conflict,
    Corrupt,
    NeedsAttention,
    PerdureError,
    UnsupportedFormat,
)
from perdure.model import Cause, RunInfo, RunStatus
from perdure.state.context import Context
from perdure.state.runs.family_messages import starter_of
from perdure.state.runs.run_rows import row_text
from perdure.state.surroundings import ChangedError
from perdure.storage.capabilities import Backend, RunQuery


def stop(
    context: Context,
    wakeups: Wakeups,
    run: str,
    problem: str,
    *,
    among: Sequence[RunStatus] = ("pending", "running", "waiting"),
    cause: PerdureError | None = None,
) -> None:
    """Notes that a run needs a person. Writes; needs no state, so that it works even after damage.

    Args:
        among: the statuses in which it may be; in another it is left as it is.
        cause: the error; of changed surroundings it is recorded which ones.

    Raises:
        Conflict: it is finished, somebody executes it, or it is noted already.
    """

    def stopped(info: RunInfo) -> tuple[Record, RunInfo]:
        if info.status not in among:
            raise Conflict(f"is {info.status}", target=f"run {run}")
        row = replace(info, status="needs_attention", problem=row_text(problem))
        if isinstance(cause, ChangedError):
            return Stopped(run=run, problem=problem, now=cause.now, changed=[*cause.changed]), row
        return Stopped(run=run, problem=problem), row

    info = find_run(context.backend, run)
    if info.started or not stop_unbegun(context, wakeups, run, problem):
        note_of_run(context, wakeups, run, Cause("run-stopped", run=run), stopped)
        wakeups.tell(run)
    if info.parent:
        wakeups.tell(info.parent)


def stop_in_circle(context: Context, wakeups: Wakeups, run: str, children: Sequence[str]) -> None:
    """Notes that a run needs a person if it waits, since just now, for something that can never
    come. Its wait is in the log before this looks: of two runs that close a circle together, the
    later one sees it.

    Args:
        children: the runs that it waits for.

    Raises:
        NeedsAttention: there is a circle, and that is noted. If it cannot be checked or noted now,
            nothing is raised: `why` says it.
    """
    try:
        waits = in_place(wakeups.in_place)
        circle = find_circle(context.backend, run, children, in_place=waits)
        if circle is None:
            return
        problem = endless(run, circle)
        stop(context, wakeups, run, str(problem), among=("waiting",))
    except PerdureError:
        return
    raise problem


def stop_unread(
    context: Context,
    wakeups: Wakeups,
    run: str,
    error: PerdureError,
    cause: PerdureError | None = None,
) -> None:
    """The same of one whose log cannot be read, here or at all. Never fails: its caller raises the
    error itself, and who executes it is to have given the lease back."""
    own = "" if isinstance(error, NeedsAttention) else "its record cannot be read: "
    with suppress(PerdureError):
        stop(context, wakeups, run, row_text(f"{own}{error}"), cause=cause)


def stop_without_children(context: Context, wakeups: Wakeups) -> None:
    """Notes, in a copy that lacks the end of its source, that runs need a person which wait for
    nothing but runs of their own that had begun there. A begin took the request out, and did not
    come: nothing is left that could tell of their ends."""
    for info in context.backend.runs(RunQuery(status=("waiting",))):
        with suppress(Conflict, Corrupt, UnsupportedFormat):  # one's trouble is that one's
            children = awaited_runs(context.backend, info)
            problems = [_lost(context.backend, info.id, child) for child in children]
            if problems and all(problems):
                stop(context, wakeups, info.id, str(problems[0]), among=("waiting",))


def _lost(backend: Backend, run: str, child: str) -> NeedsAttention | None:
    """Returns the error of a run that waits for one which it started, and which is not here; None
    if that is here, is requested, or its end is known."""
    if starter_of(backend, child) is not None:
        return None
    trace = trace_of(backend, run, child)
    if trace.end is not None or not trace.place:
        return None
    return unknown_end(
        run, child, trace.place, "had begun at the source of this copy, and did not come"
    )
