"""Going back to a step, on a new branch or in place; and the effects made before there.

Both share history with the original, and copy nothing: a run's journal is what lies on the path
from its turn's begin to its branch's head, so that going back on the log goes back in the run. The
effects that the run had on the world after that step remain, though: before such a tool call is
made again, or such a run started, a person decides; see `journal.left_history`. The signals that it
got after that step are delivered again: their senders do not know of the change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from perdure.core.arguments.checks import one_of
from perdure.core.arguments.names import check_label, check_name, check_words
from perdure.core.format.left_behind import WentBack
from perdure.core.format.records import (
    Cancelled,
    Fired,
    Intent,
    Outcome,
    Record,
    SetBack,
    Valued,
    WaitBegan,
    WaitEnded,
)
from perdure.core.schema.schema import Schema
from perdure.engine.control.settlement import journals
from perdure.engine.functions.compensations import undoing_in
from perdure.engine.functions.orders import key_of_fork, run_id
from perdure.engine.functions.run_lookup import refuse_not_begun
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_history import Again, Origins, path_back, path_of
from perdure.engine.journal.scopes import scope_of
from perdure.errors import Conflict, NotFound
from perdure.model import FINISHED, Cause, Commit, Message, RunInfo
from perdure.state.context import Context
from perdure.state.jump_commits import commit_move, find_head
from perdure.state.runs.family_messages import CHILD, begin_of, plain_begin_of
from perdure.state.runs.unused_signals import base_key, renewed, signals_left
from perdure.state.time_travel import unfinished_runs
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.proposals import HERE
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import BegunError, UnreadError
from perdure.visible import visible

CHOICES: tuple[Again, ...] = ("ask", "reuse", "live")


def fork_run(
    context: Context, info: RunInfo, step: str, effects: Again, branch: str, key: str | None
) -> RunInfo:
    """Makes a branch where a step begins, and on it a run that continues from there; see
    `RunHandle.fork`."""
    branch, step = check_label(branch), check_words(step, "a step's place")
    key = None if key is None else check_name(key, "a run's key")
    reader = _reader(context, info)
    if info.started and undoing_in(reader.commit(info.turn_at), info.id):
        raise Conflict(
            "what it did is undone, or being undone: there is no step to go on from",
            target=f"run {info.id}",
            hint="run the function again under another key",
        )
    back = _Back(context, reader, info, step, effects)
    key = key or key_of_fork(info.key, branch)
    new = run_id(info.agent, info.function, key, reader.incarnation)
    if context.backend.runs(RunQuery(run_id=new)):
        raise _taken("there is such a run", new)
    began = _started(reader, info)
    for of_a_child in ("origin", "until"):
        began.pop(of_a_child, None)
    record = {
        **began,
        "run": new,
        "key": key,
        "parent": "",
        "version": info.version,
        "pending": True,
        "turn": info.turn,
        "turn_at": info.turn_at,
        "again": asdict(back.record),
    }
    row = replace(
        info,
        id=new,
        key=key,
        branch=branch,
        status="pending",
        started=HERE,
        ended=0,
        result=None,
        problem=None,
        wake_at_micros=0,
        waits="",
        started_at_micros=HERE,
        seen=0,
        parent="",
    )
    working = _working(context, reader, info.branch)
    with working.lock:
        head = find_head(working)
        cause = Cause("fork", f"{info.function} from {step}", run=new, refers=(back.at,))
        records: list[Any] = [record, *back.heard(new)]
        riders = Riders(
            records=records,
            runs=[row],
            sync=True,
            sends=back.signals(new),
            read_to={new: 0},
            fresh=[new],
        )
        try:
            commit_move(working, head, back.at, cause, riders, branch=branch)
        except UnreadError as error:  # its order would be lost
            raise _taken("such a run is requested, and has not begun", new) from error
        except BegunError as error:  # by a call, or another fork, at this moment
            raise _taken("there is such a run", new) from error
    return row


def _taken(problem: str, run: str) -> Conflict:
    return Conflict(problem, target=f"run {run}", hint="use another key")


def retry_run(context: Context, info: RunInfo, step: str, effects: Again) -> None:
    """Sets a run, and its branch's state, back to where a step begins; see `RunHandle.retry`."""
    step = check_words(step, "a step's place")
    reader = _reader(context, info)
    working = _working(context, reader, info.branch)
    with working.lock:
        head = find_head(working)
        _refuse_others(working, info)
        back = _Back(context, reader, info, step, effects)
        record = SetBack(run=info.id, from_=step, again=back.record)
        row = replace(
            info, status="pending", ended=0, result=None, problem=None, wake_at_micros=0, waits=""
        )
        records = [record, *back.heard(info.id)]
        riders = Riders(records=records, runs=[row], sync=True, sends=back.signals(info.id))
        cause = Cause("rollback", f"retry from {step}", run=info.id, refers=(back.at,))
        commit_move(working, head, back.at, cause, riders)


