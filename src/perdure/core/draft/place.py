"""Places of a draft: the position of a container, its type, and how it is read.

A place holds its plain container and finds its path when asked, because items move: it looks where
the container was last, then by identity. A container that is not found was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn
from weakref import ref

from msgspec import Struct

from perdure.core.draft.handed_out import HandedOut, can_change
from perdure.core.live.ephemeral import follow
from perdure.core.schema.schema import Schema
from perdure.core.schema.taken_values import take_at
from perdure.core.types.nodes import AnyNode, LeafNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.types.read_values import note_copy
from perdure.core.types.typed_copies import Copies
from perdure.core.types.unions import UnionNode
from perdure.core.values.plain_values import SCALARS, Path, Plain, format_path
from perdure.errors import SchemaError
from perdure.missing import MISSING


class Place(Struct, eq=False):
    """One container of a draft.

    Attributes:
        key: its key in the parent when last looked for.
        frozen: it is inside a tuple, which cannot change.
        pending: it is the default of a field that is not stored, and joins the tree when changed.
    """

    session: DraftSession
    parent: Place | None
    key: Any
    plain: Plain
    node: Node
    frozen: bool = False
    pending: bool = False

    def find(self) -> bool:
        """Returns whether the parent still has it; brings `key` up to date."""
        if self.parent is None:
            return True
        if self.pending:
            return self.session.waits(self)
        within = self.parent.plain
        if type(within) is list:
            if self.key < len(within) and within[self.key] is self.plain:
                return True
            for index, item in enumerate(within):
                if item is self.plain:
                    self.key = index
                    return True
            return False
        if type(within) is tuple:
            return True
        return within.get(self.key, MISSING) is self.plain

    def locate(self) -> tuple[Path, bool]:
        """Returns its path, and whether this draft brought it (or something around it) in.

        Raises:
            SchemaError: it is no longer part of the state.
        """
        path: list[Any] = []
        fresh = False
        place = self
        while place.parent is not None:
            if not place.find():
                raise SchemaError(
                    f"what was at {self.text()} is no longer part of the state",
                    target=self.text(),
                    hint="look it up again in the draft; to put a removed value back, assign it",
                )
            fresh = fresh or id(place.plain) in self.session.fresh
            path.append(place.key)
            place = place.parent
        return tuple(reversed(path)), fresh

    @property
    def stands(self) -> bool:
        """True if it is a part of the state."""
        return all(place.find() for place in self.line())

    def line(self) -> Iterator[Place]:
        """Yields it, and every place that it is in, up to the root."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.parent

    def last_path(self) -> Path:
        """Returns its path, as far as it can still be found."""
        path: list[Any] = []
        place = self
        while place.parent is not None:
            place.find()
            path.append(place.key)
            place = place.parent
        return tuple(reversed(path))

    def text(self, *keys: Any) -> str:
        return format_path((*self.last_path(), *keys), self.session.root_name)

    def child(self, key: Any) -> Node:
        """Returns the node of an item.

        Raises:
            SchemaError: the class has no such field.
        """
        node = self.node.child(key)
        if node is None:
            raise SchemaError(
                "there is no such field",
                target=self.text(key),
                hint="declare it in the class" + _nearest(self.node, key),
            )
        return node

    def read(self, key: Any) -> Any:
        """Returns the value of an item: a scalar with its type, or a proxy."""
        node = self.node.child(key) or self.child(key)  # which raises
        return self.session.read(self, key, node, self.plain[key])

    def detach(self, *, goes: bool = False) -> Any:
        """Returns a typed copy that is not part of the draft. The draft recognises it if it is put
        back. `goes`: it stands for the object itself, which leaves its place."""
        typed = self.session.typed_copy(self)
        if goes and self.session.schema.keeps_live:
            self.session.note_gone(self, typed)
        stays = self.frozen
        newer = self.session.copies.note(self.node, typed, self.plain, stays=stays)
        note_copy(self.node, typed, self.plain, newer=newer, stays=stays)
        return typed

    def typed(self) -> Any:
        """Returns a typed copy, for reading only."""
        self.session.check_open()
        return self.build(self.node, self.plain)

    def build(self, node: Node, plain: Plain) -> Any:
        return node.build(plain, self.last_path(), self.session.root_name)

    def is_own(self, value: Any, key: Any) -> bool:
        """True if an assigned value already stands there (``x.a = x.a``, ``x.a += …``)."""
        if not isinstance(value, Proxy):
            return False
        place = place_of(value)
        if place.session is not self.session:
            return False
        if place.pending:
            within = None if place.parent is None else place.parent.plain
            return within is self.plain and place.key == key
        return item_of(self.plain, key) is place.plain

    def is_item_of(self, items: Place) -> bool:
        return self.parent is not None and self.parent.plain is items.plain


def item_of(plain: Plain, key: Any) -> Any:
    """Returns the item at a key of a container; MISSING if there is none."""
    if type(plain) is dict:
        return plain.get(key, MISSING)
    return plain[key]


