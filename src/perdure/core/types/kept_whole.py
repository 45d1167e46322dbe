"""Compares a given value with the one that will come back: an instance is kept whole, or refused.

Taking a value apart and building it again may lose things that no plain form shows: that a tuple
stood where a list is declared, a bare text where an Enum is, an attribute that no field declares.
Libraries convert such values, too. An instance was made by its class, so nothing in it may come
back differently. Plain data around instances is input: the library of its type may convert it, as
in `model_validate`, and the state shows the result at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, get_args

from perdure.core.types.annotations import unwrap
from perdure.core.types.classes import Face
from perdure.core.types.forms import is_literal, is_union
from perdure.core.types.late_fields import equal
from perdure.core.types.nodes import AnyNode, DictNode, LeafNode, Node
from perdure.core.types.objects import ObjectNode, part_of
from perdure.core.types.private_attributes import as_good
from perdure.core.types.unions import UnionNode, Whole
from perdure.core.values.base_values import StandIn
from perdure.core.values.plain_values import SCALARS, Path, changed, format_path, same
from perdure.errors import SchemaError, Unstorable
from perdure.missing import MISSING

_CONTAINERS = (list, tuple, set, frozenset, dict)


def comes_back(node: Node, given: Any, built: Any, at: Path, root: str) -> bool:
    """True if a value comes back exactly as it was given. False if only plain data of it was
    converted, or an int became the float that is declared.

    Args:
        built: what was built from the plain form of `given`.

    Raises:
        Unstorable: something in an instance would come back differently; names its path.
    """
    comparison = _Comparison(root)
    try:
        comparison.compare(node, given, built, at, False)
    except RuntimeError as error:
        raise changed(error, at, root) from error
    return comparison.exact


def check_shown(node: Node, shown: Any, built: Any, at: Path, root: str) -> None:
    """Refuses a value, plain data included, that a draft showed and that would come back as
    another."""
    _Comparison(root).compare(node, shown, built, at, True)


def check_turned(node: Node, was: type, given: Any, built: Any, at: Path, root: str) -> None:
    """Refuses a changed value of a union that differs from what a draft shows there: it is of
    another class; or an item of it is, or was converted.

    Args:
        was: the class that the draft shows.
        given: the plain value, as the draft left it.
        built: what the union makes of that.
    """
    if type(built) is not was:
        raise Unstorable(
            f"a {was.__qualname__} would come back as a {type(built).__qualname__}",
            target=format_path(at, root),
            hint="assign a whole new value; or give both a field that tells them apart (a Literal, "
            "or a tag)",
        )
    picked = node.pick_typed(built)
    if isinstance(picked, Whole):
        check_parts(picked, given, built, at, root)


def check_parts(node: Node, given: Any, built: Any, at: Path, root: str) -> None:
    """Refuses a changed container of which a draft shows the parts as their own types read them,
    where the container's type reads them differently; see `check_turned`."""
    try:
        shown = node.assemble(given, at, root)
    except SchemaError:
        return  # a draft could not show its items: their library takes no such union
    check_shown(node, shown, built, at, root)


def check_member(node: Node, given: Any, plain: Any, at: Path, root: str) -> None:
    """Refuses a new dict key or set member that would come back as another; see `comes_back`."""
    if not node.as_is:
        comes_back(node, given, node.build(plain, (*at, given), root), (*at, given), root)


