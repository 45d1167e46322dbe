"""What the log says of a run, read from outside, without executing it or its function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from perdure.core.values.plain_values import Plain
from perdure.engine.journal.effects import Branch
from perdure.engine.journal.left_history import Origins, path_of
from perdure.engine.journal.scopes import scope_of
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import FINISHED, Commit, RunInfo, from_micros
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import SEQ_END, LogReader

CallState = Literal[
    "done", "failed", "open", "not done", "to be tried again", "timed out", "cancelled"
]

MARKS: Mapping[str, str] = {
    "run-started": "started", "run-turn": "turn", "run-waiting": "unloaded",
    "run-resumed": "resumed", "run-pending": "to be resumed", "run-stopped": "stopped",
    "run-retried": "set back", "run-finished": "finished", "run-cancelled": "cancelled",
    "message-refused": "refused",
}  # fmt: skip
"""Records that are moments of a run, not calls of it, and how people call them."""


SORTS: Mapping[str, str] = {
    "intent": "tool", "outcome": "tool", "wait-began": "wait", "wait-ended": "wait",
    "attempt-failed": "step", "progress": "step",
}  # fmt: skip
"""Of what kind a call is, by its first record."""


class Event(Struct):
    """One call of a run, or one moment of it, in its timeline.

    Attributes:
        kind: ``step``, ``tool``, ``edit``, ``value``, ``patch`` or ``wait``; or what happened:
            ``started``, ``turn``, ``unloaded`` (it waits), ``resumed``, ``to be resumed``,
            ``stopped``, ``set back``, ``finished``, ``cancelled``, ``refused`` (a message); or
            ``removed``: a call of which retention left its place alone.
        at: when it began, or happened. Of a step only its end is recorded: when what was recorded
            before it in the same task was.
        ended: when its outcome was recorded; None: not yet.
        exact: whether `at` is when it began, and not just not later than that.
        words: its arguments, what is waited for, or what is said of a moment.
        value, error: what it gave: plain data, or the record of an exception. One that is
            ``cancelled`` may have a value, which its function did not see.
        attempts: how often it was tried; `saved` what the last attempt saved of its work.
        by, who: whose word an outcome is, and the name that they gave.
        again_at: when it will be tried again; None: it will not.
        seq: of the commit that has its first record.
        made_at: of the commit in which the same call was made before the run was set back, or
            forked; 0: it was not.
    """

    kind: str
    place: str
    at: datetime
    seq: int
    ended: datetime | None = None
    exact: bool = True
    state: CallState = "done"
    words: str = ""
    value: Plain = None
    error: Mapping[str, Any] | None = None
    attempts: int = 0
    saved: Plain = None
    by: str = ""
    who: str = ""
    again_at: datetime | None = None
    question: str = ""
    branches: Sequence[Branch] = ()
    made_at: int = 0


class Note(Struct, frozen=True):
    """What a run said of itself with `Run.progress`. `fraction`: of the whole, from 0 to 1."""

    text: str
    fraction: float | None
    at: datetime


class Recorded(Struct):
    """See the module.

    Attributes:
        events: of the whole run, in the order in which they began.
        open: calls of its current turn that have no outcome, of each place one.
        last: of each task of the current turn the last call; by the task's path, "" for the
            function itself.
        past: the last call of the current turn that has an outcome.
        commits: those that wrote for it since its current turn began, that one included.
    """

    events: list[Event] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)
    last: dict[str, Event] = field(default_factory=dict)
    past: Event | None = None
    commits: list[Commit] = field(default_factory=list)


def reader_of(backend: Backend, info: RunInfo) -> LogReader | None:
    """Of the incarnation of the agent that a run is of; None: it has not begun, or is gone."""
    agent = backend.agent(info.agent) if info.started else None
    while agent is not None and agent.no != info.agent_no:
        agent = backend.agent(info.agent, agent.incarnation - 1) if agent.incarnation > 1 else None
    return LogReader(backend, agent) if agent is not None else None


def what_is_recorded(
    reader: LogReader | None, info: RunInfo
) -> tuple[Recorded, Corrupt | UnsupportedFormat | None]:
    """Of the run's current turn, as long as it is not finished; and why it cannot be read.

    Of one that is, where it began and ended is to be there: its row alone proves nothing.
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
    """Of the run's current turn, as it stands: what was set back is not in it."""
    path = path_of(reader, reader.last_of(info.branch), info.turn_at)
    origins = Origins.of(info, path)
    path.append(reader.commit(info.turn_at))
    return _read(reversed(path), origins.runs, info.turn_at)


def recorded_run(reader: LogReader, info: RunInfo) -> Recorded:
    """Of the whole run, in the order of the log: what was set back, and each turn, too."""
    turn = recorded_turn(reader, info)
    whole = _read(reader.commits(info.started, SEQ_END), {info.id}, info.turn_at)
    turn.events, turn.notes, turn.children = whole.events, whole.notes, whole.children
    return turn


