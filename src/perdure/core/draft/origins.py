"""The live objects that the containers of a draft stand for, wherever these were moved.

A container is found by its identity in what its parent held before the draft's changes: what
stands at a place now may be another object than the one that stood there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.draft.place import Place, item_of
from perdure.core.draft.undone_changes import Done, held
from perdure.core.live.ephemeral import step
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unions import UnionNode
from perdure.core.values.plain_values import Path, Plain
from perdure.missing import MISSING


class Gone(Struct):
    """An object that left its place, and what it had in its Ephemeral fields.

    Attributes:
        copy: what the user holds of it.
        top: the place that it left, or that what it is in left.
        now: where it was put.
    """

    copy: Any
    values: dict[str, Any]
    top: Place
    now: Place | None = None

    def is_at(self, place: Place) -> bool:
        """True if it is the object at a place: it is one object still, put there first."""
        if self.top.stands:
            return False
        if self.now is None or not self.now.stands:
            self.now = place
        return self.now.plain is place.plain


class Origins:
    """Finds live objects of one draft.

    Args:
        typed: the live typed object; it is as before the draft's changes.
        done: the draft's changes, which grow.
        made: the containers that were made from copies; see `Copies`.
    """

    def __init__(
        self, typed: Any, done: Sequence[Done], made: Mapping[int, tuple[Plain, object]]
    ) -> None:
        self._typed = typed
        self._done = done
        self._made = made
        self.gone: dict[int, Gone] = {}
        """By the identity of the copy."""
        self.came: list[tuple[Place, Any, Plain]] = []
        self._looked_at = 0
        self._changed: set[int] = set()
        self._held: dict[int, Any] = {}
        self._places: dict[int, dict[int, int]] = {}

    def kept(self, place: Place, name: str) -> Any:
        """Returns what the live object that a place stands for has in an Ephemeral field; MISSING
        where there is none."""
        made = self._made.get(id(place.plain))
        if made is not None:
            gone = self.gone.get(id(made[1]))
            return gone.values.get(name, MISSING) if gone and gone.is_at(place) else MISSING
        holder, node = self.holder(place), place.node
        if isinstance(node, ObjectNode) and type(holder) is node.face.type:
            return node.face.get(holder, name)
        return MISSING

    def note_gone(self, top: Place, typed: Any) -> None:
        """Notes a copy of what leaves its place, with all objects in it."""
        for place, one in inside(top, typed):
            if isinstance(place.node, ObjectNode):
                live = place.node.face.live
                values = {name: place.session.live(place, name) for name in live}
                self.gone[id(one)] = Gone(one, values, top)

    def note_came(self, place: Place, key: Any, values: Iterable[Plain]) -> None:
        """Notes values that were put at a key of a place, or from an index on, and may hold objects
        that were moved."""
        for offset, value in enumerate(values):
            if type(value) in (dict, list, tuple):
                self.came.append((place, key + offset if offset else key, value))

    def carried(self) -> Iterator[tuple[Path, Any]]:
        """Yields what moved objects have in their Ephemeral fields, with the paths of these: where
        they were put, they are built anew."""
        for parent, key, value in self.came:
            node = parent.child(key)
            node = node.pick(value) if isinstance(node, UnionNode) else node
            top = Place(parent.session, parent, key, value, node)
            for place, _ in inside(top) if top.stands else ():
                live = place.node.face.live if isinstance(place.node, ObjectNode) else ()
                for name in live:
                    kept = self.kept(place, name)
                    if kept is not MISSING:
                        yield (*place.locate()[0], name), kept

    def holder(self, place: Place) -> Any:
        """Returns the live object, list or dict that a place stands for; MISSING where the draft
        brought it in, or made it from a copy."""
        if place.parent is None:
            return self._typed
        if id(place.plain) in self._made:
            return MISSING
        within = self.holder(place.parent)
        if within is MISSING:
            return MISSING
        key = self._key_before(place, place.parent.plain)
        return MISSING if key is MISSING else step(within, place.parent.node, key)

    def _key_before(self, place: Place, parent: Plain) -> Any:
        """Returns the key at which a parent held a place's container before all changes; MISSING
        if it did not."""
        place.find()
        if not self._is_changed(parent):
            return place.key
        if id(parent) not in self._held:
            self._held[id(parent)] = held(parent, self._done)
        before = self._held[id(parent)]
        if type(before) is list:
            if id(parent) not in self._places:
                self._places[id(parent)] = {id(one): at for at, one in enumerate(before)}
            return self._places[id(parent)].get(id(place.plain), MISSING)
        default = MISSING if place.pending else place.plain  # of a field that was not stored
        return place.key if item_of(before, place.key) is default else MISSING

    def _is_changed(self, container: Plain) -> bool:
        if len(self._done) > self._looked_at:
            self._changed.update(id(done[1]) for done in self._done[self._looked_at :])
            self._looked_at = len(self._done)
        return id(container) in self._changed


def inside(place: Place, typed: Any = MISSING) -> Iterator[tuple[Place, Any]]:
    """Yields a place and the places of all containers in it, each with its part of a typed copy."""
    yield place, typed
    plain = place.plain
    for key, item in plain.items() if type(plain) is dict else enumerate(plain):
        node = place.node.child(key) if type(item) in (dict, list, tuple) else None
        if node is not None:
            node = node.pick(item) if isinstance(node, UnionNode) else node
            one = step(typed, place.node, key)
            frozen = place.frozen or type(plain) is tuple
            yield from inside(Place(place.session, place, key, item, node, frozen), one)
