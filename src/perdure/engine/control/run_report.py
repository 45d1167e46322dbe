"""The report of one run, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from perdure.engine.control.explanation import Explanation
from perdure.engine.journal.questions import Question
from perdure.engine.journal.run_events import Event, Note
from perdure.model import Message, RunInfo
from perdure.public_data import PublicData


class RunReport(PublicData, Struct, frozen=True):
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
