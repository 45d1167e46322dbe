"""The log of a run, read from outside, without executing it or its function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime

from msgspec import UNSET, Struct, field

from perdure.core.format.records import (
    Cancelled,
    Finished,
    Guarded,
    Intent,
    Noted,
    Record,
    RunCancelled,
    SetBack,
    Stopped,
    WaitBegan,
    WaitEnded,
)
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_history import Origins, path_of
from perdure.engine.journal.run_events import Event, Note
from perdure.engine.journal.scopes import scope_of
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import FINISHED, Commit, RunInfo, from_micros
from perdure.state.runs.family_messages import begin_of
from perdure.state.runs.run_reading import BEGINS_ANEW
from perdure.state.surroundings import in_words
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import SEQ_END, LogReader

MARKS: Mapping[str, str] = {
    "run-started": "started",
    "run-turn": "turn",
    "run-waiting": "unloaded",
    "run-resumed": "resumed",
    "run-version": "version",
    "run-pending": "to be resumed",
    "run-stopped": "stopped",
    "run-guards": "changed",
    "run-retried": "set back",
    "run-finished": "finished",
    "run-cancelled": "cancelled",
    "message-refused": "refused",
}
"""Records that are moments of a run, not calls of it, and how people call them."""


class Recorded(Struct):
    """The record of a run.

    Attributes:
        events: the events of the whole run, in the order in which they began.
        open: calls of its current turn that have no outcome, one for each place.
        last: the last call of each task of the current turn; by the task's path, "" for the
            function itself.
        past: the last call of the current turn that has an outcome.
        commits: the commits for it since its current turn began, that one included.
    """

    events: list[Event] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)
    last: dict[str, Event] = field(default_factory=dict)
    past: Event | None = None
    commits: list[Commit] = field(default_factory=list)


def reader_of(backend: Backend, info: RunInfo) -> LogReader | None:
    """Returns a reader of the incarnation of the agent that the run belongs to; None if it has not
    begun, or is gone."""
    agent = backend.agent(info.agent) if info.started else None
    while agent is not None and agent.no != info.agent_no:
        agent = backend.agent(info.agent, agent.incarnation - 1) if agent.incarnation > 1 else None
    return LogReader(backend, agent) if agent is not None else None


def lineage(backend: Backend, run: str) -> set[str]:
    """Returns a run and those that it was forked from."""
    rows = backend.runs(RunQuery(run_id=run))
    reader = reader_of(backend, rows[0]) if rows else None
    began = begin_of(reader.commit(rows[0].started), run) if reader is not None else None
    return {run} if began is None or began.again is None else {run, *began.again.runs}


def what_is_recorded(
    reader: LogReader | None, info: RunInfo
) -> tuple[Recorded, Corrupt | UnsupportedFormat | None]:
    """Returns the record of the run's current turn, if it is not finished; and the reason why it
    cannot be read.

    For a finished run, the commits of its begin and end must exist: its row alone proves nothing.
    """
    if reader is None:
        return Recorded(), None
    try:
        if info.status not in FINISHED:
            return recorded_turn(reader, info), None
        with suppress(NotFound):  # it was purged
            for seq in (info.started, info.ended):
                if seq:
                    reader.commit(seq)
    except (Corrupt, UnsupportedFormat) as error:
        return Recorded(), error
    return Recorded(), None


def recorded_turn(reader: LogReader, info: RunInfo) -> Recorded:
    """Returns the record of the run's current turn, without what was set back."""
    path = path_of(reader, reader.last_of(info.branch), info.turn_at)
    origins = Origins.of(info, path)
    path.append(reader.commit(info.turn_at))
    return _read(reversed(path), origins.runs, info.turn_at)


def recorded_run(reader: LogReader, info: RunInfo) -> Recorded:
    """Returns the record of the whole run, in the order of the log: including each turn, and what
    was set back."""
    turn = recorded_turn(reader, info)
    whole = _read(reader.commits(info.started, SEQ_END), {info.id}, info.turn_at)
    turn.events, turn.notes, turn.children = whole.events, whole.notes, whole.children
    return turn