def _nearest(node: Node, key: Any) -> str:
    if not isinstance(node, ObjectNode):
        return ""
    return f" {node.face.name}; it has {', '.join(node.fields) or 'no fields'}"


class Proxy:
    """The user's handle of a container in a draft."""

    __slots__ = ("__weakref__", "_perdure")

    _perdure: Place
    __perdure_kind__: ClassVar[Any] = None  # not a name that a field may have

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Whoever writes `type(value)(items)` wants a list, not a draft.
        return cls.__perdure_kind__(*args, **kwargs)

    def __perdure_place__(self) -> str:
        return place_of(self).text()

    def __copy__(self) -> Any:
        return place_of(self).detach()

    def __deepcopy__(self, memo: Any) -> Any:
        return place_of(self).detach()

    def __repr__(self) -> str:
        return repr(place_of(self).typed())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{place_of(self).text()} is part of a draft and cannot be pickled; "
            "take a copy with copy.deepcopy"
        )


def seen_as(kind: Callable[[Any], type]) -> Any:
    """Returns the `__class__` of proxies that look like instances of a class."""

    def refuse(proxy: Proxy, value: Any) -> None:
        raise TypeError("the class of a draft cannot change")

    return property(kind, refuse)


_set_place = Proxy.__dict__["_perdure"].__set__  # past the `__setattr__` of drafts of objects


def place_of(proxy: Proxy) -> Place:
    return proxy._perdure


def detached(value: Any, *, goes: bool = False) -> Any:
    """Returns the value, or a typed copy if it is a proxy; see `Place.detach`."""
    return place_of(value).detach(goes=goes) if isinstance(value, Proxy) else value


SWEPT_MIN = 64
"""So many proxies are noted before it is looked which of them the user no longer holds."""