def _refuse_others(working: WorkingCopy[Any], info: RunInfo) -> None:
    """Refuses if another run of the branch is unfinished (I5): it would lose what it recorded
    since, and do that again. A run that begins after this check has moved the branch's head.

    Raises:
        Conflict: there is an unfinished one.
    """
    for other in unfinished_runs(working):
        if other.id != info.id:
            raise Conflict(
                f"run {visible(other.id)} has the branch, and is not finished ({other.status})",
                target=f"run {info.id}",
                hint="let that one finish, or cancel it; or fork this one",
            )


class _Back:
    """The step to which a run is set back, or at which it is forked, and the history that it
    leaves.

    Attributes:
        at: seq of the commit before that of the step's first record.

    Raises:
        NotFound: the current turn has not reached that step.
    """

    def __init__(
        self, context: Context, reader: LogReader, info: RunInfo, step: str, effects: Again
    ) -> None:
        effects = one_of(effects, "effects=", CHOICES)
        self._inbox = context.backend.inbox(info.id, kind="signal")
        self._reader, self._info, self._step = reader, info, step
        self._refuse_trimmed()
        self._path = path_back(reader, info.branch, info.turn_at)
        self._until = reader.last_seq()
        self._origins = Origins.of(info, self._path)
        lived = Journal.read(info.id, reversed(self._path), aliases=self._origins.runs)
        self._begun, life = self._find(lived)
        self.at = self._begun.parent
        self.record = self._record(effects)
        self._heard = [*_heard_before(self._begun, step, self.record.runs)]
        self._again = [*_again(self._heard, life.entries, {**life.entries, **lived.entries})]

    def _refuse_trimmed(self) -> None:
        """Refuses if retention removed a part of the run's turn: the effects of that part would be
        made again."""
        trim = self._reader.trim()
        if trim is not None and self._info.turn_at < trim.before:
            raise NotFound(
                f"retention removed the history before commit {trim.before}, a part of its turn "
                "with it",
                target=f"run {self._info.id}",
                hint="run the function again under another key",
            )

    def _find(self, lived: Journal) -> tuple[Commit, Journal]:
        places = _places([lived])
        if self._step not in places:
            # It was set back to that step, or before it, and did not come so far again.
            for again in self._origins.agains:  # the last first: that is what it left last
                left = self._reader.commits(again.at + 1, again.until, damaged_too=True)
                places = _places(journals(again.runs, left)) | places
        if self._step in places:
            return places[self._step]
        if self._path and self._path[-1].parent != self._info.turn_at:
            raise NotFound(
                f"branch {self._info.branch!r} was moved to before its turn began, as where "
                "another run was set back",
                target=f"run {self._info.id}",
                hint="run the function again under another key",
            )
        shown = ", ".join(map(visible, list(places)[:20])) + (" …" if len(places) > 20 else "")
        raise NotFound(
            f"its current turn has not come to {self._step!r}",
            target=f"run {self._info.id}",
            hint=f"it has: {shown or 'nothing yet'}",
        )

    def _record(self, effects: Again) -> WentBack:
        """Returns the record of the history that is left: that of the run, and of those that it was
        forked from."""
        info = self._info
        began = begin_of(self._reader.commit(info.started), info.id)
        again = began.again if began is not None else None
        return WentBack(
            runs=[info.id, *(again.runs if again is not None else ())],
            untils=[self._until, *(again.untils if again is not None else ())],
            at=self.at,
            until=self._until,
            step=self._step,
            effects=effects,
        )

    def heard(self, run: str) -> list[Record]:
        """Returns the records of what the function had heard before the step, and that came into
        the log with it, for the run that continues from there. With another value, or an answer of
        another person, it would make other calls, and nobody would be asked."""
        return [replace(one, run=run) for one in self._again]

    def signals(self, run: str) -> list[Message]:
        """Returns the signals that it took after the step, and those that it did not take, for the
        run that continues from there."""
        path = {one.seq for one in path_of(self._reader, self.at, self._info.turn_at)}
        commits = self._reader.commits(self._info.turn_at + 1, self._until, damaged_too=True)
        untils = dict(zip(self.record.runs, self.record.untils, strict=True))

        def kept(commit: Commit, record: Record) -> bool:
            heard = commit.seq == self._begun.seq and record in self._heard
            return heard or commit.seq in path

        left = signals_left(commits, untils, kept)
        for message in self._inbox:
            if run != self._info.id:
                left.setdefault((message.name, base_key(message.key)), message)
            else:  # it has them still
                left.pop((message.name, base_key(message.key)), None)
        return [
            Message(
                run, self._info.agent, "signal", name, renewed(key, self._until), one.value, one.who
            )
            for (name, key), one in left.items()
            if not name.startswith(CHILD)
        ]


