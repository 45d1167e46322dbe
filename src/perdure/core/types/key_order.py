"""The order of a TypedDict's keys, which pydantic does not keep: it builds one in the declared
order.

The order of a dict's keys is data (docs/decisions/0001). Without this, a handle that committed had
another order than all others, and saving a state as it was read was a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.core.types.nodes import DictNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.types.validation import PydanticEngine, ValidationSubject
from perdure.core.values.plain_values import Path
from perdure.missing import MISSING


class OrderKeeping(PydanticEngine):
    """Pydantic's engine, for types with a TypedDict in them."""

    def validate(self, place: ValidationSubject, value: Any, at: Path, root: str) -> Any:
        typed = super().validate(place, value, at, root)
        if isinstance(place, Node):
            restore(place, typed, value)
        return typed


def restore(node: Node, typed: Any, value: Any) -> None:
    """Puts the keys of newly built TypedDicts in the order of the values they were built from."""
    if typed is value or type(value) not in _CONTAINERS:
        return
    node = node.pick_typed(typed)
    pairs: Iterable[tuple[Node | None, Any, Any]] = ()
    if isinstance(node, ObjectNode):
        if type(value) is not dict or type(typed) is not node.face.type:
            return
        if node.face.is_dict:
            _reorder(typed, value)
        get = node.face.get
        pairs = [
            (node.child(key), get(typed, key), item)
            for key, item in value.items()
            if type(item) in _CONTAINERS
        ]
    elif isinstance(node, DictNode) and type(typed) is dict and type(value) is dict:
        pairs = [
            (node.item, one, item)
            for one, item in zip(typed.values(), value.values(), strict=False)
        ]
    elif isinstance(node, ListNode | TupleNode) and isinstance(typed, list | tuple):
        pairs = [
            (node.child(index), one, item)
            for index, (one, item) in enumerate(zip(typed, value, strict=False))
        ]
    for child, one, item in pairs:
        if child is not None and one is not MISSING:
            restore(child, one, item)


def _reorder(typed: dict[Any, Any], value: dict[Any, Any]) -> None:
    keys = [key for key in value if key in typed]
    if keys == [*typed] or len(keys) != len(typed):
        return
    items = [(key, typed[key]) for key in keys]
    typed.clear()
    typed.update(items)


_CONTAINERS = frozenset({dict, list, tuple})
