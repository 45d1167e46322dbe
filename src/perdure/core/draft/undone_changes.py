"""Changes made to a plain tree in place, noted so that they can be undone, and a test whether they
cancel out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import Any

from perdure.core.values.plain_values import Plain, same
from perdure.missing import MISSING

Done = tuple[Any, ...]
"""One change: what it did, the container that it did it to, and what undoes it."""


def undo(done: Done) -> None:
    """Takes one change back. Later changes must have been taken back before."""
    _UNDO[done[0]](*done[1:])


def came_to_nothing(
    changes: Sequence[Done], fresh: Mapping[int, Any], appended: Mapping[int, Any]
) -> bool:
    """True if changes leave a tree as it was, the order of its keys included. False where that is
    not certain: containers that came in are not looked at, unless they were there before, as items
    of a list that are reordered; those inside of them are.

    Costs next to nothing where the first change still stands, as in nearly all edits that change
    something; else O(the containers that were changed).

    Args:
        fresh: containers that came in, by their ids.
        appended: lists to which the last change appended, by their ids.
    """
    first = changes[0]
    if not _may_be_undone(first, changes, appended):
        return False
    before: dict[int, tuple[Any, Any]] = {}
    for done in reversed(changes):
        kind, target = done[:2]
        if id(target) not in before:
            before[id(target)] = target, target.copy()
        _UNDO[kind](before[id(target)][1], *done[2:])
    came = {at for at in before if at in fresh}
    if came:
        for _, was in before.values():
            if type(was) is not set:
                came.difference_update(map(id, was.values() if type(was) is dict else was))
    return all(_holds(now, was) for at, (now, was) in before.items() if at not in came)


def _may_be_undone(first: Done, changes: Sequence[Done], appended: Mapping[int, Any]) -> bool:
    """True if the value that the first change replaced may be there again."""
    kind, target, at = first[:3]
    if kind == "put":
        if type(target) is dict:
            return same(target.get(at, MISSING), first[3])
        return at < len(target) and same(target[at], first[3])
    if kind == "drop":
        return at in target
    if kind == "cut":
        old = first[4]
        if old:
            return same(target[at : at + len(old)], old)
        return id(target) not in appended and any(one[1] is target for one in changes[1:])
    if kind == "move":
        return any(one[1] is target for one in changes[1:])
    undone = target.issuperset(at) if kind == "add" else target.isdisjoint(at)  # "remove"
    return bool(undone)


def _holds(now: Any, was: Any) -> bool:
    """True if a container holds the same items as before. Items that are the same object are
    checked by themselves."""
    if len(now) != len(was):
        return False
    if type(now) is set:
        return same(now, was)
    if type(now) is dict:
        return _pairwise(list(now), list(was)) and _pairwise(list(now.values()), list(was.values()))
    return _pairwise(now, was)


def _pairwise(now: list[Plain], was: list[Plain]) -> bool:
    others = compress(zip(now, was, strict=True), map(is_not, now, was))
    return all(same(one, other) and _in_order(one, other) for one, other in others)


def _in_order(one: Plain, other: Plain) -> bool:
    """True if all dicts in two equal values have their keys in the same order."""
    if type(one) is dict:
        return list(one) == list(other) and all(map(_in_order, one.values(), other.values()))
    return type(one) not in (list, tuple) or all(map(_in_order, one, other))


def _undo_put(target: Any, key: Any, old: Plain) -> None:
    if old is MISSING:
        del target[key]
    else:
        target[key] = old


def _undo_drop(target: Any, key: Any, old: Plain, order: list[Any] | None) -> None:
    target[key] = old
    if order is not None:
        items = dict(target)
        target.clear()
        target.update((one, items[one]) for one in order)


def _undo_cut(target: Any, index: int, count: int, old: list[Plain]) -> None:
    target[index : index + count] = old


_UNDO: dict[str, Callable[..., None]] = {
    "put": _undo_put,
    "drop": _undo_drop,
    "cut": _undo_cut,
    "move": lambda items, source, target: items.insert(source, items.pop(target)),
    "add": lambda members, gone: members.update(gone),
    "remove": lambda members, come: members.difference_update(come),
}