class _Comparison:
    def __init__(self, root: str) -> None:
        self.root = root
        self.exact = True

    def compare(self, node: Node, given: Any, built: Any, at: Path, inside: bool) -> None:
        """Compares the given value with the built one. `inside`: of an instance, where nothing is
        converted."""
        kind = type(given)
        if kind in SCALARS:
            if type(built) is not kind or not (given is built or same(given, built)):
                inside = inside or (isinstance(built, Enum) and _is_declared(node, kind))
                self._scalar(given, built, at, inside)
            return
        if isinstance(given, StandIn):
            self.exact = False
            self.compare(node, given.plain(), built, at, inside)
            return
        declared, node = node, node.pick_typed(built)
        if isinstance(node, ObjectNode) and not node.face.is_dict:
            self._object(node, given, built, at, inside)
        elif kind not in _CONTAINERS:
            self._other(declared, given, built, at)
        elif kind is dict and type(built) is dict:
            self._dict(node, given, built, at, inside)
        elif kind is not type(built):
            self._converted(given, built, at, inside)
            if isinstance(given, list | tuple) and isinstance(built, list | tuple):
                self._items(node, given, built, at, inside)
        elif kind is list or kind is tuple:
            self._items(node, given, built, at, inside)
        else:
            self._set(node, given, built, at, inside)

    def _scalar(self, given: Any, built: Any, at: Path, inside: bool) -> None:
        if type(given) is int and type(built) is float and given == built:
            self.exact = False  # an int may stand where a float is declared, and is equal to it
        else:
            self._converted(given, built, at, inside)

    def _converted(self, given: Any, built: Any, at: Path, inside: bool) -> None:
        if inside:
            raise self._refused(given, built, at)
        self.exact = False

    def _refused(self, given: Any, built: Any, at: Path) -> Unstorable:
        was, comes = _name(given), _name(built)
        problem = f"a {was} would come back as a {comes}"
        if was == comes:
            problem = f"this {was} would come back as another one: validation changes it"
        hint = "give what the type declares, or declare the type of what is given"
        if isinstance(given, Enum) or isinstance(built, Enum):
            hint = "a member of an Enum is stored as its value: declare one of the two, not both"
        return Unstorable(problem, target=format_path(at, self.root), hint=hint)

    def _items(self, node: Node, given: Any, built: Any, at: Path, inside: bool) -> None:
        if len(given) != len(built):
            self._converted(given, built, at, inside)
            return
        free = isinstance(node, AnyNode)
        # What another thread adds meanwhile was not taken, and is not in what was built.
        for index, (one, other) in enumerate(zip(given, built, strict=False)):
            if one is other and free:
                continue
            self.compare(part_of(node, index), one, other, (*at, index), inside)

    def _dict(self, node: Node, given: Any, built: Any, at: Path, inside: bool) -> None:
        if isinstance(node, ObjectNode) and not node.face.opaque_input and given.keys() - built:
            raise self._refused(given, built, at)  # a TypedDict of a union that has other keys
        if len(given) != len(built):
            self._converted(given, built, at, inside)
            return
        keys = node.key if isinstance(node, DictNode) else node
        for (key, one), (back, other) in zip(given.items(), built.items(), strict=False):
            if type(key) is not str or key != back:
                if isinstance(node, ObjectNode):  # the keys of a TypedDict, in another order
                    back, other = key, built.get(key, MISSING)
                self.compare(keys, key, back, (*at, key), inside)
            self.compare(part_of(node, key), one, other, (*at, key), inside)

    def _set(self, node: Node, given: Any, built: Any, at: Path, inside: bool) -> None:
        members = {one: one for one in built}
        for one in given:
            if one not in members or len(given) != len(built):
                plain = [one.plain() if isinstance(one, StandIn) else one for one in given]
                whole = any(type(member) not in SCALARS for member in plain)
                self._converted(given, built, at, inside or whole)
                return
            self.compare(part_of(node, 0), one, members[one], (*at, one), inside)

    def _object(self, node: ObjectNode, given: Any, built: Any, at: Path, inside: bool) -> None:
        face = node.face
        if type(given) is dict and not inside:
            self.exact = False
            for key, one in given.items():
                name: Any = face.aliases.get(key, key) if key not in face.fields else key
                child = node.child(name)
                if child is not None and (other := face.get(built, name)) is not MISSING:
                    self.compare(child, one, other, (*at, name), False)
                elif child is None and not (face.opaque_input or node.knows(name)):
                    raise self._refused(given, built, at)  # meant for another class of a union
            return
        if type(given) is not type(built):
            raise self._refused(given, built, at)
        for name in face.fields:
            one, other = face.get(given, name), face.get(built, name)
            if one is other and type(one) in SCALARS:
                continue
            if one is MISSING or other is MISSING:
                if one is not other:
                    raise self._unset(at, name, one)
                continue
            self.compare(part_of(node, name), one, other, (*at, name), True)
        extras, back = face.extras(given), face.extras(built)
        for name in extras.keys() | back.keys():
            one, other = extras.get(name, MISSING), back.get(name, MISSING)
            if one is MISSING or other is MISSING:
                raise self._refused(one, other, (*at, name))
            self.compare(part_of(node, name), one, other, (*at, name), True)
        self._private(face, given, built, at)

    def _unset(self, at: Path, name: str, given: Any) -> Unstorable:
        problem = "it is not set, and would come back set" if given is MISSING else "it would go"
        return Unstorable(
            problem, target=format_path((*at, name), self.root), hint="give the field a value"
        )

    def _private(self, face: Face, given: Any, built: Any, at: Path) -> None:
        kept = face.private(given)
        if not kept:
            return
        made: Mapping[str, Any] = getattr(built, "__pydantic_private__", None) or {}
        for name, item in kept.items():
            if name in face.forgotten:
                continue
            if name not in made or not as_good(item, made[name]):
                raise Unstorable(
                    f"it is a private attribute of {face.name}, which is not stored, and differs "
                    "from what a new instance has",
                    target=format_path((*at, name), self.root),
                    hint="declare a field for it, or say that it lives in memory only: "
                    f"{name}: perdure.Ephemeral[…]",
                )

    def _other(self, node: Node, given: Any, built: Any, at: Path) -> None:
        """Compares an instance of a class without fields: an Enum's member, a NamedTuple, a
        Path."""
        if given is built:
            return
        if isinstance(given, Enum) and type(built) is type(given.value) and given == built:
            if _is_declared(node, type(given)):  # beside the text: which of them it was is lost
                raise self._refused(given, built, at)
            self.exact = False  # a StrEnum's member where a text is declared, which is equal to it
            return
        if type(given) is not type(built):
            raise self._refused(given, built, at)
        if isinstance(given, tuple):
            self._items(node.pick_typed(built), given, built, at, True)
            if getattr(given, "__dict__", None):
                raise self._refused(given, built, at)
        elif repr(given) != repr(built) if type(given) is complex else not equal(given, built):
            raise self._refused(given, built, at)


def _is_declared(node: Node, kind: type) -> bool:
    """True if a type without fields is declared at a place, alone or as one of several."""
    if isinstance(node, UnionNode):
        return any(_is_declared(one, kind) for one in node.options)
    return isinstance(node, LeafNode) and _names(node.annotation, kind)


def _names(annotation: Any, kind: type) -> bool:
    bare = unwrap(annotation).type
    if is_union(bare):
        return any(_names(one, kind) for one in get_args(bare))
    if is_literal(bare):
        return any(type(one) is kind for one in get_args(bare))
    return bare is kind


def _name(value: Any) -> str:
    return type(value).__qualname__
