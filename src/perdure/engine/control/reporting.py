"""Makes the report of one run, for people who look at it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from perdure.engine.control.comparisons import last_comparison
from perdure.engine.control.run_report import RunReport
from perdure.engine.control.why import explain
from perdure.engine.execution.wakeups import Leaked
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.deleted_runs import find_stranger
from perdure.engine.journal.questions import Question
from perdure.engine.journal.run_log import Recorded, reader_of, recorded_run
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import RunInfo
from perdure.state.runs.family_messages import agent_of
from perdure.storage.capabilities import Backend


def report(
    backend: Backend, info: RunInfo, questions: Sequence[Question], leaked: Leaked
) -> RunReport:
    """Returns the report; while the run is executed, one part may be a moment older than
    another."""
    reader = reader_of(backend, info)
    recorded = Recorded()
    with suppress(Corrupt, UnsupportedFormat):  # `why` says what cannot be read
        recorded = recorded_run(reader, info) if reader is not None else recorded
    return RunReport(
        info,
        explain(backend, info, leaked),
        recorded.events,
        recorded.last,
        questions,
        recorded.notes,
        [message for message in backend.inbox(info.id) if message.kind != "start"],
        [one for run in dict.fromkeys(recorded.children) if (one := _child(backend, info, run))],
        last_comparison(recorded.commits, info.id),
    )


def _child(backend: Backend, info: RunInfo, run: str) -> RunInfo | None:
    """Returns a run that this one started, or took over; None if the id is that of a stranger's
    run."""
    try:
        found = find_run(backend, run)
    except NotFound:  # its agent was deleted before it began
        return None
    if found.parent and agent_of(found.parent) == info.agent:
        return found
    return found if find_stranger(backend, info.id, run) is None else None
