"""The inverse of commits behind which there are others, and what of those stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from perdure.core import ops
from perdure.core.diff import diff
from perdure.core.ops import Append, Delete, Move, Op, Reach, Splice, TextSplice, reach, spares
from perdure.core.shift import shift
from perdure.core.standing import Standing, standing
from perdure.core.values import Path, Plain, copy, format_path, look_up, same
from perdure.model import Commit


class _Place(Struct, frozen=True):
    """What an inverse will restore, as it is now: a reach, and how many items are left there."""

    reach: Reach
    left: int


def invert(
    chosen: Sequence[Commit], path: Sequence[Commit], state_at: Callable[[int], Plain]
) -> tuple[list[Op], list[tuple[int, str]]]:
    """The ops that take `chosen` back; or none, and (seq, path) of the later changes that stand in
    the way.

    A dict's keys come back in their order. Those that come back are the last where changes that
    stay stand between `chosen`, or have been made in that dict since.

    Args:
        chosen, path: newest first; the path goes back to the last of `chosen`.
        state_at: a fresh copy of the state at a seq of that path (0: None).
    """
    found = standing(chosen, path)
    if any(commit.cause.kind in ("undo", "redo") for commit in chosen):
        # What put keys in order is not taken back: they are put in order anew, where nobody has
        # been since, and elsewhere not in any case.
        delta, _ = _invert(found, state_at, in_order=False)
        if delta:
            return delta, []
    return _invert(found, state_at, in_order=True)


def _invert(
    found: Standing, state_at: Callable[[int], Plain], *, in_order: bool
) -> tuple[list[Op], list[tuple[int, str]]]:
    """As `invert`. in_order: what an undo or redo did to put keys in order, too."""
    seqs = {commit.seq for commit in found.chosen}
    oldest, newest = found.chosen[-1], found.chosen[0]
    base = state_at(oldest.parent)
    places: list[_Place] = []
    delta: list[Op] = []
    blocked: list[tuple[int, str]] = []
    done: list[Op] = []
    stay: list[Op] = []
    out_of_order, together = False, True
    for commit in reversed(found.path):
        kept = len(commit.delta)
        if commit.seq in seqs and not in_order and commit.cause.kind in ("undo", "redo"):
            kept = _order_from(copy(base), commit.delta)
            out_of_order = out_of_order or kept < len(commit.delta)
        for index, op in enumerate(commit.delta):
            if commit.seq in seqs and index < kept:
                places = _moved(places, op)
                places.append(_place(base, op))
                delta.append(ops.invert(base, op))
                out_of_order = out_of_order or _loses_its_turn(base, op)
                together = together and not stay
                done.append(op)
            elif commit.seq in found.across:
                stay.append(op)
            elif commit.seq not in found.nothing and commit.seq not in seqs:
                stay.append(op)
                touched = _later(op)
                if not all(spares(touched, place.reach, place.left) for place in places):
                    blocked.append((commit.seq, format_path(op.path)))
            if commit.seq <= newest.seq:
                base = ops.apply(base, ops.own(op))
    delta.reverse()
    if blocked:
        return [], blocked
    if out_of_order and together:
        order = diff(ops.fold(base, map(ops.own, delta)), state_at(oldest.parent))
        delta += [op for op in order if _undisturbed(op.path[:-1], done, stay)]
    return delta, []


def _order_from(base: Plain, delta: Sequence[Op]) -> int:
    """From which op on a delta does nothing but take out keys of dicts and set them as they were,
    which puts them behind others. The base moves forward."""
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
    start = starts[-1]
    for index, op in enumerate(delta):
        if start <= index and index in again:
            put = delta[again[index]]
            if not (type(put) is ops.Set and same(look_up(base, op.path), put.value)):
                start = min(one for one in starts if one > again[index])
        base = ops.apply(base, ops.own(op))
    return start


def _undisturbed(path: Path, done: Iterable[Op], later: Iterable[Op]) -> bool:
    """Whether the dict that was at a path before what is undone was done is as that left it: its
    keys can be put in their order without a touch of what came later."""
    for op in done:
        moved = shift(path, op)
        if moved is None:  # it comes back whole, and so nothing may have been in its place
            return True
        path = moved
    place = Reach(path)
    return all(spares(_later(op), place, 1) for op in later)


def _loses_its_turn(state: Plain, op: Op) -> bool:
    """Whether the inverse of an op puts a key of a dict behind others that it was in front of."""
    if type(op) is not Delete or not op.path:
        return False
    parent = look_up(state, op.path[:-1])
    return type(parent) is dict and next(reversed(parent), None) != op.path[-1]


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
