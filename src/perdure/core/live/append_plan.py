"""The plan of what most commits do: put items at the end of a list. `typed` plans all the rest.

It costs a third of the general plan, and comes to the same: where anything is out of the ordinary
there is none, and the general one finds out what it is.
"""

from __future__ import annotations

from typing import Any

from perdure.core.live.drift import holds
from perdure.core.types.classes import Face
from perdure.core.types.nodes import AnyNode, DictNode, ListNode, Node
from perdure.core.types.objects import ObjectNode
from perdure.core.values.ops import Append
from perdure.core.values.plain_values import Plain


class Appended:
    """New items of a live list. `holders`: the objects that it is in, with their classes."""

    __slots__ = ("_holders", "_items", "_values")

    def __init__(
        self, holders: list[tuple[Face, Any]], items: list[Any], values: list[Any]
    ) -> None:
        self._holders = holders
        self._items = items
        self._values = values

    def apply(self) -> None:
        self._items.extend(self._values)
        for face, holder in self._holders:
            if not face.is_dict:
                face.forget_caches(holder)


def appended(node: Node, typed: Any, plain: Plain, op: Append, root: str) -> Appended | None:
    """The plan of one append, if it is that simple.

    Args:
        node, typed, plain, root: as for `Schema.plan`.

    Raises:
        SchemaError: a new item does not fit.
    """
    holders = []
    for key in op.path:
        if node.limits.judged:
            return None
        if isinstance(node, ObjectNode):
            if node.face.looks_inside or not node.face.is_instance(typed):
                return None
            holders.append((node.face, typed))
            typed = node.face.get(typed, key)
        elif type(typed) is dict and _has_plain_keys(node):
            typed = typed.get(key)
        else:
            return None
        child = node.child(key)
        if child is None:
            return None
        plain, node = plain[key], child
    item = node.child(0) if isinstance(node, _LISTS) else None
    if item is None or node.limits.judged or type(typed) is not list or type(plain) is not list:
        return None
    count = len(typed)
    if count + len(op.values) != len(plain) or node.limits.problem(len(plain)) is not None:
        return None
    if count and not holds(item, typed[-1], plain[count - 1]):
        return None  # changed outside `edit`, maybe
    if isinstance(item, AnyNode):
        return Appended(holders, typed, list(map(item.build, op.values)))
    if not all(map(item.stable, op.values)):
        return None  # validation may make something else of it
    values = []
    for place, value in enumerate(op.values, count):
        values.append(item.build_stable(value, (*op.path, place), root))
    return Appended(holders, typed, values)


_LISTS = (ListNode, AnyNode)


def _has_plain_keys(node: Node) -> bool:
    return isinstance(node, AnyNode) or (isinstance(node, DictNode) and node.key.as_is)
