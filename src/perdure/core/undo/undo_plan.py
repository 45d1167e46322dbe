"""Undo and redo, planned on commits alone: which commits can be taken back, and which not
(migrations)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format.records import Passed
from perdure.core.undo.inverse import invert
from perdure.core.undo.standing_edits import displace
from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import Cause, Commit

NOT_UNDOABLE = frozenset({"create", "undo", "redo", "migrate", "rollback"})

MOVES = frozenset({"undo", "redo", "rollback"})
"""The kinds of commits with which a run goes back by itself."""

STRETCHES_MAX = 16
"""Of what remains between the commits that a `Passed` record passes over. I9: the record's bytes
do not depend on how long the history is."""


class Plan(Struct, frozen=True):
    """The ops to commit, or why there are none.

    Attributes:
        ops: the delta to commit now.
        seqs: the commits that it takes back or restores, oldest first.
        blocked_by: (seq, path) of later changes of the same places; then `ops` is empty.
        elder: the oldest of them, if it is of another major version of the schema than the state
            that it would be taken back from: no migration has converted what it holds. None: all
            are of that version.
        lacks: a commit that is needed for this but that retention removed; 0: none.
        record: for the new commit, so that later plans skip the commits that cancel out; None:
            there is no room for it.
        since: the last commit that was looked at, where what a run did is taken back.
    """

    ops: list[Op]
    seqs: list[int]
    blocked_by: list[tuple[int, str]]
    elder: Commit | None = None
    lacks: int = 0
    record: Passed | None = None
    since: int = 0


class RunChanges(Struct, frozen=True):
    """The changes of a run that are to be taken back.

    Attributes:
        started: seq of the commit that began it.
        turns: only of its last turns that changed something, so many; 0: of all.
    """

    run: str
    started: int
    turns: int = 0


class Path(Protocol):
    """The commits that a state is made of."""

    def newest(self) -> Iterator[Commit]:
        """Yields the commits on the path to the head, newest first."""

    def since(self, seq: int, count: int | None = None) -> Iterator[Commit]:
        """Yields the commits on the path to one of its commits, that one first. count: how many are
        wanted."""


class _Search(Struct):
    """A search for the commits to take back next, along a path, newest first.

    Attributes:
        gone: the commits that a later one took back.
    """

    gone: set[int]
    chosen: list[Commit]

    def takes(self, commit: Commit) -> bool:
        """Notes a commit; returns True if it is one to take back."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def takes_back_rollback(self, commit: Commit) -> bool:
        """Returns True if a rollback is itself to be taken back: what it left counts again."""
        return False

    def ahead(self) -> Self:
        """Returns the same search, to go on with beside this one."""
        return replace(self, gone=set(self.gone), chosen=list(self.chosen))

    def anew(self) -> _Search:
        """Returns the search for what can be taken back behind what this one found."""
        return type(self)(set(self.gone), [])


class _Undoing(_Search):
    """A search for the latest commit with a delta, or its whole group."""

    def takes(self, commit: Commit) -> bool:
        kind = commit.cause.kind
        if kind in ("undo", "redo") and commit.seq not in self.gone:
            self.gone.update(commit.cause.refers)
        if kind in NOT_UNDOABLE or commit.seq in self.gone:
            return False
        if not commit.delta and not commit.trimmed:  # of what retention removed, nobody knows
            return False
        if self.chosen and commit.cause.group != self.chosen[0].cause.group:
            return False
        self.chosen.append(commit)
        return True

    @property
    def done(self) -> bool:
        return bool(self.chosen) and self.chosen[0].cause.group is None


