"""The effects that a run had in a history that it left: before it was set back, or was forked.

A tool call that was made there, and a run that was started there, has happened. When the run
reaches the same call again, in that turn or in a later one, a person decides what to do; see
`control.rerun`, and for later turns `earlier_turns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.left_behind import LeftBehind, LeftCall, LeftEnd, WentBack
from perdure.core.format.records import (
    Completed,
    Intent,
    Outcome,
    Record,
    Turn,
    WaitBranch,
    WaitEnded,
)
from perdure.core.schema.digest_keys import form_of
from perdure.core.schema.value_digest import is_known
from perdure.core.values.plain_values import Plain, same
from perdure.engine.journal.call_identity import Form
from perdure.engine.journal.earlier_turns import left_of, outcome_at
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.scopes import scope_of
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import Commit, RunInfo
from perdure.state.runs.run_reading import RecordedCalls, RecordedWaits, begun_key
from perdure.storage.log.reader import LogReader

Again = Literal["ask", "reuse", "live"]
"""The treatment of a tool call that was made before: ask a person; take its outcome; make it again,
under another idempotency key."""


class Made(Struct):
    """A tool call that was made, or a run that was started.

    Attributes:
        name: the called function, without the calling task; `scope`: that task's path.
        key: its permanent key: the idempotency key, or the run's id. Empty: it may have been made,
            by a commit that cannot be read.
        seq: the seq of the commit that recorded it first.
        outcome: the last record of its outcome; None if there is none, or it was not read yet.
        outcome_at: seq of the commit with that; 0 if there is none.
        real: it was called; not only recorded that a person must decide about it.
        instead: the key of the call that it replaced, or was to replace.
        of: the module of the called function; empty if that is not recorded.
        place, run: of its records.
        undone: a compensation of it was begun.
    """

    name: str
    scope: str
    key: str
    seq: int
    args: Mapping[str, str]
    preview: str
    outcome: Outcome | None = None
    real: bool = False
    instead: str = ""
    of: str = ""
    outcome_at: int = 0
    place: str = ""
    run: str = ""
    undone: bool = False

    @property
    def stands(self) -> bool:
        """True if it may have had an effect: it was called, and is not known to have failed to."""
        return self.real and not (self.outcome is not None and self.outcome.not_done)

    def had(self, args: Mapping[str, str]) -> bool:
        """Returns True if it is known to have had these arguments. An unknown argument is equal to
        nothing."""
        return dict(self.args) == dict(args) and all(map(is_known, args.values()))

    def gave(self, args: Mapping[str, str], of: str) -> Outcome | None:
        """The outcome that can be taken over for a call of the same name, of a function of that
        module, with these arguments; None: nobody knows it, or whether it is the same call."""
        outcome = self.outcome
        if self.undone:  # what it gave is not there any more
            return None
        if self.of != of and self.of:  # it may have moved, or be another one
            return None
        if outcome is None or outcome.cancelled or outcome.not_done:
            return None
        return outcome if self.had(args) else None


class Before:
    """The earlier calls that a run may find: each is found once, even after a crash in between. Of
    several that are the same, those of the task that calls come first, then those made first.

    Args:
        runs: the ids of the run, and of those whose records it shares.
        calls: by their keys, in the log's order.
        ends: the ends of other runs that it took there, by the names of their messages.
        unread: the seq of an unreadable commit of a history that it left, which may record a call:
            so any unknown call may have been made. 0 if there is none.
        said: what it left in earlier turns, and the seq of the commit that says so; None: nothing.
    """

    def __init__(
        self,
        reader: LogReader,
        runs: Collection[str],
        effects: Again,
        calls: dict[str, Made],
        ends: dict[str, LeftEnd],
        unread: int,
        journal: Journal,
        said: tuple[LeftBehind, int] | None,
    ) -> None:
        self._reader, self._runs = reader, runs
        self.effects = effects
        self._ends = ends
        self._calls = calls
        self._unread = unread
        self._said = said
        settled = _on_the_path(journal)
        instead = {one.instead for one in calls.values() if one.stands}
        self._left: dict[tuple[str, frozenset[tuple[str, str]]], list[Made]] = {}
        self._forms: dict[str, dict[Any, Mapping[str, str]]] = {}
        """By the calls' names: arguments in each form in which some are recorded."""
        for one in calls.values():
            if one.stands and one.key not in settled and one.key not in instead:
                self._left.setdefault(_same(one.name, one.args), []).append(one)
                forms = self._forms.setdefault(one.name, {})
                forms.setdefault(form_of(one.args), one.args)

    def as_taken(self, branch: WaitBranch, value: Plain) -> Plain:
        """Returns the value that a wait got; if it is the end of a run that was taken before, with
        what a type filled in then: calls that were made with that are found again."""
        end = self._ends.get(branch.name) if branch.kind == "child" else None
        if end is None:
            return value
        taken = outcome_at(self._reader, end.seq, end.place)
        return taken.value if taken is not None and _has_all_of(taken.value, value) else value

    def made(
        self,
        name: str,
        scope: str,
        args: Mapping[str, str],
        entry: Entry | None,
        form: Form | None = None,
    ) -> Made | None:
        """Returns the earlier call of this name and these arguments, made in this task or else in
        another: a call on a thread now may have been made without one before.

        Args:
            entry: the entry of a call that was under way where the history was left, or decided on
                there.
            form: makes the arguments' digests in the form of recorded ones.
        """
        if entry is not None and entry.asked and not entry.call.made:
            return self._unknown(name, scope, args)
        if entry is not None:
            found = self._calls.get(entry.call.made if entry.asked else str(entry.call.key or ""))
            return self._read(found, args, form) if found is not None and found.stands else None
        same = self._left.get(_same(name, args)) or self._in_form(name, form)
        if not same:
            return self._unknown(name, scope, args) if self._unread else None
        found = next((one for one in same if one.scope == scope), same[0])
        same.remove(found)
        return self._read(found, args, form)

    def _in_form(self, name: str, form: Form | None) -> list[Made] | None:
        """Returns the calls of this name whose arguments are the same, and recorded in another
        form."""
        if form is None:
            return None
        for recorded in self._forms.get(name, {}).values():
            same = self._left.get(_same(name, form(recorded)))
            if same:
                return same
        return None

    def _read(self, made: Made, args: Mapping[str, str], form: Form | None) -> Made:
        """Reads the outcome of a call of an earlier turn. If that is gone, nobody knows it."""
        if form is not None and dict(form(made.args)) == dict(made.args):
            made.args = args
        if made.outcome is None and made.outcome_at and self.effects == "reuse":
            made.outcome = outcome_at(self._reader, made.outcome_at, made.place)
        return made

    def _unknown(self, name: str, scope: str, args: Mapping[str, str]) -> Made:
        """A call that may have been made: nobody knows its key, nor what came of it."""
        return Made(name, scope, "", self._unread, args, "", real=True)

    def carried_on(self, turn: Turn, info: RunInfo) -> Turn:
        """Returns the record of the run's next turn, with what the run left before it: the calls
        that no call stands for by then. `info`: the run, in the turn that ends; all that it
        recorded in this is committed."""
        reader, found, taken = self._reader, set[str](), _Ends()
        for commit in reversed(path_of(reader, reader.ref(info.branch).seq, info.turn_at)):
            _note_said(self._calls, commit)
            for record in commit.typed:
                if record.run in self._runs:
                    taken.note(record, commit.seq)
                    found.update(_stands_for(record))
        calls = [*self._calls.values()]
        for one in reversed(calls):  # what that one had replaced goes with it
            if one.key in found:
                found.add(one.instead)
        left = [_left(one) for one in calls if one.stands and one.key not in found]
        if not left and not self._unread:
            return turn
        ends = [end for name, end in self._ends.items() if name not in taken.taken]
        behind = LeftBehind(effects=self.effects, calls=left, ends=ends, unread=self._unread)
        if self._said is not None and self._said[0] == behind:
            return replace(turn, left_at=self._said[1])
        return replace(turn, left=behind)


