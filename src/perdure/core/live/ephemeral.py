"""Fields that live in memory only, taken over where a live object is built anew, and given back
their defaults where it may be another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.types.nodes import DictNode, Node
from perdure.core.types.objects import ObjectNode
from perdure.core.types.private_attributes import private_default, private_of
from perdure.core.values.ops import AT_A_KEY, Op
from perdure.core.values.plain_values import SCALARS, Path, Plain
from perdure.core.values.shifted_places import Paths
from perdure.missing import MISSING


def carry_over(node: Node, old: Any, new: Any) -> None:
    """Gives a typed value the Ephemeral fields of the value that it replaces.

    It goes from object to object of the same class, through fields and keys of dicts, but not
    through lists: nothing says which item is which.
    """
    if old is MISSING or new is MISSING or type(old) in SCALARS:
        return
    node = node.pick_typed(new)
    if isinstance(node, ObjectNode):
        if node.pick_typed(old) is node and type(old) is node.face.type:
            _carry_fields(node, old, new)
    elif isinstance(node, DictNode) and type(old) is dict and type(new) is dict:
        for key, item in new.items():
            carry_over(node.item, old.get(key, MISSING), item)


def _carry_fields(node: ObjectNode, old: Any, new: Any) -> None:
    face = node.face
    for name in face.live:
        kept = face.get(old, name)
        if kept is not MISSING:
            face.put(new, name, kept)
    for name in face.fields:
        child = node.child(name)
        if child is not None:
            carry_over(child, face.get(old, name), face.get(new, name))


def changed_items(plain: Plain, ops: Sequence[Op]) -> list[Path]:
    """Returns the places of the items of lists in which ops change something.

    Args:
        plain: the plain tree with all ops applied.
    """
    paths = Paths(list(ops))
    found: dict[Path, None] = {}
    for index, op in enumerate(ops):
        inside = op.path[:-1] if type(op) in AT_A_KEY else op.path
        place = paths.final(inside, index)
        holder, depth = plain, 0
        while place is not None and depth < len(place) and type(holder) is not list:
            holder, depth = holder[place[depth]], depth + 1
        if place is not None and depth < len(place):
            found[place[: depth + 1]] = None
    return [*found]


def forget(node: Node, typed: Any) -> None:
    """Gives the Ephemeral fields of a live value, and of all objects in it, their defaults."""
    if typed is MISSING or type(typed) in SCALARS:
        return
    node = node.pick_typed(typed)
    if isinstance(node, ObjectNode) and type(typed) is node.face.type:
        face, private, cls = node.face, private_of(typed), node.face.cls
        for name in face.live:
            face.put(typed, name, node.default(name))
        for name in face.forgotten & private.keys():
            first = private_default(cls.__private_attributes__[name])
            if first is MISSING:
                del private[name]
            else:
                private[name] = first
        items: dict[Any, Any] = {name: face.get(typed, name) for name in face.fields}
    elif type(typed) is dict:
        items = typed
    else:
        items = dict(enumerate(typed)) if isinstance(typed, list | tuple) else {}
    for key, item in items.items():
        child = node.child(key)
        if child is not None:
            forget(child, item)


def follow(typed: Any, node: Node, path: Path) -> tuple[Any, Node]:
    """Returns the part of a live typed object at a path, and its node; MISSING where there is
    none."""
    for key in path:
        node = node.pick_typed(typed)
        child = node.child(key)
        if child is None:
            return MISSING, node
        typed = step(typed, node, key)
        if typed is MISSING:
            return MISSING, node
        node = child
    return typed, node.pick_typed(typed)


def step(typed: Any, node: Node, key: Any) -> Any:
    """Returns the item at a key of a live typed container; MISSING where there is none.

    Args:
        node: of the container; of a union the one that it is of.
    """
    try:
        if isinstance(node, ObjectNode):
            return node.face.get(typed, key)
        make = getattr(node, "typed_key", None)
        return typed[key if make is None else make(key)]
    except (LookupError, TypeError, AttributeError):
        return MISSING
