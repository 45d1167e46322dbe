"""Nodes of classes, and the parts of a stored object that its class does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from perdure.core.types.classes import Face, Field, PydanticFace
from perdure.core.types.nodes import AnyNode, LeafNode, Node, Walker, isolate
from perdure.core.types.validation import Engine
from perdure.core.values.plain_values import (
    SCALARS,
    STEADY,
    Path,
    Plain,
    changed,
    format_path,
    same,
)
from perdure.errors import SchemaError
from perdure.missing import MISSING
from perdure.system.cached import cached
from perdure.system.user_errors import of_code


class UnknownKeys:
    """Tells, without a further look at a value, if it may hold what its classes do not know.

    Attributes:
        met: another object each time that a value was built which may, by any thread.
    """

    met: object = None


UNKNOWN_KEYS = UnknownKeys()


class ObjectNode(Node):
    """A class with fields."""

    def __init__(
        self,
        annotation: Any,
        engine: Engine,
        face: Face,
        registry: Any,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(annotation, engine, config)
        self.face = face
        self._registry = registry
        self._fields: dict[str, Node] = {}

    @cached
    def _calm(self) -> Mapping[str, Node] | None:
        """The nodes of all fields, if the class accepts them unchanged and does nothing else."""
        face = self.face
        renamed = face.renames and not self.engine.by_name
        if face.tag or face.keeps_extra or face.opaque_input or face.checks_whole or renamed:
            return None
        if face.live or face.is_dict or hasattr(face.cls, "__post_init__"):
            return None
        if self.engine.piecewise and not face.makes_instances:
            return None
        if any(field.validated for field in face.fields.values()):
            return None
        return self._nodes

    @cached
    def filled_in(self) -> frozenset[str]:
        """The fields that may be something else each time where they are not stored."""
        return filled_in(self.face)

    def are_whole(self, items: Sequence[Plain]) -> bool:
        """True if none of these lacks such a field, nor has parts that could. Checked in loops that
        run in C: a loaded state may have many items."""
        if not self._is_flat or not {dict}.issuperset(map(type, items)):
            return False
        return all(map(self.filled_in.issubset, items))

    @cached
    def _is_flat(self) -> bool:
        return all(isinstance(node, LeafNode) for node in self._nodes.values())

    @cached
    def with_parts(self) -> tuple[str, ...]:
        """The fields in which further objects may stand."""
        own = [(name, getattr(one, "item", one)) for name, one in self._nodes.items()]
        return tuple(name for name, one in own if not isinstance(one, LeafNode))

    @cached
    def defaulted(self) -> frozenset[str]:
        """The fields that the class fills in by itself where they are not stored."""
        return frozenset(one.name for one in self.fields.values() if one.default or one.late)

    @cached
    def _nodes(self) -> Mapping[str, Node]:
        """The nodes of all fields."""
        return {name: self._field(name) for name in self.face.fields}

    def stable(self, plain: Plain) -> bool:
        calm = self._calm
        if calm is None or type(plain) is not dict or len(plain) != len(calm):
            return False
        for name, node in calm.items():
            item = plain.get(name, MISSING)
            if type(item) not in node.exact and not node.stable(item):
                return False
        return True

    def all_stable(self, items: Sequence[Plain]) -> bool:
        """Checks field by field, in loops that run in C: a loaded state may have many items."""
        calm = self._calm
        if calm is None or not {dict}.issuperset(map(type, items)):
            return False
        if not {len(calm)}.issuperset(map(len, items)):
            return False
        try:
            return all(
                node.all_stable(list(map(itemgetter(name), items))) for name, node in calm.items()
            )
        except KeyError:
            return False

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.face.fields

    def child(self, key: Any) -> Node | None:
        node = self._fields.get(key)
        if node is None:
            node = self._make_child(key)
            if node is not None:
                self._fields[key] = node
        return node

    def _make_child(self, key: Any) -> Node | None:
        found = self.face.fields.get(key)
        if found is not None:
            made: Node = self._registry.node(found.annotation, self.config)
            return made
        if self.face.keeps_extra and key not in self.face.live and isinstance(key, str):
            return self.unknown
        return None

    @property
    def unknown(self) -> Node:
        """The node of what the class does not know."""
        found: Node = self._registry.any
        return found

    def knows(self, key: Any) -> bool:
        """True if the class has a stored place of this name."""
        face = self.face
        return (
            key in face.fields
            or (face.tag is not None and key == face.tag[0])
            or (face.keeps_extra and key not in face.live)
        )

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        face = self.face
        if type(value) is dict:
            return self._raw(value, at, walker)
        if type(value) is not face.type:
            if face.derives(value) and not hasattr(type(value), "__perdure_place__"):
                raise walker.lost(
                    f"a {type(value).__qualname__} would come back as a {face.name}",
                    at,
                    "declare the field with that type, or with a union of both",
                )
            return walker.take(value, at)
        walker.enter(value, at, frozen=face.frozen)
        taken: dict[str, Any] = dict([face.tag]) if face.tag else {}
        for name, node in self._nodes.items():
            item = face.get(value, name)
            if type(item) in STEADY:
                taken[name] = item
            elif item is not MISSING:
                taken[name] = node.plain(item, (*at, name), walker)
        if face.keeps_extra:
            for name, item in face.extras(value).items():
                taken[name] = walker.take(item, (*at, name))
        strays = face.strays(value)
        if strays:
            name = next(iter(strays))
            raise walker.lost(
                f"{face.name} declares no such field",
                (*at, name),
                "declare it, as perdure.Ephemeral if it need not be stored",
            )
        if face.has_private and face.private(value):
            walker.unsure = True
        walker.classes[at] = face.cls
        walker.leave(value)
        return taken

    def _field(self, name: str) -> Node:
        node = self.child(name)
        assert node is not None
        return node

    def _raw(self, value: dict[Any, Any], at: Path, walker: Walker) -> Plain:
        """Takes a dict where an instance belongs; validation comes later."""
        face = self.face
        walker.enter(value, at)
        taken: dict[str, Any] = dict([face.tag]) if face.tag else {}
        try:
            for key, item in value.items():
                name = face.aliases.get(key, key) if key not in face.fields else key
                node = self.child(name)
                if node is not None and name in taken:
                    raise walker.lost(
                        f"{face.name}.{name} is given under another name, too",
                        (*at, key),
                        "one of the two would be lost; leave it out",
                    )
                if node is not None:
                    taken[name] = node.plain(item, (*at, name), walker)
                elif face.tag is not None and key == face.tag[0]:
                    taken[key] = item
                elif face.opaque_input:
                    taken[key] = walker.take(item, (*at, key))
                elif (name := face.leads_inside.get(key)) is not None:
                    raise walker.lost(
                        f"{face.name}.{name} would be read from inside of it, by an AliasPath, and "
                        "the rest be lost",
                        (*at, key),
                        f"give {name!r} itself, or an instance: {face.name}.model_validate(…)",
                    )
                else:
                    raise walker.lost(
                        f"{face.name} declares no such field",
                        (*at, key),
                        "it would be lost; declare it or leave it out",
                    )
        except RuntimeError as error:
            raise changed(error, at, walker.root) from error
        walker.leave(value)
        return taken

    def prepare(self, plain: Plain) -> Any:
        if type(plain) is not dict:
            return isolate(plain)
        if self.stable(plain):
            return plain  # read only: what is built shares nothing with it
        face = self.face
        renames = {} if self.engine.by_name else face.renames
        prepared = {}
        for key, item in plain.items():
            node = self.child(key)
            if node is not None:
                prepared[renames.get(key, key)] = node.prepare(item)
            elif self.knows(key):
                prepared[key] = isolate(item)
            else:
                UNKNOWN_KEYS.met = object()
                if face.opaque_input and not face.forbids:
                    prepared[key] = isolate(item)
        return prepared

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        face = self.face
        if type(plain) is not dict:
            raise self.unfit(plain, face.name, at, root)
        known = {key: node for key in plain if (node := self.child(key)) is not None}
        if len(known) < len(plain) and not all(map(self.knows, plain)):
            UNKNOWN_KEYS.met = object()
        # What has no parts comes first: of a union's classes, most differ there already, and what
        # is below would be built for each of them, at each level.
        first = {
            key: node.build(plain[key], (*at, key), root)
            for key, node in known.items()
            if isinstance(node, LeafNode)
        }
        made = {
            key: first[key] if key in first else node.build(plain[key], (*at, key), root)
            for key, node in known.items()
        }
        if face.tag is not None and plain.get(face.tag[0], face.tag[1]) != face.tag[1]:
            raise SchemaError(f"not a {face.name}", target=format_path((*at, face.tag[0]), root))
        absent = [
            name
            for name, field in face.fields.items()
            if name not in made and field.default is None and field.required_key
        ]
        if absent:
            raise SchemaError(
                "a required field is missing", target=format_path((*at, absent[0]), root)
            )
        if isinstance(face, PydanticFace):
            return self.engine.validate(self, made, at, root)
        late = {name: made.pop(name) for name in face.late if name in made}
        try:
            whole = made if face.is_dict else face.cls(**made)
            for name, item in late.items():
                face.put(whole, name, item)
            return whole
        except of_code() as error:  # the class's own checks
            raise self.engine.explain(error, at, root) from error

    def default(self, name: str) -> Any:
        """Returns a field's default, typed; MISSING where it has none."""
        found = self.face.fields.get(name) or self.face.live.get(name)
        return MISSING if found is None or found.default is None else found.default()

    def takes(self, kind: type) -> bool:
        return kind is dict


