"""Undo and redo, planned on commits alone: what can be taken back, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from perdure.core import ops
from perdure.core.diff import diff
from perdure.core.ops import Append, Delete, Move, Op, Reach, Splice, TextSplice, reach, spares
from perdure.core.shift import shift
from perdure.core.values import Plain, format_path, look_up
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import Commit

NOT_UNDOABLE = frozenset({"create", "undo", "redo", "migrate"})

PASSED = "passed-over"
"""The kind of the record in which an undo or redo says what need not be read behind it."""

STRETCHES_MAX = 16
"""Of what remains between the commits that a `PASSED` record passes over. I9: the record's bytes
do not depend on how long the history is."""


class Plan(Struct, frozen=True):
    """What to do, or why not.

    Attributes:
        ops: the delta to commit now.
        seqs: the commits that it takes back or restores, oldest first.
        blocked_by: (seq, path) of later changes of the same places; then `ops` is empty.
        record: for the commit that does it, so that who plans behind it passes over what changed
            nothing together; None: there is no room to say so.
    """

    ops: list[Op]
    seqs: list[int]
    blocked_by: list[tuple[int, str]]
    record: dict[str, Any] | None = None


class Path(Protocol):
    """The commits that a state is made of."""

    def newest(self) -> Iterator[Commit]:
        """Those on the path to the head, newest first."""

    def since(self, seq: int, count: int | None = None) -> Iterator[Commit]:
        """Those on the path to a commit of it, that one first; count: how many are wanted."""


class _Place(Struct, frozen=True):
    """What an inverse will restore, as it is now: a reach, and how many items are left there."""

    reach: Reach
    left: int


class _Search(Struct):
    """What to take back next, looked for along a path, newest first.

    Attributes:
        gone: the commits that a later one took back.
    """

    gone: set[int]
    chosen: list[Commit]

    def takes(self, commit: Commit) -> bool:
        """Note a commit; whether it is one to take back."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        raise NotImplementedError


class _Undoing(_Search):
    """The latest commit with a delta, or the group of that one, to its end."""

    def takes(self, commit: Commit) -> bool:
        kind = commit.cause.kind
        if (kind == "undo" and commit.seq not in self.gone) or kind == "redo":
            self.gone.update(commit.cause.refers)
        if not commit.delta or kind in NOT_UNDOABLE or commit.seq in self.gone:
            return False
        if self.chosen and commit.cause.group != self.chosen[0].cause.group:
            return False
        self.chosen.append(commit)
        return True

    @property
    def done(self) -> bool:
        return bool(self.chosen) and self.chosen[0].cause.group is None


class _Redoing(_Search):
    """The latest undo."""

    def takes(self, commit: Commit) -> bool:
        if commit.cause.kind == "redo":
            self.gone.update(commit.cause.refers)
        if commit.cause.kind != "undo" or commit.seq in self.gone:
            return False
        self.chosen.append(commit)
        return True

    @property
    def done(self) -> bool:
        return bool(self.chosen)


