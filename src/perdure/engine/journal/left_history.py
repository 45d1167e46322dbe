"""The effects that a run had in a history that it left: before it was set back, or was forked; and
those of the run that it was forked from.

A tool call that was made there, and a run that was started there, has happened. When the run
reaches the same call again, in that turn or in a later one, a person decides what to do; see
`control.rerun`, for how they are found `left_calls`, and for later turns `earlier_turns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.left_behind import LeftBehind, WentBack
from perdure.core.format.records import (
    Turn,
    WaitBranch,
)
from perdure.core.values.plain_values import Plain, same
from perdure.engine.journal.call_identity import Form
from perdure.engine.journal.earlier_turns import left_of, outcome_at
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_calls import Ends, LeftCalls, Made, left, stands_for
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import Commit, RunInfo
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader

Again = Literal["ask", "reuse", "live"]
"""The treatment of a tool call that was made before: ask a person; take its outcome; make it again,
under another idempotency key."""


class Before:
    """The earlier calls that a run may find: each is found once, even after a crash in between. Of
    several that are the same, those of the task that calls come first, then those made first.

    Args:
        runs: the ids of the run, and of those whose records it shares.
        said: what it left in earlier turns, and the seq of the commit that says so; None: nothing.
    """

    def __init__(
        self,
        reader: LogReader,
        runs: Collection[str],
        effects: Again,
        calls: LeftCalls,
        said: tuple[LeftBehind, int] | None,
    ) -> None:
        self._reader, self._runs = reader, runs
        self.effects = effects
        self._calls, self._said = calls, said

    def as_taken(self, branch: WaitBranch, value: Plain) -> Plain:
        """Returns the value that a wait got; if it is the end of a run that was taken before, with
        what a type filled in then: calls that were made with that are found again."""
        end = self._calls.ends.get(branch.name) if branch.kind == "child" else None
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
        undoes: Collection[str] | None = None,
    ) -> Made | None:
        """Returns the earlier call of this name and these arguments, made in this task or else in
        another: a call on a thread now may have been made without one before.

        Args:
            entry: the entry of a call that was under way where the history was left, or decided on
                there.
            form: makes the arguments' digests in the form of recorded ones.
            undoes: of a compensation, the keys of the call that it undoes.
        """
        if entry is not None and entry.asked and not entry.call.made:
            return self._unknown(name, scope, args)
        if entry is not None:
            self._calls.look()
            key = entry.call.made if entry.asked else str(entry.call.key or "")
            found = self._calls.by_key.get(key)
            return self._read(found, args, form) if found is not None and found.stands else None
        found = self._calls.find(name, scope, args, form, undoes)
        if found is None:
            return self._unknown(name, scope, args) if self._calls.unread else None
        return self._read(found, args, form)

    def _read(self, made: Made, args: Mapping[str, str], form: Form | None) -> Made:
        """Reads the outcome of a call of an earlier turn. If that is gone, nobody knows it."""
        if form is not None and dict(form(made.args)) == dict(made.args):
            made.args = args
        if made.outcome is None and made.outcome_at and self.effects == "reuse":
            made.outcome = outcome_at(self._reader, made.outcome_at, made.place)
        return made

    def _unknown(self, name: str, scope: str, args: Mapping[str, str]) -> Made:
        """A call that may have been made: nobody knows its key, nor what came of it."""
        return Made(name, scope, "", self._calls.unread, args, "", real=True)

    def carried_on(self, turn: Turn, info: RunInfo) -> Turn:
        """Returns the record of the run's next turn, with what the run left before it: the calls
        that no call stands for by then. `info`: the run, in the turn that ends; all that it
        recorded in this is committed."""
        reader, found, taken = self._reader, set[str](), Ends()
        calls = self._calls.unanswered()
        for commit in reversed(path_of(reader, reader.ref(info.branch).seq, info.turn_at)):
            self._calls.note_said(commit)
            for record in commit.typed:
                if record.run in self._runs:
                    taken.note(record, commit.seq)
                    found.update(stands_for(record))
        for one in reversed(calls):  # what that one had replaced goes with it
            if one.key in found:
                found.add(one.instead)
        said = [left(one) for one in calls if one.stands and one.key not in found]
        unread = self._calls.unread
        if not said and not unread:
            return turn
        ends = [end for name, end in self._calls.ends.items() if name not in taken.taken]
        behind = LeftBehind(effects=self.effects, calls=said, ends=ends, unread=unread)
        if self._said is not None and self._said[0] == behind:
            return replace(turn, left_at=self._said[1])
        return replace(turn, left=behind)


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
    backend: Backend,
    reader: LogReader,
    info: RunInfo,
    began: Commit,
    origins: Origins,
    journal: Journal,
) -> Before | None:
    """Returns the calls that the run made in the histories that it left, and those of the run that
    it was forked from; None if it left none.

    Args:
        began: the commit that began its turn.

    Raises:
        Corrupt: that of an earlier turn, which says what was left by then, does not.
    """
    said = left_of(reader, began)
    if origins.back is None and said is None:
        return None
    behind = said[0] if said is not None else LeftBehind(effects=origins.effects)
    effects = origins.effects if origins.back is not None else behind.effects
    calls = LeftCalls(backend, reader, info, origins.untils, behind, journal)
    return Before(reader, origins.runs, effects, calls, said)


def _has_all_of(whole: Plain, part: Plain) -> bool:
    """Returns True if a value is the other one, or that with more fields."""
    if type(whole) is not type(part):
        return False
    if isinstance(part, dict):
        return all(key in whole and _has_all_of(whole[key], one) for key, one in part.items())
    if isinstance(part, list | tuple):
        return len(whole) == len(part) and all(map(_has_all_of, whole, part))
    return same(whole, part)


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
