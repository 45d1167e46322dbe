"""Undo and redo, planned on commits alone: what can be taken back, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perdure.core import ops
from perdure.core.ops import Append, Op, Reach, Splice, TextSplice, reach, spares
from perdure.core.values import Plain, format_path, look_up
from perdure.model import Commit

NOT_UNDOABLE = frozenset({"create", "undo", "redo", "migrate"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, or why not.

    Attributes:
        ops: the delta to commit now.
        seqs: the commits that it takes back or restores, oldest first.
        blocked_by: (seq, path) of later changes of the same places; then `ops` is empty.
    """

    ops: list[Op]
    seqs: list[int]
    blocked_by: list[tuple[int, str]]


def plan_undo(history: Iterable[Commit], state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest commit, or group of commits, with a delta that is not taken back yet.

    Args:
        history: the commits on the path to the head, newest first; read only as far as needed.
        state_at: a fresh copy of the state at a seq of that path (0: None).

    Returns:
        None where nothing is left to undo.
    """
    newer: list[Commit] = []
    undone: set[int] = set()
    chosen: list[Commit] = []
    group: str | None = None
    for commit in history:
        kind = commit.cause.kind
        if (kind == "undo" and commit.seq not in undone) or kind == "redo":
            undone.update(commit.cause.refers)
        undoable = bool(commit.delta) and kind not in NOT_UNDOABLE and commit.seq not in undone
        if chosen and not (undoable and commit.cause.group == group):
            break
        if undoable:
            chosen.append(commit)
            group = commit.cause.group
            if group is None:
                break
        else:
            newer.append(commit)
    if not chosen:
        return None
    return _take_back(chosen, newer, undone, state_at)


def plan_redo(history: Iterable[Commit], state_at: Callable[[int], Plain]) -> Plan | None:
    """Take back the latest undo that was not redone yet; None where there is none."""
    newer: list[Commit] = []
    redone: set[int] = set()
    for commit in history:
        kind = commit.cause.kind
        if kind == "redo":
            redone.update(commit.cause.refers)
        if kind == "undo" and commit.seq not in redone:
            return _take_back([commit], newer, redone, state_at)
        newer.append(commit)
    return None


def _take_back(
    chosen: Sequence[Commit], newer: Sequence[Commit], cancelled: set[int],
    state_at: Callable[[int], Plain],
) -> Plan:  # fmt: skip
    """The inverse of `chosen` (newest first), if no commit of `newer` stands in its way."""
    seqs = [commit.seq for commit in reversed(chosen)]
    base = state_at(chosen[-1].parent)
    places: list[tuple[Reach, int]] = []
    delta: list[Op] = []
    for commit in reversed(chosen):
        for op in commit.delta:
            places.append((_place(base, op), _left(op)))
            delta.append(ops.invert(base, op))
            base = ops.apply(base, ops.own(op))
    delta.reverse()
    # A later commit and its undo cancel out: together they changed nothing.
    live = [c for c in newer if c.seq not in cancelled and not set(c.cause.refers) & cancelled]
    blocked = [
        (commit.seq, format_path(op.path))
        for commit in live
        for op in commit.delta
        if not all(spares(_later(op), place, left) for place, left in places)
    ]
    return Plan([] if blocked else delta, seqs, blocked)


def _place(state: Plain, op: Op) -> Reach:
    return reach(op, len(look_up(state, op.path)) if type(op) is Append else None)


def _left(op: Op) -> int:
    """How many items an op left at its place, for `spares`."""
    match op:
        case Append() | Splice():
            return len(op.values)
        case TextSplice():
            return len(op.text)
        case ops.Move():
            return abs(op.source - op.target) + 1
    return 1


def _later(op: Op) -> Reach:
    """What a later op touches. Where an Append went is not in the op: it is a suffix of all
    that was there before it, so it is taken to start beyond every index."""
    return reach(op, length=1 << 62)