def filled_in(face: Face) -> frozenset[str]:
    """The fields that may be something else each time where they are not stored, as ids and times
    are: their defaults are others, or code of the class puts something there."""
    has_code = face.opaque_input or face.looks_inside or hasattr(face.cls, "__post_init__")
    if has_code:
        return frozenset(face.fields)
    own = face.fields.values()
    return frozenset(one.name for one in own if one.default and not one.default_is_fixed)


def alike(node: Node, a: Plain, b: Plain) -> bool:
    """Returns True if two plain values are the same, with the keys of all dicts in the same
    order."""
    return same(a, b) and same_order(node, a, b)


def same_order(node: Node, a: Plain, b: Plain) -> bool:
    """True if all dicts in two equal values have their keys in the same order.

    The order of a dict's keys is data (docs/decisions/0001); that of an object's fields is not.
    """
    if type(a) is dict:
        node = node.pick(a)
        if not _is_object(node) and list(a) != list(b):
            return False
        return all(
            type(item) in SCALARS or same_order(part_of(node, key), item, b[key])
            for key, item in a.items()
        )
    if type(a) in (list, tuple):
        node = node.pick(a)
        return all(
            type(item) in SCALARS or same_order(part_of(node, index), item, b[index])
            for index, item in enumerate(a)
        )
    return True


