"""Changes made to a plain tree in place, noted so that they can be undone, and a test whether they
cancel out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import is_not
from typing import Any

from perdure.core.values.plain_values import Plain, same
from perdure.missing import MISSING

CONTAINERS = frozenset((dict, list, set))

Done = tuple[Any, ...]
"""One change: what it did, the container that it did it to, and what undoes it."""


def undo(done: Done) -> None:
    """Takes one change back. Later changes must have been taken back before."""
    _UNDO[done[0]](*done[1:])


def held(container: Any, changes: Iterable[Done]) -> Any:
    """Returns what a container held before changes; the container itself if none is of it."""
    return AsItWas([one for one in changes if one[1] is container]).content(container)


def came_to_nothing(
    changes: Sequence[Done], fresh: Mapping[int, Any], *, moved: bool, within: bool
) -> bool:
    """True if changes leave a tree as it was, the order of its keys included.

    Costs next to nothing where the first change still stands and all containers are where they
    were, as in nearly all edits that change something; else O(what was changed, and the lists that
    items were taken out of).

    Args:
        fresh: containers that came in, by their ids.
        moved: a container may have been moved, or taken out.
        within: something may have been changed inside of what came in.
    """
    if not (moved or _may_be_undone(changes)):
        return False
    before = AsItWas(changes)
    came = before.inside_of(fresh) if within else frozenset()
    differing = [at for at in before.changed if at not in came and not before.stands(at)]
    return before.covered.issuperset(differing)


def _may_be_undone(changes: Sequence[Done]) -> bool:
    """True if what the first change replaced may be there again; its container is where it was."""
    kind, target, at = changes[0][:3]
    if kind == "put":
        old = changes[0][3]
        if type(target) is dict:
            return same(target.get(at, MISSING), old)
        return at < len(target) and same(target[at], old)
    if kind == "drop":
        return at in target
    if kind == "cut":
        old = changes[0][4]
        return not _growth(changes, target) and same(target[at : at + len(old)], old)
    undone = target.issuperset(at) if kind == "add" else target.isdisjoint(at)  # "remove"
    return bool(undone)


def _growth(changes: Iterable[Done], target: Any) -> int:
    """Returns how many items more a list has than before the changes."""
    return sum(done[3] - len(done[4]) for done in changes if done[1] is target and done[0] == "cut")


class AsItWas:
    """A tree as it was before changes, seen from the containers that were changed: each held
    something then, and its place in the tree holds something now.

    Attributes:
        changed: by the id of a container, its changes.
        covered: the containers of places that were compared from above: another one is there now,
            or one that is not there any more.
    """

    def __init__(self, changes: Sequence[Done]) -> None:
        self.changed: dict[int, list[Done]] = {}
        for done in changes:
            self.changed.setdefault(id(done[1]), []).append(done)
        self.covered: set[int] = set()
        self._content: dict[int, Any] = {}

    def content(self, container: Any) -> Any:
        """Returns what a container held."""
        changes = self.changed.get(id(container))
        if changes is None:
            return container
        if id(container) not in self._content:
            was = container.copy()
            for done in reversed(changes):
                _UNDO[done[0]](was, *done[2:])
            self._content[id(container)] = was
        return self._content[id(container)]

    def whole(self, value: Plain) -> Plain:
        """Returns a copy of a value, with what was in it: of what came in, as it came."""
        was = self.content(value)
        if type(was) is dict:
            return {key: self.whole(item) for key, item in was.items()}
        return type(was)(map(self.whole, was)) if type(was) in (list, tuple) else was

    def inside_of(self, fresh: Mapping[int, Any]) -> set[int]:
        """Returns the containers that came in, with what is inside of them; not those that were
        there, as items of a list that was put into another order."""
        inside = {at: set(self._line(one)) for at, one in fresh.items()}
        came = {at for ids in inside.values() for at in ids}
        there = [at for at in self.changed if at not in came]
        while there:
            was = self.content(self.changed[there.pop()][0][1])
            for item in () if type(was) is set else _items(was):
                if id(item) in inside and id(item) in came:
                    came -= inside[id(item)]
                    there += inside[id(item)] & self.changed.keys()
        return came

    def _line(self, value: Any) -> Iterator[int]:
        if type(value) in CONTAINERS:
            yield id(value)
        if type(value) in (dict, list, tuple):
            for item in _items(self.content(value)):
                yield from self._line(item)

    def stands(self, at: int) -> bool:
        """True if a changed container holds what it held. Items that are the same object are
        compared by themselves."""
        changes = self.changed[at]
        now, kinds = changes[0][1], {done[0] for done in changes}
        if type(now) is set:
            return same(now, self.content(now))
        if type(now) is list and _growth(changes, now):
            return False
        if kinds <= {"put", "drop"}:  # what was there first at each of their keys
            olds = {done[2]: done[3] for done in reversed(changes)}
            find = partial(_item, now)
            if not all(map(self._is, map(find, olds), olds.values())):
                return False
            return "drop" not in kinds or all(map(same, now, self.content(now)))  # their order
        if changes[0][0] == "cut":
            index, _, old = changes[0][2:]
            if not all(map(self._is, now[index : index + len(old)], old)):
                return False
            if len(changes) == 1:
                return True
        was = self.content(now)
        others = compress(zip(now, was, strict=True), map(is_not, now, was))
        return all(self._equals(one, other) for one, other in others)

    def _is(self, now: Plain, was: Plain) -> bool:
        return now is was or self._equals(now, was)

    def _equals(self, now: Plain, was: Plain) -> bool:
        """True if a place holds now what it held. A container that it held is covered, with all
        that is in it: wherever these are now."""
        kind = type(was)
        if type(now) is not kind or not (kind is tuple or kind in CONTAINERS):
            return same(now, was)
        self.covered.add(id(was))
        held = self.content(was)
        if kind is set or len(now) != len(held):
            return same(now, held)
        if kind is dict and not all(map(same, now, held)):
            return False
        return all(map(self._equals, _items(now), _items(held)))


def _item(container: Any, key: Any) -> Plain:
    return container.get(key, MISSING) if type(container) is dict else container[key]


def _items(container: Any) -> Iterable[Plain]:
    return container.values() if type(container) is dict else container


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
