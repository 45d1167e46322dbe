"""Drafts of sets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, MutableSet, Set
from typing import Any

from perdure.core.draft.place import Proxy, place_of, seen_as
from perdure.core.types.kept_whole import check_member
from perdure.core.types.nodes import Node, SetNode, Walker
from perdure.core.values.plain_values import Plain, stored
from perdure.errors import SchemaError


def _of_a_set(change: Callable[[Any, Any], Any]) -> Any:
    """Returns an operator that changes a set and takes only sets: lists are for the methods."""

    def operate(self: DraftSet, other: Any) -> Any:
        return change(self, other) if isinstance(other, Set) else NotImplemented

    return operate


def _both_ways(operate: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Returns an operator of sets, and the same one with the draft as its right operand."""
    return (
        lambda self, other: operate(set(self), set(other) if type(other) is DraftSet else other),
        lambda self, other: operate(other, set(self)),
    )


class DraftSet(Proxy, MutableSet[Any]):
    """A draft that looks like a set."""

    __slots__ = ()
    __perdure_kind__ = set
    __class__ = seen_as(lambda proxy: set)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return set(it)

    def _member(self, value: Any) -> Plain:
        place = place_of(self)
        node, path = place.node, place.last_path()
        name = place.session.root_name
        item = node.item if isinstance(node, SetNode) else node
        plain = item.plain(value, (*path, value), Walker(root=name))
        plain = Walker(root=name).member(plain, path, value)
        if isinstance(node, SetNode):
            typed = item.build(plain, (*path, value), name)
            plain = item.plain(typed, (*path, value), Walker(root=name))
        return plain

    def _new(self, value: Any) -> Plain:
        """Returns the plain member for a user's value that may be added."""
        member, place = self._member(value), place_of(self)
        if type(value) is not str and member not in place.plain:
            check_member(self._item(), value, member, place.last_path(), place.session.root_name)
        return member

    def _known(self, value: Any) -> Any:
        """Returns the plain member that this value would be; a value that cannot be a member is not
        there."""
        try:
            return self._member(value)
        except (SchemaError, TypeError):
            return _NOTHING

    def _item(self) -> Node:
        node = place_of(self).node
        return node.item if isinstance(node, SetNode) else node

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Set):  # which has no hash, and is looked up nevertheless
            hash(value)
        place = place_of(self)
        place.session.check_open()
        return self._known(value) in place.plain

    def __iter__(self) -> Iterator[Any]:
        place = place_of(self)
        place.session.check_open()
        item = self._item()
        if item.as_is:
            return iter(place.plain)
        return (place.build(item, one) for one in place.plain)

    def __len__(self) -> int:
        place = place_of(self)
        place.session.check_open()
        return len(place.plain)

    def add(self, value: Any) -> None:
        self.update((value,))

    def discard(self, value: Any) -> None:
        self.difference_update((value,))

    def remove(self, value: Any) -> None:
        if value not in self:
            raise KeyError(value)
        self.discard(value)

    def pop(self) -> Any:
        if not len(self):
            raise KeyError("pop from an empty set")
        place = place_of(self)
        member = next(iter(place.plain))
        place.session.begin(place)
        place.session.change_set(place, [member], [])
        return place.build(self._item(), member)

    def clear(self) -> None:
        place = place_of(self)
        place.session.begin(place)
        place.session.change_set(place, list(place.plain), [])

    def update(self, *others: Iterable[Any]) -> None:
        place = place_of(self)
        place.session.begin(place)
        taken = dict.fromkeys(self._new(one) for other in others for one in other)
        place.session.change_set(place, [], [one for one in taken if one not in place.plain])

    def difference_update(self, *others: Iterable[Any]) -> None:
        place = place_of(self)
        place.session.begin(place)
        taken = dict.fromkeys(self._known(one) for other in others for one in other)
        place.session.change_set(place, _stored(place.plain, taken), [])

    def intersection_update(self, *others: Iterable[Any]) -> None:
        place = place_of(self)
        place.session.begin(place)
        kept = set(place.plain)
        for other in others:
            kept &= {self._known(one) for one in other}
        place.session.change_set(place, list(place.plain - kept), [])

    def symmetric_difference_update(self, other: Iterable[Any]) -> None:
        place = place_of(self)
        place.session.begin(place)
        taken = {self._new(one) for one in other}
        gone, come = _stored(place.plain, taken), list(taken - place.plain)
        place.session.change_set(place, gone, come)

    @_of_a_set
    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    @_of_a_set
    def __iand__(self, other: Any) -> Any:
        self.intersection_update(other)
        return self

    @_of_a_set
    def __isub__(self, other: Any) -> Any:
        self.difference_update(list(other))
        return self

    @_of_a_set
    def __ixor__(self, other: Any) -> Any:
        self.symmetric_difference_update(list(other))
        return self

    __or__, __ror__ = _both_ways(operator.or_)
    __and__, __rand__ = _both_ways(operator.and_)
    __sub__, __rsub__ = _both_ways(operator.sub)
    __xor__, __rxor__ = _both_ways(operator.xor)

    def copy(self) -> set[Any]:
        return set(self)

    def union(self, *others: Iterable[Any]) -> set[Any]:
        return set(self).union(*others)

    def intersection(self, *others: Iterable[Any]) -> set[Any]:
        return set(self).intersection(*others)

    def difference(self, *others: Iterable[Any]) -> set[Any]:
        return set(self).difference(*others)

    def symmetric_difference(self, other: Iterable[Any]) -> set[Any]:
        return set(self).symmetric_difference(other)

    def issubset(self, other: Iterable[Any]) -> bool:
        return set(self).issubset(other)

    def issuperset(self, other: Iterable[Any]) -> bool:
        return set(self).issuperset(other)

    __hash__ = None  # type: ignore[assignment]


_NOTHING = object()


def _stored(members: set[Any], values: Iterable[Any]) -> list[Any]:
    """Returns the members that these values are equal to; they may be other objects."""
    return [stored(members, value) for value in values if value in members]
