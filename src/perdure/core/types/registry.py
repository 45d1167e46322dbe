"""Makes the nodes of a schema's annotations, each class once."""

from __future__ import annotations

import collections
import collections.abc as abc
import copy
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, ForwardRef, get_args, get_origin

import msgspec

from perdure.core.types.annotations import (
    DICTS,
    LISTS,
    SETS,
    Bare,
    has_validators,
    is_judged,
    judges_whole,
    limits,
    spelled_out,
    unwrap,
)
from perdure.core.types.classes import Face, PydanticFace
from perdure.core.types.engines import engine_for, is_of_pydantic
from perdure.core.types.enum_literals import MemberNode
from perdure.core.types.faces import face_of
from perdure.core.types.forms import is_alias, is_literal, is_union, key_of
from perdure.core.types.nodes import (
    AnyNode,
    DictNode,
    LeafNode,
    ListNode,
    Node,
    SetNode,
    TupleNode,
)
from perdure.core.types.objects import ObjectNode, filled_in
from perdure.core.types.parts import Parts, hints_of_tuple
from perdure.core.types.type_variables import items_of_tuple
from perdure.core.types.unions import UnionNode
from perdure.core.types.validation import Engine, Marks, MsgspecEngine, PydanticEngine, text_types
from perdure.core.values.plain_values import SCALARS
from perdure.errors import SchemaError
from perdure.system.cached import cached

_REFUSED = (
    collections.deque,
    collections.defaultdict,
    collections.OrderedDict,
    collections.Counter,
    bytearray,
)


_LAZY = (abc.Iterable, abc.Iterator, abc.Generator)
_VAGUE = (
    abc.Collection,
    abc.Container,
    abc.Reversible,
    abc.Sized,
    abc.Hashable,
    abc.KeysView,
    abc.ValuesView,
    abc.ItemsView,
    *_LAZY,
)
"""Types that are too vague to recognise a value again."""
_JUDGED_BY_THE_CLOCK = {"FutureDate", "FutureDatetime"}
_JUDGED_BY_THE_DISK = {
    "file": "FilePath",
    "dir": "DirectoryPath",
    "new": "NewPath",
    "socket": "SocketPath",
}


class Registry:
    """The nodes of one schema, with one engine for all of them."""

    def __init__(self, root: Any) -> None:
        self._objects: dict[Any, ObjectNode] = {}
        found = Parts(root)
        self._faces = found.faces
        self.annotations = found.annotations
        """All that the root is made of, without wrappers."""
        for bare in self.annotations:
            _refuse_unstorable(bare)
        self.engine = engine_for(root, found)
        self.has_unions = any(map(_is_of_several, self.annotations))
        """True if a value may be of another type as soon as one of its fields is another."""
        self.any = AnyNode(Any, self.engine, None)
        self.root = self.node(root, None)

    @cached
    def derives(self) -> bool:
        """True if a class may make fields of others that its constructor does not take."""
        return any(face.late and face.checks_whole for face in self.faces.values())

    @cached
    def fills_in(self) -> bool:
        """True if a class has fields that may be others each time where they are not stored."""
        return any(map(filled_in, self.faces.values()))

    @cached
    def faces(self) -> Mapping[type, Face]:
        """The faces of all classes, by the class of their instances."""
        return {face.cls: face for face in self._faces.values()}

    @cached
    def _in_pieces(self) -> Engine:
        engine = copy.copy(self.engine)
        engine.piecewise = True
        return engine

    def make_all(self) -> None:
        """Makes the nodes of all fields, which are made otherwise when they are first looked at.

        Raises:
            SchemaError: one of them is of a type of which nothing can be stored, or that the
                library of the types does not know.
        """
        made: set[Any] = set()
        while left := self._objects.keys() - made:
            for key in left:
                one = self._objects[key]
                for name in one.face.fields:
                    one.child(name)
            made |= left
        self._prepare()

    def _prepare(self) -> None:
        """Asks the library for what it validates a value of the type with: what it does not know of
        it shows here, and not when there is a value."""
        if not self.engine.piecewise:
            return self.engine.prepare(self.root)
        for one in self._objects.values():
            if isinstance(one.face, PydanticFace):
                one.engine.prepare(one)
        return None

    def node(self, annotation: Any, config: Mapping[str, Any] | None) -> Node:
        """Returns the node of an annotation, in a class with this pydantic config."""
        return _Making(self).node(annotation, config)

    def object_node(self, kind: Any, config: Mapping[str, Any] | None = None) -> ObjectNode | None:
        """Returns the node of a class; None if its values are no objects with fields.

        Args:
            config: that of the pydantic class around it, which counts for a class that has none.
        """
        face = self._faces.get(key_of(kind)) or face_of(kind)
        if face is None:
            return None
        own = face.config if face.config is not None else config
        key = key_of(kind), id(own) if own else None  # it is a class's own, and so it lives
        found = self._objects.get(key)
        if found is None:
            # Pydantic takes no config for a class but that of the class around it.
            engine = self.engine if face.config is not None or not own else self._in_pieces
            made = ObjectNode(kind, engine, face, self, own or None)
            found = self._objects.setdefault(key, made)
        return found


