"""Values on their way into a draft: users' values turned into plain ones, for the places they go
to.

A part of the draft stands at one place, so it is refused where it comes a second time. It may come
along with what replaces it, as in `draft[0] = dataclasses.replace(draft[0], done=True)`: its old
place goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.draft.place import DraftSession, Place, Proxy, item_of, place_of
from perdure.core.schema.taken_values import take_at
from perdure.core.types.nodes import LeafNode
from perdure.core.values.plain_values import Path, Plain
from perdure.errors import SharedValue
from perdure.missing import MISSING


class LeavingContainers:
    """The containers that leave the draft while values are taken: each of their parts may come back
    once, along with those values.

    Args:
        containers: the plain containers that leave.
    """

    def __init__(self, session: DraftSession, containers: Iterable[Plain] = ()) -> None:
        self._session = session
        self._containers = {id(one) for one in containers}
        self._freed: dict[int, Any] = {}  # by the identity of what was gone through
        self._taken: set[int] = set()
        self._around: set[int] = set()  # what was taken, and what it is in

    def freed(self, value: Any) -> Any:
        """Returns the value with its draft parts replaced by typed copies where a copy is harmless:
        parts that no longer belong to the draft, parts inside a tuple, which nobody can change, and
        parts of what leaves. The value itself is not changed; it may contain itself."""
        if isinstance(value, Proxy):
            place = place_of(value)
            return place.detach(goes=not place.frozen) if self._may_come(place) else value
        parts = self._parts(value)
        if not parts:
            return value
        if id(value) not in self._freed:
            self._freed[id(value)] = value
            free = {key: self.freed(one) for key, one in parts.items()}
            if any(free[key] is not one for key, one in parts.items()):
                self._freed[id(value)] = self._like(value, parts, free)
        return self._freed[id(value)]

    def _may_come(self, place: Place) -> bool:
        if place.frozen or not place.stands:
            return True
        line = [id(one.plain) for one in place.line()]
        if self._containers.isdisjoint(line):
            return False
        if line[0] in self._around or not self._taken.isdisjoint(line):
            return False  # it came already, or came with what is around it, or a part of it came
        self._taken.add(line[0])
        self._around.update(line)
        return True

    def _parts(self, value: Any) -> Mapping[Any, Any]:
        if isinstance(value, dict):
            return value if type(value) is dict else {}
        if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_make")):
            return dict(enumerate(value))
        face = self._session.schema.registry.faces.get(type(value))
        if face is None:
            return {}
        return {name: face.get(value, name) for name in face.fields} | face.extras(value)

    def _like(self, value: Any, parts: Mapping[Any, Any], free: dict[Any, Any]) -> Any:
        kind = type(value)
        if kind is dict:
            return free
        if isinstance(value, (list, tuple)):
            return getattr(kind, "_make", kind)(free.values())
        face = self._session.schema.registry.faces[kind]
        made = face.clone(value)
        for name, one in free.items():
            if one is not parts[name]:
                face.put(made, name, one)
        for name, one in face.strays(value).items():  # which are refused, not lost
            if face.get(made, name) is MISSING:
                face.put(made, name, one)
        return made


def take(
    place: Place,
    key: Any,
    value: Any,
    seen: dict[int, Path] | None = None,
    leaving: LeavingContainers | None = None,
) -> Plain:
    """Returns a user's value as a plain one for this key of a place; refuses aliases and cycles.

    Args:
        seen: containers met so far.
        leaving: what leaves when the value comes.
    """
    session = place.session
    path, name = (*place.last_path(), key), session.root_name
    node = place.node.child(key) or place.child(key)  # which raises
    seen = {} if seen is None else seen
    before = len(seen)
    try:
        return take_at(node, value, path, seen, name, session.copies)
    except SharedValue:
        free = (leaving or LeavingContainers(session)).freed(value)
        if free is value:
            raise
    while len(seen) > before:
        seen.popitem()
    session.freed.append(free)  # `seen` knows what is in it by its identity
    return take_at(node, free, path, seen, name, session.copies)


def take_over(
    place: Place, key: Any, value: Any, leaving: LeavingContainers | None = None
) -> Plain:
    """Returns the same as `take`, for a place where another value stands; see `Copies.over`."""
    old = item_of(place.plain, key)
    taken = take(place, key, value, None, leaving or LeavingContainers(place.session, [old]))
    if type(old) not in (dict, list, tuple):
        return taken
    path = (*place.last_path(), key)
    return place.session.copies.over(place.child(key), old, taken, path, place.session.root_name)


def take_all(place: Place, start: int, values: Sequence[Any]) -> list[Plain]:
    """Returns the same as `take`, for items of a list from `start` on."""
    seen: dict[int, Path] = {}
    leaving = LeavingContainers(place.session)
    return [take(place, start + at, value, seen, leaving) for at, value in enumerate(values)]


def take_slice(place: Place, start: int, stop: int, values: Sequence[Any]) -> list[Plain]:
    """Returns the plain items for a slice. Items that the slice already has are moved, not
    copied."""
    old = place.plain[start:stop]
    replaced = {id(item) for item in old}
    kept: dict[int, Plain] = {}
    staying: set[int] = set()
    for offset, value in enumerate(values):
        own = place_of(value) if isinstance(value, Proxy) else None
        if own is None or not own.is_item_of(place) or id(own.plain) not in replaced:
            continue
        if id(own.plain) in staying:
            raise SharedValue(
                "the same item would stand there twice",
                target=place.text(start + offset),
                hint="a state is a tree; put a copy there: copy.deepcopy(…)",
            )
        staying.add(id(own.plain))
        kept[offset] = own.plain
    seen: dict[int, Path] = {}
    leaving = LeavingContainers(place.session, [item for item in old if id(item) not in staying])
    items = [
        kept[at] if at in kept else take(place, start + at, value, seen, leaving)
        for at, value in enumerate(values)
    ]
    copies, root = place.session.copies, place.session.root_name
    return copies.over(place.node, old, items, place.last_path(), root)  # type: ignore[no-any-return]


def rearranged(place: Place, value: Any, key: Any) -> Any:
    """Returns the list proxy at `key`, where `value` is a list with some of that list's own
    items."""
    if type(value) is not list or not any(isinstance(one, Proxy) for one in value):
        return None
    current = item_of(place.plain, key)
    if type(current) is not list or isinstance(place.child(key), LeafNode):
        return None
    proxy = place.read(key)
    mine = place_of(proxy)
    found = (place_of(one).is_item_of(mine) for one in value if isinstance(one, Proxy))
    return proxy if any(found) else None