def plan_undo(path: Path, state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest commit, or group of commits, with a delta that is not taken back yet.

    Args:
        path: read only as far as needed, for a group to its end.
        state_at: a fresh copy of the state at a seq of that path (0: None).

    Returns:
        None where nothing is left to undo.
    """
    return _plan(path, _Undoing(set(), []), state_at)


def plan_redo(path: Path, state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest undo that was not redone yet; None where there is none."""
    return _plan(path, _Redoing(set(), []), state_at)


def _plan(path: Path, search: _Search, state_at: Callable[[int], Plain]) -> Plan | None:
    read: list[Commit] = []
    commits = path.newest()
    while not search.done and (commit := next(commits, None)) is not None:
        # What a group has been found of stands on states that all of the path is needed for.
        passed = _passed(path, commit, search) if not search.chosen else None
        if passed is None:
            read.append(commit)
            search.takes(commit)
        else:
            to, left, search = passed
            read += left
            commits = path.since(to)
    if not search.chosen:
        return None
    plan = _take_back(search.chosen, read, state_at)
    if plan.record is not None:
        plan.record["to"] = _behind(path, plan.record["to"], search)
    return plan


def _behind(path: Path, seq: int, search: _Search) -> int:
    """Where an undo or redo that passes over all in front of a commit goes on: there, or behind
    what that one passes over, so that of many that were made and undone in turn, or undone and
    redone, none is read. An undo that may still be redone is passed over by no redo."""
    try:
        commit = next(path.since(seq, 1), None)
    except (NotFound, Corrupt, UnsupportedFormat):
        return seq  # its state is there all the same: whoever comes to read it will say so
    if commit is None or type(search)(set(search.gone), []).takes(commit):
        return seq
    record = _record(commit, search)
    return record["to"] if record is not None and not record["rest"] else seq


def _passed(
    path: Path, commit: Commit, search: _Search
) -> tuple[int, list[Commit], _Search] | None:
    """What is to be read instead of a commit and those that it passes over: the commit behind them,
    and those between that are left. None: it is to be read itself, and what is behind it, as
    something to take back is among them.

    A commit that was taken back passes over nothing: what it had taken back counts again.
    """
    record = _record(commit, search)
    if record is None:
        return None
    ahead = type(search)(set(search.gone), list(search.chosen))
    if ahead.takes(commit):
        return None
    left: list[Commit] = []
    for first, last in record["rest"]:
        for one in path.since(last, last - first + 1):
            if one.seq < first:
                break
            if ahead.takes(one):
                return None
            left.append(one)
    return record["to"], left, ahead


def _record(commit: Commit, search: _Search) -> dict[str, Any] | None:
    """A commit that was taken back passes over nothing: what it had taken back counts again."""
    record = next((one for one in commit.records if one.get("t") == PASSED), None)
    if record is None or commit.seq in search.gone or not _goes_back(commit.seq, record):
        return None
    return dict(record)


def _goes_back(seq: int, record: Mapping[str, Any]) -> bool:
    """Whether it names older and older commits, so that who goes by it comes to an end."""
    for first, last in record["rest"]:
        if not first <= last < seq:
            return False
        seq = first
    return bool(record["to"] < seq)


def _passing(chosen: Sequence[Commit], path: Sequence[Commit]) -> dict[str, Any] | None:
    """The record for the commit that takes back `chosen`, behind the newest of the path.

    It and they change nothing together; nor does an undo or redo between them, with what that took
    back. Where the path has passed over something it goes on with another than the parent.
    """
    seqs = {commit.seq for commit in chosen}
    gone = _cancelled([commit for commit in path if commit.seq not in seqs], set()) | seqs
    stretches: list[list[int]] = []
    follows = 0
    for commit in path:
        if commit.seq in gone:
            continue
        if follows == commit.seq:
            stretches[-1][0] = commit.seq
        elif commit.delta:
            stretches.append([commit.seq, commit.seq])
        else:
            continue
        follows = commit.parent
    if len(stretches) > STRETCHES_MAX:
        return None
    return {"t": PASSED, "to": chosen[-1].parent, "rest": stretches}


def _take_back(
    chosen: Sequence[Commit], path: Sequence[Commit], state_at: Callable[[int], Plain]
) -> Plan:
    """The inverse of `chosen`, if nothing that came after one of them stands in its way.

    A dict's keys come back in their order, unless changes that stay stand between them: then those
    that come back are the last.

    Args:
        chosen, path: newest first; the path goes at least as far back as `chosen`.
    """
    seqs = {commit.seq for commit in chosen}
    path = path[: [commit.seq for commit in path].index(chosen[-1].seq) + 1]
    cancelled = _cancelled(path, seqs)
    base = state_at(chosen[-1].parent)
    alone = all(
        commit.seq in seqs or commit.seq in cancelled or not commit.delta for commit in path
    )  # fmt: skip
    places: list[_Place] = []
    delta: list[Op] = []
    blocked: list[tuple[int, str]] = []
    out_of_order = False
    for commit in reversed(path):
        for op in commit.delta:
            if commit.seq in seqs:
                places = _moved(places, op)
                places.append(_place(base, op))
                delta.append(ops.invert(base, op))
                out_of_order = out_of_order or _loses_its_turn(base, op)
            elif commit.seq not in cancelled:
                touched = _later(op)
                if not all(spares(touched, place.reach, place.left) for place in places):
                    blocked.append((commit.seq, format_path(op.path)))
            if commit.seq <= chosen[0].seq:
                base = ops.apply(base, ops.own(op))
    delta.reverse()
    if blocked:
        return Plan([], sorted(seqs), blocked)
    if out_of_order and alone:
        delta += diff(ops.fold(base, map(ops.own, delta)), state_at(chosen[-1].parent))
    return Plan(delta, sorted(seqs), [], _passing(chosen, path))


def _loses_its_turn(state: Plain, op: Op) -> bool:
    """Whether the inverse of an op puts a key of a dict behind others that it was in front of."""
    if type(op) is not Delete or not op.path:
        return False
    parent = look_up(state, op.path[:-1])
    return type(parent) is dict and next(reversed(parent), None) != op.path[-1]


def _cancelled(path: Sequence[Commit], chosen: set[int]) -> set[int]:
    """The commits that changed nothing together: each undo or redo with what it took back.

    Only where nothing that is to be undone now stands between them: for that, both were changes.
    """
    others = {commit.seq for commit in path} - chosen
    cancelled: set[int] = set()
    for commit in path:
        refers = set(commit.cause.refers)
        if commit.cause.kind not in ("undo", "redo") or not {commit.seq, *refers} <= others:
            continue
        between = any(min(refers) < seq < commit.seq for seq in chosen)
        if commit.seq not in cancelled and not between:
            cancelled |= {commit.seq, *refers}
    return cancelled


def _place(state: Plain, op: Op) -> _Place:
    """What an op touches, in the coordinates of the state after it."""
    length = len(look_up(state, op.path)) if type(op) is Append else None
    return _Place(reach(op, length), _left(op))


def _left(op: Op) -> int:
    """How many items an op left at its place, for `spares`."""
    match op:
        case Append() | Splice():
            return len(op.values)
        case TextSplice():
            return len(op.text)
        case Move():
            return abs(op.source - op.target) + 1
    return 1


def _moved(places: Iterable[_Place], op: Op) -> list[_Place]:
    """The places after one more op that will be taken back along with them."""
    found = []
    for place in places:
        at, left = place.reach, place.left
        if (
            op.path == at.path
            and at.start is not None
            and isinstance(op, Splice | TextSplice | Move)
        ):
            found.append(_stretched(at, left, op))
            continue
        path = shift(at.path, op)
        if path is not None:  # else it went with what this op replaced, whose place covers it
            found.append(_Place(Reach(path, at.start), left))
    return found


def _stretched(at: Reach, left: int, op: Splice | TextSplice | Move) -> _Place:
    """A stretch of a list or text after another change of the same one: both, where they meet."""
    assert at.start is not None
    start, end = at.start, at.start + left
    if isinstance(op, Move):
        low, high = min(op.source, op.target), max(op.source, op.target) + 1
        grown = 0
    else:
        low, high = op.index, op.index + op.removed
        grown = (len(op.text) if isinstance(op, TextSplice) else len(op.values)) - op.removed
    if low >= end:
        return _Place(at, left)
    if high <= start:
        start, end = start + grown, end + grown
    else:
        start, end = min(start, low), max(end, high) + grown
    return _Place(Reach(at.path, start), end - start)


def _later(op: Op) -> Reach:
    """What a later op touches. Where an Append went is not in the op: it is a suffix of all
    that was there before it, so it is taken to start beyond every index."""
    return reach(op, length=1 << 62)