class _Making:
    """One making of nodes. Its placeholders are its own: another thread would use one for a node,
    and an exception would leave it to all later ones."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.engine, self.any = registry.engine, registry.any
        self._open: dict[Any, Node] = {}
        """Stands for an alias, or a NamedTuple, while its node is made."""

    def node(self, annotation: Any, config: Mapping[str, Any] | None) -> Node:
        if is_alias(annotation) or is_alias(get_origin(annotation)):
            return self._within_itself(annotation, annotation, config, self._node)
        return self._node(annotation, config)

    def _within_itself(
        self, key: Any, annotation: Any, config: Any, make: Callable[[Any, Any], Node]
    ) -> Node:
        key = key_of(key)
        if key in self._open:
            return self._open[key]
        to_be = self._open[key] = Node(annotation, self.engine, config)
        made = make(annotation, config)
        del self._open[key]
        to_be.__class__, to_be.__dict__ = made.__class__, made.__dict__
        return made

    def _node(self, annotation: Any, config: Mapping[str, Any] | None) -> Node:
        bare = unwrap(annotation)
        made = self._made(annotation, bare, config)
        if isinstance(made, ObjectNode | AnyNode):
            if not judges_whole(bare):
                return made
            # Its node is that of all places of the class; this one has conditions of its own.
            made = UnionNode(annotation, self.engine, config, [made], self._registry)
        if bare.metadata:
            made.limits = limits(bare.metadata)
            in_parts = self.engine.piecewise and isinstance(self.engine, PydanticEngine)
            if in_parts and judges_whole(bare) and not isinstance(made, LeafNode):
                made.marks = Marks(Annotated[(Any, *bare.metadata)], config)
        if isinstance(made, ListNode | DictNode | SetNode) and any(
            map(is_judged, get_args(bare.type))
        ):
            made.limits = msgspec.structs.replace(made.limits, judged=True)
        return made

    def _made(self, annotation: Any, bare: Bare, config: Any) -> Node:
        kind, engine = bare.type, self.engine
        origin = get_origin(kind) or kind
        args = get_args(kind)
        if is_union(kind):
            return self._union(annotation, bare, config)
        if is_literal(kind):
            return self._literal(annotation, args, config)
        if origin in (Any, object):
            return self.any
        if origin in LISTS:
            item = self.node(args[0], config) if args else self.any
            return ListNode(annotation, engine, config, item, origin is abc.Sequence)
        if origin in DICTS:
            key, item = (self.node(one, config) for one in args) if args else (self.any, self.any)
            return DictNode(annotation, engine, config, key, item)
        if origin in SETS or origin is frozenset:
            item = self.node(args[0], config) if args else self.any
            made = frozenset if origin is frozenset else set
            return SetNode(annotation, engine, config, item, made, origin is abc.Set)
        if isinstance(origin, type) and issubclass(origin, tuple):
            return self._tuple(annotation, kind, config)
        _refuse_outside(kind, bare)
        if origin in _VAGUE and not (
            isinstance(engine, PydanticEngine) and _is_judged_by_pydantic(origin, config)
        ):
            raise SchemaError(
                f"{origin.__name__} is ambiguous: it may be a list, a dict or a set",
                target=str(origin.__name__),
                hint="declare Sequence, Mapping or Set, or list, dict or set",
            )
        return self._registry.object_node(kind, config) or self._leaf(annotation, bare, config)

    def _leaf(self, annotation: Any, bare: Bare, config: Any) -> Node:
        kind = bare.type
        kinds = None
        if kind in SCALARS and not has_validators(bare.metadata):
            kinds = frozenset({kind, int} if kind is float else {kind})
        marked = any(isinstance(mark, msgspec.Meta) for mark in bare.metadata)
        engine = MsgspecEngine() if marked else self.engine  # pydantic would ignore the mark
        return LeafNode(spelled_out(annotation), engine, config, kinds)

    def _literal(self, annotation: Any, values: tuple[Any, ...], config: Any) -> Node:
        if any(isinstance(one, Enum) for one in values):
            return MemberNode(annotation, self.engine, config, values)
        node = LeafNode(annotation, self.engine, config, frozenset(map(type, values)))
        node.literals = list(values)
        return node

    def _union(self, annotation: Any, bare: Bare, config: Any) -> Node:
        options = [self.node(one, config) for one in get_args(bare.type)]
        if any(option is self.any for option in options):
            return self.any
        if all(type(option) is LeafNode for option in options):
            plain = all(option.as_is for option in options) and not has_validators(bare.metadata)
            kinds = frozenset[type]().union(
                *(option.kinds or () for option in options if isinstance(option, LeafNode))
            )
            leaf = LeafNode(spelled_out(annotation), self.engine, config, kinds if plain else None)
            leaf.members = [option for option in options if isinstance(option, LeafNode)]
            return leaf
        return UnionNode(annotation, self.engine, config, options, self._registry)

    def _tuple(self, annotation: Any, kind: Any, config: Any) -> Node:
        if hasattr(get_origin(kind) or kind, "_fields"):
            return self._within_itself(kind, annotation, config, self._named_tuple)
        items, rest = items_of_tuple(kind)
        nodes = [self.node(one, config) for one in items]
        every = None if rest is None else self.node(rest, config)
        return TupleNode(annotation, self.engine, config, nodes, every)

    def _named_tuple(self, annotation: Any, config: Any) -> Node:
        kind = unwrap(annotation).type
        cls = get_origin(kind) or kind
        items = [self.node(hint, config) for hint in hints_of_tuple(kind).values()]
        return TupleNode(annotation, self.engine, config, items, None, cls)


def _is_judged_by_pydantic(vague: Any, config: Mapping[str, Any] | None) -> bool:
    """Pydantic takes an instance for what it is, if it may; of an Iterable it makes a generator."""
    may = (config or {}).get("arbitrary_types_allowed")
    return vague is abc.Hashable or bool(may and vague not in _LAZY)


def _refuse_outside(kind: Any, bare: Bare) -> None:
    """I6: refuses types that are judged by a clock, or by files: a value that was right when it was
    committed could not be read later."""
    name = getattr(kind, "__name__", "")
    judged = str(getattr(kind, "__module__", "")).startswith("pydantic")
    by = "clock" if judged and name in _JUDGED_BY_THE_CLOCK else ""
    for mark in bare.metadata:
        if type(mark).__name__ == "PathType" and type(mark).__module__.startswith("pydantic"):
            by, name = "disk", _JUDGED_BY_THE_DISK.get(mark.path_type, "a path")
    if by:
        raise SchemaError(
            f"{name} is judged by the {by} at each reading: a value that was right when it was "
            "committed could not be read later",
            target=name,
            hint="declare datetime, date or Path, and judge a value where it is set",
        )


def is_known(annotation: Any) -> bool:
    """Returns True if values of every type in an annotation, including the fields of classes, can
    be stored. Those of a class of no known library, of a Protocol or a function's type cannot."""
    return all(map(_is_stored, Parts(annotation).annotations))