class DraftSession:
    """One draft or view: makes proxies. By itself it is read-only; `Recording` writes."""

    kinds: dict[type, type[Proxy]] = {}  # noqa: RUF012  # filled by draft.py: what stands for what
    kind_of_object: Callable[[type], type[Proxy]]  # set there, too: of each class a type

    def __init__(self, schema: Schema[Any], plain: Plain, root_name: str) -> None:
        self.schema = schema
        self.plain = plain
        self.root_name = root_name
        self.closed = False
        self.fresh: dict[int, Any] = {}
        self.freed: list[Any] = []  # copies that were taken; see `taking.take`
        self.copies = Copies()
        self.handed_out: list[HandedOut] = []
        self.waiting: dict[tuple[int, Any], Proxy] = {}  # what stands for unset fields
        self.unstored: dict[tuple[int, str], tuple[Place, str, Any]] = {}
        """Assignments to Ephemeral fields."""
        self.carried: list[tuple[Path, Any]] = []
        """The values of such fields in objects that were moved; known when the draft is closed."""
        self._known: dict[int, ref[Proxy]] = {}
        """By the identity of the container: the proxy, while the user holds it."""
        self._sweep_at = SWEPT_MIN
        root = schema.root
        node = root.pick(plain) if isinstance(root, UnionNode) else root
        self.draft: Any = self._proxy(Place(self, None, None, plain, node))

    def check_open(self) -> None:
        if self.closed:
            raise SchemaError(
                "this draft is closed",
                target=self.root_name,
                hint="use it inside its block only; afterwards read agent.state",
            )

    def begin(self, place: Place) -> tuple[Path, bool]:
        """Prepares a change: returns the path, and whether the change need not be recorded."""
        self.check_open()
        raise SchemaError(
            "it can only be read here",
            target=place.text(),
            hint="make the change inside agent.edit()",
        )

    # Changes; a recording makes them

    def put(self, place: Place, key: Any, value: Plain) -> None:
        self.begin(place)

    def drop(self, place: Place, key: Any) -> None:
        self.begin(place)

    def increment(self, place: Place, key: Any, by: Any) -> None:
        self.begin(place)

    def append(self, place: Place, values: list[Plain]) -> None:
        self.begin(place)

    def splice(self, place: Place, index: int, removed: int, values: list[Plain]) -> None:
        self.begin(place)

    def move(self, place: Place, source: int, target: int) -> None:
        self.begin(place)

    def change_set(self, place: Place, gone: list[Plain], come: list[Plain]) -> None:
        self.begin(place)

    # Reading

    def read(self, parent: Place, key: Any, node: Node, plain: Plain) -> Any:
        if self.closed:
            self.check_open()  # raises
        kind = type(plain)
        if kind in SCALARS:
            if node.as_is or (plain is None and isinstance(node, UnionNode)):
                return plain
            return self._hand_out(parent, key, node, plain)
        known = self._known.get(id(plain))
        if known is not None and (proxy := known()) is not None:
            return proxy
        if isinstance(node, UnionNode):
            node = node.pick(plain)
        if kind is tuple and isinstance(node, TupleNode | ListNode | AnyNode):
            return self._tuple(parent, key, node, plain)
        if kind is frozenset or isinstance(node, _WHOLE):
            return self._hand_out(parent, key, node, plain)
        return self._proxy(Place(self, parent, key, plain, node, parent.frozen))

    def _hand_out(self, parent: Place, key: Any, node: Node, plain: Plain) -> Any:
        value = parent.build(node, plain)
        if can_change(value):
            path = (*parent.last_path(), key)
            self.handed_out.append(HandedOut(value, node, parent.plain, key, plain, path))
        return value

    def _tuple(self, parent: Place, key: Any, node: Node, plain: Plain) -> Any:
        place = Place(self, parent, key, plain, node, True)
        items = [self.read(place, at, node.child(at) or node, one) for at, one in enumerate(plain)]
        cls = getattr(node, "cls", tuple)
        return tuple(items) if cls is tuple else cls(*items)

    def _proxy(self, place: Place) -> Proxy:
        plain, node = place.plain, place.node
        if isinstance(node, ObjectNode) and not node.face.is_dict:
            kind = self.kind_of_object(node.face.cls)
        elif (found := self.kinds.get(type(plain))) is not None:
            kind = found
        else:
            raise SchemaError(
                f"a {type(plain).__name__} cannot be edited in place",
                target=self.root_name,
                hint="use agent.save(value)",
            )
        proxy: Proxy = object.__new__(kind)
        _set_place(proxy, place)
        self._known[id(plain)] = ref(proxy)
        if len(self._known) > self._sweep_at:
            self._sweep()
        return proxy

    def _sweep(self) -> None:
        """Drops the proxies that the user no longer holds, so that iterating over a long list does
        not keep all of it here."""
        # Several threads may look at a view: what one drops here, another makes anew.
        for key, one in [*self._known.items()]:
            if one() is None:
                self._known.pop(key, None)
        self._sweep_at = max(SWEPT_MIN, 2 * len(self._known))

    def missing(self, place: Place, name: str) -> Any:
        """Returns the value of a field that is not stored: its default, which is stored once it is
        changed."""
        self.check_open()
        waiting = self.waiting.get((id(place.plain), name))
        if waiting is not None:
            return waiting
        node, child = place.node, place.child(name)
        default = node.default(name) if isinstance(node, ObjectNode) else MISSING
        if default is MISSING:
            raise AttributeError(f"{place.text(name)} is not set")
        plain = take_at(child, default, (*place.last_path(), name), None, self.root_name)
        if type(plain) not in (dict, list, set):
            return default
        proxy = self.read(place, name, child, plain)
        if isinstance(proxy, Proxy):
            place_of(proxy).pending = True
            self.waiting[id(place.plain), name] = proxy
        return proxy

    def waits(self, place: Place) -> bool:
        """True if a pending place is still the one that its field would get."""
        mark = (id(place.parent.plain) if place.parent is not None else 0, place.key)
        proxy = self.waiting.get(mark)
        return proxy is not None and place_of(proxy) is place

    # Fields that live in memory only

    def live(self, place: Place, name: str) -> Any:
        self.check_open()
        found = self.unstored.get((id(place.plain), name))
        if found is not None:
            return found[2]
        node = place.node
        assert isinstance(node, ObjectNode)
        kept = self.kept(place, name)
        return node.default(name) if kept is MISSING else kept

    def kept(self, place: Place, name: str) -> Any:
        """Returns what the live object that a place stands for has in an Ephemeral field; MISSING
        where there is none."""
        return MISSING

    def note_gone(self, place: Place, typed: Any) -> None:
        """Notes a copy of an object that leaves its place, and may be put elsewhere."""

    def typed_copy(self, place: Place) -> Any:
        """Returns a typed copy of a place, with what its classes make of changed fields."""
        return place.typed()

    def put_live(self, place: Place, name: str, value: Any) -> None:
        self.begin(place)
        self.unstored[id(place.plain), name] = (place, name, value)

    @property
    def ephemeral(self) -> list[tuple[Path, Any]]:
        """Returns the values of Ephemeral fields that the draft assigned, or moved, with their
        current paths, without those of removed objects."""
        found = [*self.carried]
        for place, name, value in self.unstored.values():
            try:
                found.append(((*place.locate()[0], name), value))
            except SchemaError:
                continue
        return found

    def apply_ephemeral(self, typed: Any, given: list[tuple[Path, Any]] | None = None) -> None:
        """Puts them into the live typed object, after the rest is committed and applied to it.

        Args:
            given: those that there were, of a draft that is rolled back since.
        """
        for path, value in self.ephemeral if given is None else given:
            holder, node = follow(typed, self.schema.root, path[:-1])
            if isinstance(node, ObjectNode) and type(holder) is node.face.type:
                node.face.put(holder, path[-1], value)


_WHOLE = (LeafNode, UnionNode)
"""Nodes of values without parts that could be edited in place."""