def part_of(node: Node, key: Any) -> Node:
    """Returns the node of a part; the node itself where its type has no parts. What stands under a
    key that a class does not know is plain: a newer version put it there."""
    child = node.child(key)
    if child is None:
        return node.unknown if isinstance(node, ObjectNode) else node
    return child


def in_stored_order(node: Node, stored: Plain, new: Plain) -> Plain:
    """Returns `new`, with the fields of each object in the order of the stored one at its place.

    Otherwise saving an object would move fields that the class now declares in another order, with
    all their content.
    """
    node = node.pick(new)
    if isinstance(node, AnyNode | LeafNode) or type(stored) is not type(new) or new is stored:
        return new
    if type(new) is dict:
        ordered = dict(new)
        for key, item in new.items():
            child = node.child(key)
            if child is not None and key in stored and type(item) not in SCALARS:
                ordered[key] = in_stored_order(child, stored[key], item)
        if not _is_object(node) or list(stored) == list(ordered):
            return ordered
        kept = {key: ordered[key] for key in stored if key in ordered}
        return {**kept, **ordered}
    if type(new) not in (list, tuple):
        return new
    pairs = zip(stored, new, strict=False)
    front = [
        in_stored_order(child, was, item) if (child := node.child(at)) is not None else item
        for at, (was, item) in enumerate(pairs)
    ]
    return type(new)([*front, *new[len(front) :]])


def _is_object(node: Node) -> bool:
    return isinstance(node, ObjectNode) and not node.face.is_dict


def is_default(node: Node, name: Any, plain: Plain) -> bool:
    """True if a plain value is what a field has where nothing is stored."""
    if not isinstance(node, ObjectNode):
        return False
    default = node.default(name)
    child = node.child(name)
    if default is MISSING or child is None:
        return False
    try:
        return same(child.plain(default, (name,), Walker()), plain)
    except SchemaError:
        return False
