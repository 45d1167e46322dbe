"""The report of one run, for people who look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from perdure.engine.control.why import Explanation, explain
from perdure.engine.execution.wakeups import Leaked
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.deleted_runs import find_stranger
from perdure.engine.journal.run_log import Event, Note, Recorded, reader_of, recorded_run
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import Message, RunInfo
from perdure.state.runs.family_messages import agent_of
from perdure.storage.capabilities import Backend

if TYPE_CHECKING:
    from perdure.engine.journal.questions import Question


class RunReport(Struct, frozen=True):
    """Everything known about one run.

    Attributes:
        why: says if it moves, and if not, why not and what to do.
        events: its timeline: calls and moments in the order in which they began.
        places: its place in the code: each task's last call of the current turn, by the task's
            path; "" is the function itself.
        questions: its questions that nobody has answered.
        notes: its notes by `Run.progress`, oldest first.
        inbox: messages that it has not taken out, in order of arrival.
        children: the runs that it started.
    """

    info: RunInfo
    why: Explanation
    events: Sequence[Event]
    places: Mapping[str, Event]
    questions: Sequence[Question]
    notes: Sequence[Note]
    inbox: Sequence[Message]
    children: Sequence[RunInfo]


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