def _places(lives: Iterable[Journal]) -> dict[str, tuple[Commit, Journal]]:
    """Returns the commit of the first record at each place of a history, and the life that reached
    it; of several, the last one."""
    places: dict[str, tuple[Commit, Journal]] = {}
    for life in lives:
        commits = {commit.seq: commit for commit in life.commits}
        places |= {place: (commits[entry.first], life) for place, entry in life.entries.items()}
    return places


def _heard_before(begun: Commit, step: str, runs: Collection[str]) -> Iterator[Record]:
    """Yields the records of what was heard before a step, in the commit of its first record: they
    waited for that. If that is of its end, other tasks may have heard the rest after its begin.
    Values that were drawn in the block of the step itself belong to it."""
    ours = [record for record in begun.typed if record.run in runs]
    first = next(number for number, record in enumerate(ours) if record.place == step)
    begins, scope = isinstance(ours[first], Intent | WaitBegan), scope_of(step)
    for record in ours[:first]:
        match record:
            case Valued():
                if record.within != step:
                    yield record
            case Fired() if begins:
                yield record
            case Cancelled() | WaitEnded(t="wait-ended") | Outcome(t="edit" | "move", error={}):
                if begins or scope_of(record.place) == scope:
                    yield record


def _again(
    heard: Iterable[Record], ended: Mapping[str, Entry], begun: Mapping[str, Entry]
) -> Iterator[Record]:
    """Yields these records to be written again: the end of a wait behind its begin, and with what
    a type filled in since."""
    for record in heard:
        if not isinstance(record, WaitEnded):
            yield record
            continue
        began, end = begun[record.place].call, ended[record.place].outcome
        if isinstance(began, WaitBegan):
            yield began
        yield replace(record, value=end.value) if isinstance(end, WaitEnded) else record


def _started(reader: LogReader, info: RunInfo) -> dict[str, Any]:
    began = plain_begin_of(reader.commit(info.started), info.id)
    if began is not None:
        return dict(began)
    raise NotFound("the commit that began it says nothing of it", target=f"run {info.id}")


def refuse_unfinished(info: RunInfo) -> None:
    """A run is set back only when nobody may be at it."""
    refuse_not_begun(info)
    if info.status not in (*FINISHED, "needs_attention"):
        raise Conflict(
            f"is {info.status}",
            target=f"run {info.id}",
            hint="cancel it first, or fork it",
        )


def _reader(context: Context, info: RunInfo) -> LogReader:
    refuse_not_begun(info)
    agent = context.backend.agent(info.agent)
    if agent is None or agent.no != info.agent_no:
        raise NotFound("its agent was deleted", target=f"run {info.id}")
    return LogReader(context.backend, agent)


def _working(context: Context, reader: LogReader, branch: str) -> WorkingCopy[Any]:
    head = reader.peek(reader.ref(branch).seq)
    schema: Schema[Any] = Schema(dict, id=head.schema_id, version=head.schema_version)
    return WorkingCopy(context, reader.name, schema, branch, incarnation=reader.incarnation)