class _UndoingRun(_Search):
    """A search for all that a run changed, its own undos and rollbacks too: taken back together
    with what they took back, they come to nothing.

    Attributes:
        at: the last commit that was read.
        left: the turns to go, where they are counted.
        in_turn: the number of chosen commits by the begin of the turn that was read last.
    """

    of: RunChanges
    at: int = 0
    left: int = 0
    in_turn: int = 0

    def takes(self, commit: Commit) -> bool:
        self.at, cause = commit.seq, commit.cause
        own = self._is_own(cause)
        if own and cause.kind not in ("create", "migrate") and commit.seq not in self.gone:
            # A move without a delta, too: what it passes over counts again.
            if commit.delta or cause.kind in MOVES or (commit.trimmed and cause.kind == "edit"):
                self.chosen.append(commit)
                return True
        elif cause.kind in ("undo", "redo") and not own and commit.seq not in self.gone:
            self.gone.update(cause.refers)
        if cause.kind == "run-turn" and cause.run == self.of.run and self.left:
            self.left -= len(self.chosen) > self.in_turn
            self.in_turn = len(self.chosen)
        return False

    @property
    def done(self) -> bool:
        return 0 < self.at <= self.of.started or (self.of.turns > 0 and self.left == 0)

    def takes_back_rollback(self, commit: Commit) -> bool:
        return self._is_own(commit.cause) and commit.seq not in self.gone

    def _is_own(self, cause: Cause) -> bool:
        return cause.run == self.of.run and cause.step is not None  # else it did it for others

    def anew(self) -> _Search:
        return _Undoing(set(self.gone), [])


class _Redoing(_Search):
    """A search for the latest undo."""

    def takes(self, commit: Commit) -> bool:
        if commit.cause.kind == "redo" and commit.seq not in self.gone:
            self.gone.update(commit.cause.refers)
        if commit.cause.kind != "undo" or commit.seq in self.gone:
            return False
        self.chosen.append(commit)
        return True

    @property
    def done(self) -> bool:
        return bool(self.chosen)


def plan_undo(path: Path, state_at: Callable[[int], Plain], major: int) -> Plan | None:
    """Plans to take back the latest commit, or group of commits, with a delta that is not taken
    back yet.

    Args:
        path: read only as far as needed, for a group to its end.
        state_at: a fresh copy of the state at a seq of that path (0: None).
        major: the major version of the state that they are taken back from: the head's, or the one
            that a due migration makes it.

    Returns:
        None where nothing is left to undo.
    """
    return _plan(path, _Undoing(set(), []), state_at, major)


def plan_undo_of_run(
    path: Path, state_at: Callable[[int], Plain], major: int, of: RunChanges
) -> Plan | None:
    """Plans to take back all that a run changed on the path, and that is not taken back yet; see
    `plan_undo`. Reads the path to where the run, or that turn, began."""
    return _plan(path, _UndoingRun(set(), [], of, left=of.turns), state_at, major)


def plan_redo(path: Path, state_at: Callable[[int], Plain], major: int) -> Plan | None:
    """Plans to take back the latest undo that was not redone yet. Returns None where there is
    none."""
    return _plan(path, _Redoing(set(), []), state_at, major)


def _plan(path: Path, search: _Search, state_at: Callable[[int], Plain], major: int) -> Plan | None:
    read: list[Commit] = []
    commits = path.newest()
    while not search.done and (commit := next(commits, None)) is not None:
        left = commit.cause.kind == "rollback" and not search.takes_back_rollback(commit)
        if left and (back := _record(commit, search)) is not None:
            commits = path.since(back.to)  # what it left is no part of the state, nor of a group
            continue
        # A partly found group stands on states for which the whole path is needed.
        passed = _passed(path, commit, search) if not search.chosen else None
        if passed is None:
            read.append(commit)
            search.takes(commit)
        else:
            to, rest, search = passed
            read += rest
            commits = path.since(to)
    if not search.chosen:
        return None
    since = read[-1].seq
    seqs = [commit.seq for commit in reversed(search.chosen)]
    oldest = search.chosen[-1]
    if oldest.schema_version[0] != major:
        return Plan([], seqs, [], elder=oldest)
    # A member of a group, as its header says, or what precedes one.
    read = read[: [commit.seq for commit in read].index(oldest.seq) + 1]
    gone = [commit for commit in (*search.chosen, *read) if commit.trimmed]
    if gone:
        return Plan([], seqs, [], lacks=gone[0].seq)
    delta, blocked = invert(search.chosen, read, state_at)
    if blocked:
        return Plan([], seqs, blocked)
    record = _passing(search.chosen, read)
    if record is not None:
        record = replace(record, to=_behind(path, record.to, search))
    return Plan(delta, seqs, [], record=record, since=since)