def _is_stored(bare: Bare) -> bool:
    origin = get_origin(bare.type) or bare.type
    if is_union(bare.type) or is_literal(bare.type) or origin in (Any, object):
        return True
    if origin in (*LISTS, *DICTS, *SETS, *SCALARS):
        return True
    if not isinstance(origin, type):
        return False
    whole = issubclass(origin, (tuple, frozenset, Enum, *text_types()))
    return whole or is_of_pydantic(Bare(bare.type)) or face_of(bare.type) is not None


def _is_of_several(bare: Bare) -> bool:
    return is_union(bare.type) and len({*get_args(bare.type)} - {type(None)}) > 1


def _refuse_unstorable(bare: Bare) -> None:
    """Refuses a class of which no instance can be stored, wherever a type has it: an undo, say,
    looks at each class of a union.

    Raises:
        SchemaError: it is one.
    """
    origin = get_origin(bare.type) or bare.type
    if isinstance(origin, str | ForwardRef):
        raise SchemaError(
            f"{origin!r} names something unknown",
            target=str(getattr(origin, "__forward_arg__", origin)),
            hint="name the class itself: quotes are for annotations inside of classes",
        )
    if not isinstance(origin, type):
        return
    if issubclass(origin, _REFUSED):
        raise SchemaError(
            f"a {origin.__name__} cannot be part of a state",
            target=str(origin.__name__),
            hint="use list, dict, set or bytes, or mark the field perdure.Ephemeral",
        )
    if getattr(origin, "__pydantic_root_model__", False):
        raise SchemaError(
            "a RootModel cannot be part of a state",
            target=origin.__name__,
            hint="declare the type inside it, or a model with a field for it",
        )