def _same(name: str, args: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(args.items())


def _on_the_path(journal: Journal) -> set[str]:
    """Returns the keys of the calls in the run's own history, and of those that they replaced."""
    keys: set[str] = set()
    for entry in journal.entries.values():
        for record in (entry.call, entry.outcome):
            if record is not None:
                keys.update(_stands_for(record))
    return keys


def _stands_for(record: Record) -> Iterator[str]:
    """Yields the keys of the calls that a record on the path stands for: of its own, and of the one
    that it replaced. A signal's key may be one of a call, which its receiver answers."""
    if key := begun_key(record):
        yield key
    if record.made:
        yield record.made


# -- reading it from the log ----------------------------------------------------------------


class Origins(Struct):
    """The runs whose history a run continues, from the commits on the path of its branch since its
    turn began.

    Attributes:
        effects: the choice made when it was set back last, or forked.
        untils: by the ids of the runs whose records it shares, itself included: the last commit
            that it shares.
        back: the commit that set it back last, or began it as a fork.
        agains: the records of such commits, the last first.
    """

    effects: Again = "ask"
    untils: dict[str, int] = field(default_factory=dict)
    back: Commit | None = None
    agains: list[WentBack] = field(default_factory=list)

    @classmethod
    def of(cls, info: RunInfo, newest_first: Iterable[Commit]) -> Origins:
        origins = cls(untils={info.id: 0})
        for commit in newest_first:
            for record in commit.typed:
                if record.again is not None and record.run in origins.untils:
                    origins._add(record.again, commit)
        return origins

    def _add(self, again: WentBack, commit: Commit) -> None:
        if self.back is None:
            self.back, self.effects = commit, again.effects
        for run, until in zip(again.runs, again.untils, strict=True):
            self.untils[run] = max(self.untils.get(run, 0), until)
        self.agains.append(again)

    @property
    def runs(self) -> frozenset[str]:
        return frozenset(self.untils)


def made_before(
    reader: LogReader, info: RunInfo, began: Commit, origins: Origins, journal: Journal
) -> Before | None:
    """Returns the calls that the run made in the histories that it left; None if it left none.

    Args:
        began: the commit that began its turn.

    Raises:
        Corrupt: that of an earlier turn, which says what was left by then, does not.
    """
    said = left_of(reader, began)
    if origins.back is None and said is None:
        return None
    behind = said[0] if said is not None else LeftBehind(effects=origins.effects)
    calls = {one.key: _carried(one) for one in behind.calls}
    ends, unread = _Ends({end.name: end for end in behind.ends}), behind.unread
    effects = behind.effects
    if origins.back is not None:
        effects = origins.effects
        until = max(origins.untils.values())
        commits = reader.commits(info.turn_at + 1, until, damaged_too=True)
        unread = _read_calls(commits, origins.untils, journal, calls, ends) or unread
    for commit in journal.commits:
        _note_said(calls, commit)
    return Before(reader, origins.runs, effects, calls, ends.taken, unread, journal, said)


def _note_said(calls: Mapping[str, Made], commit: Commit) -> None:
    """Notes what a person said of these calls since."""
    for record in commit.typed:
        if isinstance(record, Outcome) and record.t == "outcome":
            call = calls.get(str(record.key))
            if call is not None:
                call.outcome, call.outcome_at = record, commit.seq


def _may_call(commit: Commit, runs: Collection[str]) -> bool:
    """Returns True if a commit is unreadable and may record a call of one of these runs. Its header
    may tell whose it is."""
    if not commit.damaged or commit.records:
        return False
    return commit.cause.run is None or commit.cause.run in runs


def _read_calls(
    commits: Iterable[Commit],
    untils: Mapping[str, int],
    journal: Journal,
    calls: dict[str, Made],
    ends: _Ends,
) -> int:
    """Adds the calls of these runs, by key, and the ends of other runs; returns the seq of the
    first unreadable commit that may record a call, or 0. Values that were completed there are so in
    the journal, too."""
    settled: dict[tuple[str, int], Made] = {}
    last: dict[tuple[str, str], Made] = {}
    recorded, unread = RecordedCalls(), 0
    for commit in commits:
        if not unread and _may_call(commit, untils):
            unread = commit.seq
        for record in commit.typed:
            run, place = record.run, record.place
            if commit.seq > untils.get(run, -1):
                continue
            ends.note(record, commit.seq)
            if isinstance(record, Completed):
                journal.complete(record, commit.seq)
                made_there = settled.get((place, record.seq))
                if made_there is not None and made_there.outcome is not None:
                    made_there.outcome = replace(made_there.outcome, value=record.value)
                    made_there.outcome_at = commit.seq
                continue
            if not place:
                continue
            key = recorded.key_of(record)
            if begun_key(record):
                made = calls.setdefault(key, _made(place, key, record, commit.seq))
                made.real |= not record.made_at
                last[run, place] = made
                if isinstance(record, Intent) and (paid := last.get((run, record.compensates))):
                    paid.undone = True
                made.outcome = record if record.t == "step" else None
                made.outcome_at = commit.seq if record.t == "step" else 0
            call = calls.get(key)
            cancelled = record.t == "cancelled" and call is not None and call.outcome is None
            if call is not None and (record.t == "outcome" or cancelled):
                call.outcome, call.outcome_at = record, commit.seq
                settled[place, commit.seq] = call
    return unread


class _Ends:
    """The ends of other runs that runs took: the last of each, as its type read it.

    Attributes:
        taken: by the names of the messages.
    """

    def __init__(self, taken: dict[str, LeftEnd] | None = None) -> None:
        self.taken = taken or {}
        self._waits = RecordedWaits()
        self._names: dict[tuple[str, int], str] = {}

    def note(self, record: Record, seq: int) -> None:
        """Notes a record of a commit; each has to be, in the log's order."""
        self._waits.note(record)
        if isinstance(record, WaitEnded) and record.t == "wait-ended":
            branch = self._waits.branch_of(record)
            if branch is not None and branch.kind == "child":
                self._names[record.place, seq] = branch.name
                self._take(branch.name, record.place, seq)
        elif isinstance(record, Completed) and (record.place, record.seq) in self._names:
            self._take(self._names[record.place, record.seq], record.place, seq)

    def _take(self, name: str, place: str, seq: int) -> None:
        self.taken[name] = LeftEnd(name=name, place=place, seq=seq)


def _has_all_of(whole: Plain, part: Plain) -> bool:
    """Returns True if a value is the other one, or that with more fields."""
    if type(whole) is not type(part):
        return False
    if isinstance(part, dict):
        return all(key in whole and _has_all_of(whole[key], one) for key, one in part.items())
    if isinstance(part, list | tuple):
        return len(whole) == len(part) and all(map(_has_all_of, whole, part))
    return same(whole, part)


def _made(place: str, key: str, record: Record, seq: int) -> Made:
    scope, instead = scope_of(place), record.made
    return Made(
        place[len(scope) :].rpartition("#")[0],
        scope,
        key,
        seq,
        record.args,
        record.preview,
        instead="" if instead == key else instead,
        of=str(record.of) if isinstance(record, Intent) else "",
        place=place,
        run=record.run,
    )


def _left(made: Made) -> LeftCall:
    return LeftCall(
        place=made.place,
        run=made.run,
        key=made.key,
        seq=made.seq,
        args=made.args,
        preview=made.preview,
        outcome=0 if made.undone else made.outcome_at,
        made=made.instead,
        of=made.of,
    )


def _carried(call: LeftCall) -> Made:
    scope = scope_of(call.place)
    return Made(
        call.place[len(scope) :].rpartition("#")[0],
        scope,
        call.key,
        call.seq,
        call.args,
        call.preview,
        real=True,
        instead=call.made,
        of=call.of,
        outcome_at=call.outcome,
        place=call.place,
        run=call.run,
    )


def path_back(reader: LogReader, branch: str, turn_at: int) -> list[Commit]:
    """Returns the path as `path_of` does, from the branch's head; if a commit on the way cannot be
    read, from the last one before it that a run can be set back to."""
    try:
        return path_of(reader, reader.ref(branch).seq, turn_at)
    except (Corrupt, UnsupportedFormat) as error:
        if error.before <= turn_at:
            raise
        return path_of(reader, error.before, turn_at)


def path_of(reader: LogReader, head: int, turn_at: int) -> list[Commit]:
    """Returns the commits of a run's turn that lead to a head, the last first. For those that
    retention removed, only their existence is known (`Commit.trimmed`)."""
    path: list[Commit] = []
    if head == turn_at:
        return path
    for commit in reader.ancestors(head):
        if commit.seq <= turn_at:
            break
        path.append(commit)
    return path


def cut_off(info: RunInfo) -> Corrupt:
    """I5: a run whose history its branch does not have any more would do all of it again."""
    return Corrupt(
        f"the history of its turn, from commit {info.turn_at} on, is not on branch {info.branch!r} "
        "any more",
        target=f"run {info.id}",
        hint="that was moved beneath it: cancel the run, and start it again under another key",
    )
