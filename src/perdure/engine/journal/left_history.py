"""The effects that a run had in a history that it left: before it was set back, or was forked.

A tool call that was made there, and a run that was started there, has happened. When the run
reaches the same call again, a person decides what to do; see `control.rerun`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.records import (
    Completed,
    Intent,
    Outcome,
    Record,
    WaitBranch,
    WaitEnded,
    WentBack,
)
from perdure.core.schema.value_digest import is_known
from perdure.core.values.plain_values import Plain, same
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.scopes import scope_of
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import Commit, RunInfo
from perdure.state.runs.run_reading import RecordedCalls, RecordedWaits, begun_key
from perdure.storage.log.reader import LogReader

NO_ENDS: Mapping[str, Plain] = {}

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
        outcome: the last record of its outcome; None if there is none.
        real: it was called; not only recorded that a person must decide about it.
        instead: the key of the call that it replaced, or was to replace.
        of: the module of the called function; empty if that is not recorded.
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
        if self.of != of and self.of:  # it may have moved, or be another one
            return None
        if outcome is None or outcome.cancelled or outcome.not_done:
            return None
        return outcome if self.had(args) else None


class Before:
    """The earlier calls that a run may find: each is found once, even after a crash in between.

    Args:
        unread: the seq of an unreadable commit of a history that it left, which may record a call:
            so any unknown call may have been made. 0 if there is none.
        ends: the ends of other runs that it took there, by the names of their messages.
    """

    def __init__(
        self,
        effects: Again,
        calls: Mapping[str, Made],
        journal: Journal,
        unread: int = 0,
        ends: Mapping[str, Plain] = NO_ENDS,
    ) -> None:
        self.effects = effects
        self._ends = ends
        self._calls = calls
        self._unread = unread
        settled = _on_the_path(journal)
        instead = {one.instead for one in calls.values() if one.stands}
        self._left: dict[tuple[str, frozenset[tuple[str, str]]], list[Made]] = {}
        for one in calls.values():
            if one.stands and one.key not in settled and one.key not in instead:
                self._left.setdefault(_same(one.name, one.args), []).append(one)

    def as_taken(self, branch: WaitBranch, value: Plain) -> Plain:
        """Returns the value that a wait got; if it is the end of a run that was taken before, with
        what a type filled in then: calls that were made with that are found again."""
        if branch.kind != "child" or branch.name not in self._ends:
            return value
        taken = self._ends[branch.name]
        return taken if _has_all_of(taken, value) else value

    def made(
        self, name: str, scope: str, args: Mapping[str, str], entry: Entry | None
    ) -> Made | None:
        """Returns the earlier call of this name and these arguments, made in this task or else in
        another: a call on a thread now may have been made without one before.

        Args:
            entry: the entry of a call that was under way where the history was left, or decided on
                there.
        """
        if entry is not None and entry.asked and not entry.call.made:
            return self._unknown(name, scope, args)
        if entry is not None:
            found = self._calls.get(entry.call.made if entry.asked else str(entry.call.key or ""))
            return found if found is not None and found.stands else None
        same = self._left.get(_same(name, args))
        if not same:
            return self._unknown(name, scope, args) if self._unread else None
        found = next((one for one in same if one.scope == scope), same[0])
        same.remove(found)
        return found

    def _unknown(self, name: str, scope: str, args: Mapping[str, str]) -> Made:
        """A call that may have been made: nobody knows its key, nor what came of it."""
        return Made(name, scope, "", self._unread, args, "", real=True)


def _same(name: str, args: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(args.items())


def _on_the_path(journal: Journal) -> set[str]:
    """Returns the keys of the calls in the run's own history, and of those that they replaced."""
    keys: set[str] = set()
    for entry in journal.entries.values():
        for record in (entry.call, entry.outcome):
            if record is not None:
                child = record.child.run if record.child is not None else ""
                keys.update(str(key) for key in (record.key, record.made, child) if key)
    return keys


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
    reader: LogReader, info: RunInfo, origins: Origins, journal: Journal
) -> Before | None:
    """Returns the calls that the run made in the histories that it left; None if it left none."""
    if origins.back is None:
        return None
    commits = reader.commits(info.turn_at + 1, max(origins.untils.values()), damaged_too=True)
    calls, unread, ends = _calls(commits, origins.untils, journal)
    for commit in journal.commits:  # what a person said since
        for record in commit.typed:
            if record.t == "outcome" and record.key in calls:
                calls[record.key].outcome = record
    return Before(origins.effects, calls, journal, unread, ends)


def _may_call(commit: Commit, runs: Collection[str]) -> bool:
    """Returns True if a commit is unreadable and may record a call of one of these runs. Its header
    may tell whose it is."""
    if not commit.damaged or commit.records:
        return False
    return commit.cause.run is None or commit.cause.run in runs


def _calls(
    commits: Iterable[Commit], untils: Mapping[str, int], journal: Journal
) -> tuple[dict[str, Made], int, dict[str, Plain]]:
    """Returns the calls of these runs, by key; the first unreadable commit that may record one; and
    the ends of other runs. Values that were completed there are so in the journal, too."""
    calls: dict[str, Made] = {}
    ends = _Ends()
    settled: dict[tuple[str, int], Made] = {}
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
                continue
            if not place:
                continue
            key = recorded.key_of(record)
            if begun_key(record):
                made = calls.setdefault(key, _made(place, key, record, commit.seq))
                made.real |= not record.made_at
                made.outcome = record if record.t == "step" else None
            call = calls.get(key)
            cancelled = record.t == "cancelled" and call is not None and call.outcome is None
            if call is not None and (record.t == "outcome" or cancelled):
                call.outcome = record
                settled[place, commit.seq] = call
    return calls, unread, ends.taken


class _Ends:
    """The ends of other runs that runs took: the last of each, as its type read it.

    Attributes:
        taken: by the names of the messages.
    """

    def __init__(self) -> None:
        self.taken: dict[str, Plain] = {}
        self._waits = RecordedWaits()
        self._names: dict[tuple[str, int], str] = {}

    def note(self, record: Record, seq: int) -> None:
        """Notes a record of a commit; each has to be, in the log's order."""
        self._waits.note(record)
        if isinstance(record, WaitEnded) and record.t == "wait-ended":
            branch = self._waits.branch_of(record)
            if branch is not None and branch.kind == "child":
                self._names[record.place, seq] = branch.name
                self.taken[branch.name] = record.value
        elif isinstance(record, Completed) and (record.place, record.seq) in self._names:
            self.taken[self._names[record.place, record.seq]] = record.value


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
