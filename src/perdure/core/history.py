"""Undo and redo, planned on commits alone: what can be taken back, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from perdure.core import ops
from perdure.core.ops import Append, Move, Op, Reach, Splice, TextSplice, reach, spares
from perdure.core.shift import shift
from perdure.core.values import Plain, format_path, look_up
from perdure.model import Commit

NOT_UNDOABLE = frozenset({"create", "undo", "redo", "migrate"})


class Plan(Struct, frozen=True):
    """What to do, or why not.

    Attributes:
        ops: the delta to commit now.
        seqs: the commits that it takes back or restores, oldest first.
        blocked_by: (seq, path) of later changes of the same places; then `ops` is empty.
    """

    ops: list[Op]
    seqs: list[int]
    blocked_by: list[tuple[int, str]]


class _Place(Struct, frozen=True):
    """What an inverse will restore, as it is now: a reach, and how many items are left there."""

    reach: Reach
    left: int


def plan_undo(history: Iterable[Commit], state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest commit, or group of commits, with a delta that is not taken back yet.

    Args:
        history: the commits on the path to the head, newest first; read only as far as needed,
            for a group to its end.
        state_at: a fresh copy of the state at a seq of that path (0: None).

    Returns:
        None where nothing is left to undo.
    """
    path: list[Commit] = []
    undone: set[int] = set()
    chosen: list[Commit] = []
    group: str | None = None
    for commit in history:
        path.append(commit)
        kind = commit.cause.kind
        if (kind == "undo" and commit.seq not in undone) or kind == "redo":
            undone.update(commit.cause.refers)
        undoable = bool(commit.delta) and kind not in NOT_UNDOABLE and commit.seq not in undone
        if undoable and (not chosen or commit.cause.group == group):
            chosen.append(commit)
            group = commit.cause.group
            if group is None:
                break
    return _take_back(chosen, path, state_at) if chosen else None


def plan_redo(history: Iterable[Commit], state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest undo that was not redone yet; None where there is none."""
    path: list[Commit] = []
    redone: set[int] = set()
    for commit in history:
        path.append(commit)
        kind = commit.cause.kind
        if kind == "redo":
            redone.update(commit.cause.refers)
        if kind == "undo" and commit.seq not in redone:
            return _take_back([commit], path, state_at)
    return None


def _take_back(
    chosen: Sequence[Commit], path: Sequence[Commit], state_at: Callable[[int], Plain]
) -> Plan:
    """The inverse of `chosen`, if nothing that came after one of them stands in its way.

    Args:
        chosen, path: newest first; the path goes at least as far back as `chosen`.
    """
    seqs = {commit.seq for commit in chosen}
    path = path[: [commit.seq for commit in path].index(chosen[-1].seq) + 1]
    cancelled = _cancelled(path, seqs)
    base = state_at(chosen[-1].parent)
    places: list[_Place] = []
    delta: list[Op] = []
    blocked: list[tuple[int, str]] = []
    for commit in reversed(path):
        for op in commit.delta:
            if commit.seq in seqs:
                places = _moved(places, op)
                places.append(_place(base, op))
                delta.append(ops.invert(base, op))
            elif commit.seq not in cancelled:
                touched = _later(op)
                if not all(spares(touched, place.reach, place.left) for place in places):
                    blocked.append((commit.seq, format_path(op.path)))
            if commit.seq <= chosen[0].seq:
                base = ops.apply(base, ops.own(op))
    delta.reverse()
    return Plan([] if blocked else delta, sorted(seqs), blocked)


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