def _behind(path: Path, seq: int, search: _Search) -> int:
    """Returns the seq at which an undo or redo that skips everything before a commit continues:
    there, or behind what that commit skips. So of many changes made and undone in turn, or undone
    and redone, none is read. A redo skips no undo that may still be redone."""
    try:
        commit = next(path.since(seq, 1), None)
    except (NotFound, Corrupt, UnsupportedFormat):
        return seq  # its state is there all the same: whoever comes to read it will say so
    if commit is None or search.anew().takes(commit):
        return seq
    record = _record(commit, search)
    return record.to if record is not None and not record.rest else seq


def _passed(
    path: Path, commit: Commit, search: _Search
) -> tuple[int, list[Commit], _Search] | None:
    """Returns what is to be read instead of a commit and those that it skips: the commit behind
    them, and the remaining ones between. None: the commit itself is to be read, and what is behind
    it, because something to take back is among them.

    A commit that was taken back passes over nothing: what it had taken back counts again.
    """
    record = _record(commit, search)
    if record is None:
        return None
    ahead = search.ahead()
    if ahead.takes(commit):
        return None
    left: list[Commit] = []
    for first, last in record.rest:
        for one in path.since(last, last - first + 1):
            if one.seq < first:
                break
            if ahead.takes(one):
                return None
            left.append(one)
    return record.to, left, ahead


def _record(commit: Commit, search: _Search) -> Passed | None:
    """Returns the record of the commits that a commit skips. One that was taken back skips nothing:
    what it had taken back counts again."""
    record = next((one for one in commit.typed if isinstance(one, Passed)), None)
    if record is None or commit.seq in search.gone or not _goes_back(commit.seq, record):
        return None
    return record


def _goes_back(seq: int, record: Passed) -> bool:
    """True if it names older and older commits, so that following it ends."""
    for first, last in record.rest:
        if not first <= last < seq:
            return False
        seq = first
    return record.to < seq


def _passing(chosen: Sequence[Commit], path: Sequence[Commit]) -> Passed | None:
    """Returns the record for the commit that takes back `chosen`, after the newest of the path.

    It and they cancel out; so do an undo or redo between them and what that took back. Where the
    path skipped something, it continues with a commit other than the parent.

    Also None where a remaining commit changed items of a list that those had moved: read without
    them, it would seem to change other items.
    """
    seqs = {commit.seq for commit in chosen}
    gone = _cancelled([commit for commit in path if commit.seq not in seqs]) | seqs
    rest = [commit for commit in path if commit.seq not in gone]
    stretches: list[tuple[int, int]] = []
    follows = 0
    for commit in rest:
        if follows == commit.seq:
            stretches[-1] = commit.seq, stretches[-1][1]
        elif commit.delta:
            stretches.append((commit.seq, commit.seq))
        else:
            continue
        follows = commit.parent
    if len(stretches) > STRETCHES_MAX:
        return None
    if displace((commit for commit in path if commit.seq in gone), rest):
        return None
    return Passed(to=chosen[-1].parent, rest=stretches)


def _cancelled(path: Sequence[Commit]) -> set[int]:
    """Returns the commits that cancel out: each undo or redo with what it took back."""
    seqs = {commit.seq for commit in path}
    found: set[int] = set()
    for commit in path:
        refers = commit.cause.refers
        if commit.cause.kind not in ("undo", "redo") or not refers or commit.seq in found:
            continue
        if seqs.issuperset(refers):
            found |= {commit.seq, *refers}
    return found