def _read(commits: Iterator[Commit], runs: frozenset[str] | set[str], turn_at: int) -> Recorded:
    read, journal = Recorded(), Journal("")
    by_place: dict[str, Event] = {}
    before: dict[str, datetime] = {}
    for commit in commits:
        ours = [record for record in commit.typed if record.run in runs]
        if ours and commit.seq >= turn_at:
            read.commits.append(commit)
        if commit.trimmed and commit.cause.run in runs and commit.cause.step:
            _removed(read, by_place, commit, commit.cause.step)
        for record in ours:
            if record.t in BEGINS_ANEW:
                journal, by_place = Journal(""), {}  # its places come anew
            entry = journal.note(record, commit.seq)
            if record.again is not None:  # a fork: what was under way there is decided on anew
                for place in [*by_place]:
                    if (there := journal.entries.get(place)) is not None and there.cut:
                        del by_place[place]
            if isinstance(record, Noted):
                read.notes.append(Note(record.text, record.fraction, commit.at))
            elif isinstance(record, Guarded):  # along with the first record of what it came before
                read.events += [_mark(record, commit)] if record.changed else []
            elif record.t in MARKS:
                read.events.append(_mark(record, commit))
                before = {"": commit.at}
            elif entry is not None:
                _call(read, by_place, before, entry, record, commit)
            elif record.t == "outcome":  # it is said of a call in a history that the run left
                left = Entry(record.place, "tool", commit.seq, record, record)
                _call(read, {}, {**before}, left, record, commit)
            if record.child is not None:
                read.children.append(record.child.run)
    for event in by_place.values():
        read.last[scope_of(event.place)] = event
        if event.ended is None:
            read.open.append(event)
        elif read.past is None or read.past.ended is None or event.ended >= read.past.ended:
            read.past = event
    return read


def _removed(read: Recorded, by_place: dict[str, Event], commit: Commit, place: str) -> None:
    """Notes a commit of a call of which retention left only the place and time."""
    event = by_place.get(place)
    if event is None:
        event = by_place[place] = Event("removed", place, commit.at, commit.seq)
        read.events.append(event)
    event.ended = commit.at


def _mark(record: Record, commit: Commit) -> Event:
    event = Event(MARKS[record.t], record.place, commit.at, commit.seq)
    event.ended = commit.at
    match record:
        case Stopped() | WaitEnded():
            event.words = str(record.problem)
        case Guarded():
            event.words = in_words(record.changed)
        case RunCancelled():
            event.words = "" if record.why is UNSET else str(record.why)
        case SetBack():
            event.words = str(record.from_)
        case Finished():
            event.state = record.status
            value = record.value
            event.value, event.error = (value, None) if event.state == "done" else (None, value)
        case _ if record.t in ("run-started", "run-turn"):
            event.words = record.preview
        case Record(t="run-version"):
            event.words = str(record.version)
    return event


def _call(
    read: Recorded,
    by_place: dict[str, Event],
    before: dict[str, datetime],
    entry: Entry,
    record: Record,
    commit: Commit,
) -> None:
    """Adds a record of a call to its event."""
    call, outcome, told = entry.call, entry.outcome, entry.told
    event = by_place.get(entry.place)
    if event is None:
        exact = isinstance(record, Intent | WaitBegan)
        at = commit.at if exact else before.get(entry.scope) or before.get("") or commit.at
        event = by_place[entry.place] = Event(entry.kind, entry.place, at, commit.seq, exact=exact)
        event.words, event.made_at = call.preview, call.made_at
        if isinstance(call, WaitBegan):
            event.words = str(call.words or call.preview)
            event.question, event.branches = call.question or "", call.branches
        read.events.append(event)
    if outcome is None:
        event.ended = None
    elif record is outcome:
        event.ended = before[entry.scope] = commit.at
    failed = entry.failures[-1] if entry.failures else None
    event.attempts = entry.attempts or len(entry.failures)
    event.saved = entry.progress.value if entry.progress is not None else None
    event.state, event.again_at = entry.state, None
    if outcome is None:
        event.error = failed.error if failed is not None else None
        if failed is not None and not entry.in_doubt:
            event.again_at = from_micros(failed.again_at)
        return
    event.attempts += event.kind == "step" and event.attempts > 0  # the one that came through
    event.value, event.error = outcome.value, outcome.error
    event.by, event.who = str(outcome.by), str(outcome.who)
    if isinstance(outcome, WaitEnded) and event.state == "done":
        label, several = outcome.label, len(event.branches) > 1
        if several and any(b.label == label and b.kind == "timer" for b in event.branches):
            event.state = "timed out"
        event.by = label if several and label not in ("it", "timeout") else ""
    if told is not outcome and isinstance(told, Cancelled):
        event.error = told.error
        if told.gave_back is not None:  # it is in the inbox again
            event.value, event.who = None, ""
