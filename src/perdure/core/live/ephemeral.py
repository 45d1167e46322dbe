"""Fields that live in memory only, taken over where a live object is built anew."""

from __future__ import annotations

from typing import Any

from perdure.core.types.nodes import DictNode, Node
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import SCALARS
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
