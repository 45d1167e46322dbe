"""Places that an inverse restores are looked up by path; they are found as if each were looked at.

An answer of 4,000 words, each a commit of one group, took nine seconds to undo: each word's place
was carried over all that came after it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.undo.spared_changes import RestoredPlaces, Touched, later_reach
from perdure.core.values import ops
from perdure.core.values.ops import Append, Move, Op, Reach, Splice, TextSplice
from perdure.core.values.plain_values import Path, Plain, copy, look_up
from perdure.core.values.shifted_places import shift
from tests.property.test_values import an_op, small_values, walk


class Place(NamedTuple):
    """`start`, `end`: of what is left of a stretch of the list or text there."""

    path: Path
    start: int | None = None
    end: int = 0

    def over(self, op: Op) -> Place | None:
        """After one more op that is taken back along with it."""
        if self.start is None or self.path != op.path or not isinstance(op, _STRETCHING):
            path = shift(self.path, op)
            return None if path is None else self._replace(path=path)
        low, high, come = _stretch(op)
        if low >= self.end:
            return self
        if high <= self.start:
            return Place(self.path, self.start + come - high + low, self.end + come - high + low)
        return Place(self.path, min(self.start, low), max(self.end, high) + come - high + low)

    def touched_by(self, later: Reach) -> bool:
        depth, inner = len(later.path), self.path[: len(later.path)] == later.path
        if self.start is not None and later.path == self.path:
            if later.start is None or later.start < self.end:
                return True
            return later.start == self.end == self.start and later.inserts
        if inner and len(self.path) > depth and later.start is not None:
            index = self.path[depth]
            if type(index) is not int:  # a dict is there by now, where there was a list or text
                return True
            return later.start <= index and (later.stop is None or index < later.stop)
        if inner or later.path[: len(self.path)] != self.path:
            return inner
        return self.start is None or self.start <= later.path[len(self.path)] < self.end


_STRETCHING = (Splice, TextSplice, Move)


def _stretch(op: Splice | TextSplice | Move) -> tuple[int, int, int]:
    if isinstance(op, Move):
        low, high = sorted((op.source, op.target))
        return low, high + 1, high + 1 - low
    come = len(op.text) if isinstance(op, TextSplice) else len(op.values)
    return op.index, op.index + op.removed, come


def place(state: Plain, op: Op) -> Place:
    """What an op leaves, in the state before it."""
    if type(op) is Append:
        start = len(look_up(state, op.path))
        return Place(op.path, start, start + len(op.values))
    if isinstance(op, _STRETCHING):
        low, _, come = _stretch(op)
        return Place(op.path, low, low + come)
    return Place(op.path)


states = st.fixed_dictionaries(
    {
        "a": small_values,
        "b": st.lists(small_values, min_size=4, max_size=8),
        "c": st.text("pqr", min_size=3, max_size=8),
    }
)


@settings(max_examples=400, deadline=None)
@given(states, st.data())
def test_a_place_is_found_as_if_each_were_looked_at(state: Plain, data: Any) -> None:
    state, each, places = copy(state), list[Place](), RestoredPlaces()
    later: list[Op] = []
    for own in data.draw(st.lists(st.sampled_from((True, True, False)), max_size=14)):
        op = data.draw(an_op(state))
        if own:
            moved = [one.over(op) for one in each]
            each = [*(one for one in moved if one is not None), place(state, op)]
            state = ops.apply(state, ops.own(op))
            places.add(state, op)
            continue
        touched = any(one.touched_by(later_reach(op)) for one in each)
        assert places.touched_by(op) is touched
        later.append(op)
        if not touched:  # else nothing is taken back
            state = ops.apply(state, ops.own(op))
    found = Touched(later)
    for path, _ in walk(state):
        assert found.at(path) is any(Place(path).touched_by(later_reach(op)) for op in later)
