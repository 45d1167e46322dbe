"""The inverse of commits: the ops that restore what was there, in their order, and the later
changes that block them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from perdure.core.undo.spared_changes import RestoredPlaces, Touched
from perdure.core.undo.standing_edits import StandingCommits, standing
from perdure.core.values import ops
from perdure.core.values.diff import diff
from perdure.core.values.ops import Delete, Op
from perdure.core.values.plain_values import Path, Plain, copy, format_path, look_up, same
from perdure.core.values.shifted_places import Paths
from perdure.model import Commit


def invert(
    chosen: Sequence[Commit], path: Sequence[Commit], state_at: Callable[[int], Plain]
) -> tuple[list[Op], list[tuple[int, str]]]:
    """Returns the ops that take `chosen` back; or none, and (seq, path) of the later changes that
    block them.

    A dict's keys come back in their order. Restored keys are the last ones if changes that stay lie
    between `chosen`, or were made in that dict since.

    Args:
        chosen, path: newest first; the path goes back to the last of `chosen`.
        state_at: a fresh copy of the state at a seq of that path (0: None).
    """
    found = standing(chosen, path)
    if found.torn:
        torn = [commit for commit in path if commit.seq in found.torn]
        return [], [(one.seq, format_path(one.delta[0].path if one.delta else ())) for one in torn]
    if any(commit.cause.kind in ("undo", "redo") for commit in chosen):
        # What put keys in order is not taken back: they are put in order again, where nothing has
        # changed since, and elsewhere not in any case.
        delta, _ = _invert(found, state_at, in_order=False)
        if delta:
            return delta, []
    return _invert(found, state_at, in_order=True)


def _invert(
    found: StandingCommits, state_at: Callable[[int], Plain], *, in_order: bool
) -> tuple[list[Op], list[tuple[int, str]]]:
    """Does the work of `invert`. in_order: also takes back what an undo or redo did to put keys in
    order."""
    seqs = {commit.seq for commit in found.chosen}
    oldest, newest = found.chosen[-1], found.chosen[0]
    base = state_at(oldest.parent)
    places = RestoredPlaces()
    delta: list[Op] = []
    blocked: list[tuple[int, str]] = []
    done: list[Op] = []
    stay: list[Op] = []
    out_of_order, together = False, True
    for commit in reversed(found.path):
        kept = len(commit.delta)
        if commit.seq in seqs and not in_order and commit.cause.kind in ("undo", "redo"):
            kept = _order_from(base, commit.delta)
            out_of_order = out_of_order or kept < len(commit.delta)
        for index, op in enumerate(commit.delta):
            own = commit.seq in seqs and index < kept
            if own:
                delta.append(ops.invert(base, op))
                out_of_order = out_of_order or _loses_its_turn(base, op)
                together = together and not stay
                done.append(op)
            elif commit.seq in found.across:
                stay.append(op)
            elif commit.seq not in found.nothing and commit.seq not in seqs:
                stay.append(op)
                if places.touched_by(op):
                    blocked.append((commit.seq, format_path(op.path)))
            if commit.seq <= newest.seq:
                base = ops.apply(base, ops.own(op))
            if own:
                places.add(base, op)
    delta.reverse()
    if blocked:
        return [], blocked
    if out_of_order and together:
        order = diff(ops.fold(base, map(ops.own, delta)), state_at(oldest.parent))
        delta += _undisturbed(order, done, stay)
    return delta, []


def _order_from(base: Plain, delta: Sequence[Op]) -> int:
    """Returns the number of the op from which on a delta only removes keys of dicts and sets them
    again unchanged, which puts them behind others."""
    set_at: dict[Path, int] = {}
    again: dict[int, int] = {}
    starts = [len(delta)]
    for index in reversed(range(len(delta))):
        op = delta[index]
        if type(op) is ops.Set and op.path not in set_at:
            set_at[op.path] = index
        elif type(op) is Delete and op.path in set_at:
            again[index] = set_at.pop(op.path)
        else:
            break
        if not set_at:
            starts.append(index)
    if not again:
        return len(delta)
    base = copy(base)
    starts.reverse()
    start = starts[0]
    for index, op in enumerate(delta):
        if start <= index and index in again:
            put = delta[again[index]]
            if not (type(put) is ops.Set and same(look_up(base, op.path), put.value)):
                start = starts[bisect_right(starts, again[index])]
        base = ops.apply(base, ops.own(op))
    return start


def _undisturbed(order: Sequence[Op], done: Sequence[Op], later: Sequence[Op]) -> list[Op]:
    """Returns the ops whose dict is as it was left before the undone changes: its keys can be
    reordered without touching later changes."""
    paths, touched = Paths(done), Touched(later)
    found: dict[Path, bool] = {}
    for path in {op.path[:-1] for op in order}:
        final = paths.final(path, -1)
        # None: it comes back whole, and so nothing may have been in its place.
        found[path] = final is None or not touched.at(final)
    return [op for op in order if found[op.path[:-1]]]


def _loses_its_turn(state: Plain, op: Op) -> bool:
    """True if the inverse of an op puts a dict's key behind others that it stood before."""
    if type(op) is not Delete or not op.path:
        return False
    parent = look_up(state, op.path[:-1])
    return type(parent) is dict and next(reversed(parent), None) != op.path[-1]
