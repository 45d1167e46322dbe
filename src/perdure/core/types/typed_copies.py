"""Typed copies that a draft has given out: each is recognised when it is put back.

Who takes an object out of a draft, or copies it there, holds an instance of this program's class,
which does not show what a newer program stored in the object. The draft remembers that by the
copy's identity; also that there was nothing, so that the object gets nothing at its new place.
"""

from __future__ import annotations

from msgspec import Struct, field

from perdure.core.types.derived_fields import derive_anew, derived
from perdure.core.types.nodes import AnyNode, Copied, DictNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unknown_fields import Known, keep_own, keep_unknown
from perdure.core.values.plain_values import Path, Plain, copy, look_up
from perdure.missing import MISSING


class Copies(Struct):
    """The copies that one draft has given out, and those that it has taken back.

    Attributes:
        given: the objects, lists and dicts in copies, by identity.
        taken: the plain containers made from such copies; see `Known`.
        made: the same containers by identity, each with its copy.
        whole: what is in a copy of another draft, and is no copy itself, is matched by its place,
            too, as in a whole value. Else it has only what this program knows.
    """

    given: dict[int, Copied] = field(default_factory=dict)
    taken: Known = field(default_factory=Known)
    made: dict[int, tuple[Plain, object]] = field(default_factory=dict)
    whole: bool = False

    def note(self, node: Node, typed: object, plain: Plain, *, stays: bool) -> bool:
        """Remembers a copy that was just built from `plain`. Returns True if a newer program stored
        something in it. `stays`: `plain` cannot change."""
        if not self._note(node, typed, plain, newer=False):
            return False
        kept = plain if stays else copy(plain)
        return self._note(node, typed, kept, newer=True)

    def _note(self, node: Node, typed: object, plain: Plain, *, newer: bool) -> bool:
        """Remembers a copy and its parts. Returns True if a newer program stored something in
        it."""
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
            self.given[id(typed)] = Copied(
                typed,
                node,
                plain if newer else MISSING,
                derived(node, typed) if isinstance(node, ObjectNode) and node.face.late else {},
            )
        return found

    def settle(
        self, node: Node, plain: Plain, at: Path, found: dict[Path, Copied], root: str
    ) -> None:
        """Gives the parts of a value that are copies back what a newer program stored in them, and
        makes anew what their classes make of fields that were changed meanwhile.

        Args:
            node: of the value's place, which is `at`.
            plain: the value's plain form, just made; changed in place.
            found: the copies that were met in it, the inner ones first.

        Raises:
            SchemaError: the origin of something that was put into a copy is ambiguous.
        """
        nodes: dict[int, Node] = {}
        self.taken.here = {id(one.plain) for one in found.values() if one.plain is not MISSING}
        for path, copied in found.items():
            inner = path[len(at) :]
            holder = look_up(plain, inner)
            if copied.plain is not MISSING or copied.derived:
                there = _node_at(node, plain, inner, nodes)
                picked = None if there is None else there.pick_typed(copied.typed)
                if isinstance(picked, AnyNode):
                    there = picked = copied.node  # what stands there says nothing of it
                if there is not None and picked is not None and _alike(picked, copied.node):
                    self._bring_in_step(there, holder, path, copied, root)
            self.taken[id(holder)] = holder, copied.plain
            self.made[id(holder)] = holder, copied.typed

    def over(self, node: Node, old: Plain, new: Plain, at: Path, root: str) -> Plain:
        """Returns a taken value for a place where another one stands: a whole value is the same
        object as that one, and keeps what a newer program stored in it; see `keep_unknown`."""
        return keep_unknown(node, old, new, at, root=root, known=self.taken)

    def _bring_in_step(self, node: Node, plain: Plain, at: Path, copied: Copied, root: str) -> None:
        if copied.derived:
            assert isinstance(copied.node, ObjectNode)
            plain.update(derive_anew(copied.node, plain, copied.derived, at, root))
        if copied.plain is MISSING:
            return
        if not self.whole and id(copied.typed) not in self.given:
            for part in plain.values() if isinstance(plain, dict) else plain:
                if type(part) in _CONTAINERS:
                    self.taken.setdefault(id(part), (part, MISSING))
        kept = keep_own(node, copied.plain, plain, at, root, self.taken)
        if type(kept) is list:
            plain[:] = kept
        elif kept is not plain:
            plain.clear()
            plain.update(kept)


def _node_at(node: Node, plain: Plain, path: Path, picked: dict[int, Node]) -> Node | None:
    """Returns the node of a place in a plain value; None where its type has none.

    Args:
        picked: the nodes of containers on the way, by their identity; finding one may mean building
            the value.
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
    """True if both stand for the same class, and so know the same fields."""
    if isinstance(node, ObjectNode) and isinstance(other, ObjectNode):
        return node.face.cls is other.face.cls
    return type(node) is type(other)


_CONTAINERS = frozenset({dict, list, tuple})
