"""The order of a TypedDict's keys, which pydantic does not keep: it builds one in the declared
order.

The order of a dict's keys is data (docs/decisions/0001). Without this, a handle that committed had
another order than all others, and saving a state as it was read was a change.
"""

from __future__ import annotations

from typing import Any

from perdure.core.types.nodes import Node
from perdure.core.types.objects import ObjectNode
from perdure.core.types.side_by_side import side_by_side


def restore(node: Node, typed: Any, value: Any) -> None:
    """Puts the keys of newly built TypedDicts in the order of the values they were built from."""
    for declared, one, item, _ in side_by_side(node, typed, value):
        picked = declared.pick_typed(one)
        if isinstance(picked, ObjectNode) and picked.face.is_dict and type(item) is dict:
            _reorder(one, item)


def _reorder(typed: dict[Any, Any], value: dict[Any, Any]) -> None:
    keys = [key for key in value if key in typed]
    if keys == [*typed] or len(keys) != len(typed):
        return
    items = [(key, typed[key]) for key in keys]
    typed.clear()
    typed.update(items)
