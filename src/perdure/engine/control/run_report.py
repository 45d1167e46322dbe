"""The report of one run, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from perdure.engine.control.explanation import Explanation
from perdure.engine.journal.questions import Question
from perdure.engine.journal.run_events import Event, Note
from perdure.model import Message, RunInfo
from perdure.public_data import PublicData
from perdure.state.surroundings import SurroundingsChange


class GuardReport(PublicData, Struct, frozen=True):
    """A comparison of a run's surroundings, as its log has it; see `perdure.Guards`.

    Attributes:
        at: when it was recorded, by commit `seq`.
        on_change: what was to be done about a change: ``warn``, ``stop`` or ``ignore``.
        changed: what was otherwise than before; empty: nothing.
        dependencies: the versions then; empty texts: not installed.
        config: the hash of the configuration; empty: none was given.
        environment: names of the variables that are compared.
    """

    at: datetime
    seq: int
    on_change: str
    changed: Sequence[SurroundingsChange]
    dependencies: Mapping[str, str]
    config: str
    environment: Sequence[str]


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
        guards: the last comparison of its surroundings with those that it was executed in before;
            None: nothing is guarded.
    """

    info: RunInfo
    why: Explanation
    events: Sequence[Event]
    places: Mapping[str, Event]
    questions: Sequence[Question]
    notes: Sequence[Note]
    inbox: Sequence[Message]
    children: Sequence[RunInfo]
    guards: GuardReport | None = None
