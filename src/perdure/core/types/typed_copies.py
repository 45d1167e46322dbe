"""Typed copies that a draft has given out: each is known again where it is put, as what it was.

Whoever takes an object out of a draft, or copies it there, holds an instance of this program's
class, which shows nothing of what a newer program stored in the object. The draft remembers that,
by the copy's identity: also that there was nothing, for then it gets nothing where it is put.
"""

from __future__ import annotations

from msgspec import Struct, field

from perdure.core.types.nodes import Copied, DictNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unknown_fields import Known, keep, keep_unknown
from perdure.core.values.plain_values import Path, Plain, copy, look_up
from perdure.missing import MISSING


class Copies(Struct):
    """What one draft has given out, and what of that it has taken back.

    Attributes:
        given: by the identity of each object, list and dict in a copy.
        taken: the plain containers that were made of such; see `Known`.
    """

    given: dict[int, Copied] = field(default_factory=dict)
    taken: Known = field(default_factory=dict)

    def note(self, node: Node, typed: object, plain: Plain) -> None:
        """Remember a copy that was just built from `plain`."""
        if self._note(node, typed, plain, newer=False):
            self._note(node, typed, copy(plain), newer=True)  # `plain` may change from now on

    def _note(self, node: Node, typed: object, plain: Plain, *, newer: bool) -> bool:
        """Returns whether a newer program stored something in it, or in what is in it."""
        kind = type(plain)
        node = node.pick_typed(typed)
        found = False
        if isinstance(node, ObjectNode):
            if kind is not dict or type(typed) is not node.face.type:
                return False
            fields, get = node.face.fields, node.face.get
            for key, item in plain.items():
                if key not in fields:
                    found = found or not node.knows(key)
                elif type(item) in _CONTAINERS:
                    child, one = node.child(key), get(typed, key)
                    assert child is not None
                    found |= one is not MISSING and self._note(child, one, item, newer=newer)
        elif isinstance(node, DictNode):
            if kind is not dict or type(typed) is not dict:
                return False
            for key, item in plain.items():
                if type(item) in _CONTAINERS:
                    one = typed.get(node.typed_key(key), MISSING)
                    found |= one is not MISSING and self._note(node.item, one, item, newer=newer)
        elif isinstance(node, ListNode | TupleNode):
            if kind not in (list, tuple) or not isinstance(typed, list | tuple):
                return False
            for index, (one, item) in enumerate(zip(typed, plain, strict=False)):
                child = node.child(index) if type(item) in _CONTAINERS else None
                found |= child is not None and self._note(child, one, item, newer=newer)
        else:
            return False
        if kind is not tuple:  # which anybody may have, too, and which is nothing by itself
            self.given[id(typed)] = Copied(typed, node, plain if newer else MISSING)
        return found

    def settle(
        self, node: Node, plain: Plain, at: Path, found: dict[Path, Copied], root: str
    ) -> None:
        """Give what was met in a value back what a newer program stored in it.

        Args:
            node: of the value's place, which is `at`.
            plain: what was made of the value, just now; changed in place.
            found: the copies that were met in it, the inner ones first.

        Raises:
            SchemaError: of what was put into a copy, it cannot be told what it was.
        """
        nodes: dict[int, Node] = {}
        for path, copied in found.items():
            inner = path[len(at) :]
            holder = look_up(plain, inner)
            if copied.plain is not MISSING:
                there = _node_at(node, plain, inner, nodes)
                if there is not None and _alike(there.pick_typed(copied.typed), copied.node):
                    self._keep(there, holder, path, copied, root)
            self.taken[id(holder)] = holder, copied.plain

    def over(self, node: Node, old: Plain, new: Plain, at: Path, root: str) -> Plain:
        """What was taken, where something else stands: a whole value is the same object as that,
        and keeps what a newer program stored in it; see `keep_unknown`."""
        return keep_unknown(node, old, new, at, root=root, known=self.taken)

    def _keep(self, node: Node, plain: Plain, at: Path, copied: Copied, root: str) -> None:
        kept = keep(node, copied.plain, plain, at, root, self.taken)
        if type(kept) is list:
            plain[:] = kept
        elif kept is not plain:
            plain.clear()
            plain.update(kept)


def _node_at(node: Node, plain: Plain, path: Path, picked: dict[int, Node]) -> Node | None:
    """The node of a place in a plain value; None where its type shows none.

    Args:
        picked: that of each container on the way, by its identity; to find it may mean to build it.
    """
    for key in path:
        mark = id(plain)
        if mark not in picked:
            picked[mark] = node.pick(plain)
        child = picked[mark].child(key)
        if child is None:
            return None
        node, plain = child, plain[key]
    return node


def _alike(node: Node, other: Node) -> bool:
    """Whether both stand for the same class, so that both know the same fields."""
    if isinstance(node, ObjectNode) and isinstance(other, ObjectNode):
        return node.face.cls is other.face.cls
    return type(node) is type(other)


_CONTAINERS = frozenset({dict, list, tuple})
