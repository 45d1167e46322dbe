"""The containers of a plain value beside those of the typed value that was built from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.core.types.nodes import DictNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import Path, Plain
from perdure.missing import MISSING

Pair = tuple[Node, Any, Plain, Path]
"""The type of a place, what stands there typed and plain, and its path."""


def side_by_side(node: Node, typed: Any, plain: Plain, at: Path = ()) -> Iterator[Pair]:
    """Yields what stands at the same places, outer ones first, as far as both have the same form:
    a hook of a class may have made something else of it."""
    waiting: list[Pair] = [(node, typed, plain, at)]
    while waiting:
        pair = node, typed, plain, at = waiting.pop()
        if typed is plain or type(plain) not in _CONTAINERS:
            continue
        yield pair
        waiting += [
            (child, one, item, (*at, key))
            for key, child, one, item in reversed(_parts(node.pick_typed(typed), typed, plain))
            if child is not None and one is not MISSING
        ]


def _parts(node: Node, typed: Any, plain: Any) -> Sequence[tuple[Any, Node | None, Any, Plain]]:
    if isinstance(node, ObjectNode):
        if type(plain) is not dict or type(typed) is not node.face.type or node.stable(plain):
            return []
        get = node.face.get
        return [
            (key, child, get(typed, key), item)
            for key, item in plain.items()
            if type(item) in _CONTAINERS and (child := node.child(key)) is not None
        ]
    if isinstance(node, DictNode) and type(typed) is dict and type(plain) is dict:
        pairs = zip(typed.values(), plain.items(), strict=False)
        return [(key, node.item, one, item) for one, (key, item) in pairs]
    if isinstance(node, ListNode | TupleNode) and isinstance(typed, list | tuple):
        both = enumerate(zip(typed, plain, strict=False))
        return [(index, node.child(index), one, item) for index, (one, item) in both]
    return []


_CONTAINERS = frozenset({dict, list, tuple})