def _read(commits: Iterator[Commit], runs: frozenset[str] | set[str], turn_at: int) -> Recorded:
    read = Recorded()
    by_place: dict[str, Event] = {}
    before: dict[str, datetime] = {}
    for commit in commits:
        ours = [record for record in commit.records if record.get("run") in runs]
        if ours and commit.seq >= turn_at:
            read.commits.append(commit)
        if commit.trimmed and commit.cause.run in runs and commit.cause.step:
            _removed(read, by_place, commit, commit.cause.step)
        for record in ours:
            kind = str(record["t"])
            if kind in ("run-turn", "run-retried"):
                by_place.clear()  # its places come anew
            elif "again" in record:  # a fork: what was under way there is decided on anew
                for event in [*by_place.values()]:
                    if event.ended is None and (event.kind == "tool" or event.question):
                        del by_place[event.place]
            if kind == "run-progress":
                read.notes.append(
                    Note(str(record.get("text", "")), record.get("fraction"), commit.at)
                )
            elif kind in MARKS:
                read.events.append(_mark(kind, record, commit))
                before.clear()
                before[""] = commit.at
            elif "place" in record:
                _call(read, by_place, before, record, commit)
            if "child" in record:
                read.children.append(str(record["child"]["run"]))
    for event in by_place.values():
        read.last[scope_of(event.place)] = event
        if event.ended is None:
            read.open.append(event)
        elif read.past is None or read.past.ended is None or event.ended >= read.past.ended:
            read.past = event
    return read


def _removed(read: Recorded, by_place: dict[str, Event], commit: Commit, place: str) -> None:
    """Of a call's commits, its place and when they were is all that retention left."""
    event = by_place.get(place)
    if event is None:
        event = by_place[place] = Event("removed", place, commit.at, commit.seq)
        read.events.append(event)
    event.ended = commit.at


def _mark(kind: str, record: Mapping[str, Any], commit: Commit) -> Event:
    words = {
        "run-started": "preview", "run-turn": "preview",
        "run-stopped": "problem", "run-cancelled": "why", "run-retried": "from",
        "message-refused": "problem",
    }.get(kind)  # fmt: skip
    event = Event(MARKS[kind], str(record.get("place", "")), commit.at, commit.seq)
    event.ended = commit.at
    event.words = str(record.get(words, "")) if words else ""
    if kind == "run-finished":
        failed = record.get("status") == "failed"
        event.state = "failed" if failed else "done"
        event.error = record.get("value") if failed else None
        event.value = None if failed else record.get("value")
    return event


def _call(
    read: Recorded, by_place: dict[str, Event], before: dict[str, datetime],
    record: Mapping[str, Any], commit: Commit,
) -> None:  # fmt: skip
    place, kind = str(record["place"]), str(record["t"])
    scope = scope_of(place)
    event = by_place.get(place)
    if event is None:
        sort = SORTS.get(kind, kind)
        exact = kind in ("intent", "wait-began")
        began = commit.at if exact else before.get(scope) or before.get("") or commit.at
        event = by_place[place] = Event(sort, place, began, commit.seq, exact=exact, state="open")
        event.words = str(record.get("words") or record.get("preview", ""))
        event.question = str(record.get("question", ""))
        event.made_at = int(record.get("made_at", 0))
        event.branches = [Branch(**branch) for branch in record.get("branches", ())]
        read.events.append(event)
    match kind:
        case "intent":
            event.attempts = int(record.get("attempt", event.attempts + 1))
            event.state, event.ended, event.again_at = "open", None, None
            return
        case "wait-began":
            return
        case "cancelled" if event.ended is not None:
            event.state, event.error = "cancelled", record.get("error")
            if "gave_back" in record:  # it is in the inbox again
                event.value, event.who = None, ""
            return
        case "progress":
            event.saved = record.get("value")
            return
        case "attempt-failed":
            event.state, event.error = "to be tried again", record.get("error")
            event.attempts = int(record.get("attempt", 0))
            event.again_at = from_micros(int(record.get("again_at", 0)))
            return
    _settle(event, record)
    event.ended = commit.at
    before[scope] = commit.at


def _settle(event: Event, record: Mapping[str, Any]) -> None:
    event.value, event.error, event.again_at = record.get("value"), record.get("error"), None
    if event.kind == "step" and event.attempts:
        event.attempts += 1  # the one that came through
    event.by, event.who = str(record.get("by", "")), str(record.get("who", ""))
    event.state = "done"
    if record.get("not_done"):
        event.state = "not done"
    elif record.get("cancelled") or record["t"] == "cancelled":
        event.state = "cancelled"
    elif event.error is not None:
        event.state = "failed"
    elif event.kind == "wait":
        label = str(record.get("label", ""))
        timer = next((b for b in event.branches if b.label == label and b.kind == "timer"), None)
        if timer is not None and len(event.branches) > 1:
            event.state = "timed out"
        event.by = label if len(event.branches) > 1 and label not in ("it", "timeout") else ""
