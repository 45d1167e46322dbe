"""Objects that a hook of this program's class put elsewhere, found again by what they are.

A hook (a validator, `__post_init__`) may put an object under another key or into another list. What
a newer program stored in it goes along, where nothing else can be meant: one object went, and one
that is equal in all that this program knows came. Where objects came and one that went is none of
them, the hook may have changed it on its way: that is refused, because its newer fields would be
dropped. One that goes while none comes is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from perdure.core.types.nodes import AnyNode, ListNode, Node, TupleNode
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unknown_fields import gaps, known_part, of_one_kind, unknown
from perdure.core.values.codec import canonical
from perdure.core.values.plain_values import Path, Plain, format_path, same
from perdure.errors import PerdureError, SchemaError
from perdure.missing import MISSING

Part = tuple[Node, Plain, Plain, Path]
"""A place: its type, what is stored there (or MISSING), what the types make of it, its path."""


_TAKEN_AWAY = (
    "a hook of this program's class takes it away and puts others elsewhere; which of them it is "
    "cannot be told, and a newer program stored in it what this one does not know: "
)


def is_of_a_move(error: PerdureError) -> bool:
    """True if it says that a hook moved objects so that which is which cannot be told."""
    return error.problem.startswith(_TAKEN_AWAY)


class _Object(Struct, eq=False):
    """An object on one side.

    Attributes:
        declared: the type of its place; `node` is the class that it is of.
        partner: the one that stands at its place on the other side.
        inside: the objects in it.
        settled: it is known where it went to, or came from; or it lies in such a one.
    """

    declared: Node
    node: ObjectNode
    plain: dict[Any, Any]
    path: Path
    inside: list[_Object]
    partner: _Object | None = None
    steady: bool = False
    settled: bool = False

    def settle(self) -> None:
        self.settled = True
        for one in self.inside:
            one.settle()


_Mark = tuple[Any, bytes]
"""The class of an object, and all that this program knows of it."""


class Moves:
    """The objects of some places before and after the hooks ran.

    Attributes:
        found: those that went elsewhere: (type of the new place, as stored, as read, new path).
        fresh: those at whose place another one stood, which went elsewhere.
    """

    def __init__(self, parts: Sequence[Part], root: str) -> None:
        self.found: list[Part] = []
        self.fresh: list[Plain] = []
        self._root = root
        self._old: list[_Object] = []
        self._new: list[_Object] = []
        self._parts: dict[int, bytes] = {}
        stored = [(node, old) for node, old, _, _ in parts if old is not MISSING]
        if not any(next(unknown(node, old), None) for node, old in stored):
            return
        for node, old, new, path in parts:
            if old is MISSING:
                _collect(node, new, path, self._new)
            else:
                self._walk(node, old, new, path)
        self._match()
        self._check()

    def _walk(self, node: Node, old: Plain, new: Plain, at: Path) -> None:
        picked = node.pick(new)
        if isinstance(picked, AnyNode) or old is new:
            return
        if not of_one_kind(old, new, picked) or node.pick(old) is not picked:
            _collect(node, old, at, self._old)
            _collect(node, new, at, self._new)
        elif type(new) is dict:
            self._walk_dict(node, picked, old, new, at)
        elif isinstance(picked, TupleNode) and picked.rest is None:
            for index, one in enumerate(new):
                self._walk_child(picked, index, old[index], one, at)
        elif isinstance(picked, ListNode | TupleNode):
            item = picked.child(0)
            if item is not None:
                self._walk_items(item, old, new, at)

    def _walk_dict(
        self, declared: Node, node: Node, old: dict[Any, Any], new: dict[Any, Any], at: Path
    ) -> None:
        before, after = len(self._old), len(self._new)
        for key in {**old, **new}:
            self._walk_child(node, key, old.get(key, MISSING), new.get(key, MISSING), at)
        if isinstance(node, ObjectNode):
            was = _Object(declared, node, old, at, self._old[before:])
            comes = _Object(declared, node, new, at, self._new[after:], was)
            was.partner = comes
            was.steady = comes.steady = self._are_equal(node, old, new)
            self._old.append(was)
            self._new.append(comes)

    def _are_equal(self, node: ObjectNode, old: dict[Any, Any], new: dict[Any, Any]) -> bool:
        shown = {key: item for key, item in old.items() if node.knows(key)}
        return same(shown, new) or self._known(node, old) == self._known(node, new)

    def _known(self, node: Node, plain: Plain) -> bytes:
        if type(plain) is not dict:
            return known_part(node, plain)
        if id(plain) not in self._parts:
            self._parts[id(plain)] = known_part(node, plain)
        return self._parts[id(plain)]

    def _walk_child(self, node: Node, key: Any, old: Plain, new: Plain, at: Path) -> None:
        child = node.child(key)
        if child is None:
            return
        path = (*at, key)
        if old is not MISSING and new is not MISSING:
            self._walk(child, old, new, path)
        elif old is not MISSING:
            _collect(child, old, path, self._old)
        else:
            _collect(child, new, path, self._new)

    def _walk_items(self, item: Node, old: Sequence[Plain], new: Sequence[Plain], at: Path) -> None:
        """Goes through a list: items are matched as in a whole value, without refusing any."""
        equal: dict[bytes, tuple[list[int], list[int]]] = {}
        for side, items in enumerate((new, old)):
            for index, one in enumerate(items):
                equal.setdefault(self._known(item, one), ([], []))[side].append(index)
        pairs = sorted(pair for both in equal.values() for pair in zip(*both, strict=False))
        if [before for _, before in pairs] == sorted(before for _, before in pairs):
            for nows, befores in list(gaps(pairs, len(new), len(old))):
                if len(nows) == len(befores):
                    pairs += zip(nows, befores, strict=True)
        for now, before in pairs:
            self._walk(item, old[before], new[now], (*at, now))
        for index in {*range(len(old))} - {before for _, before in pairs}:
            _collect(item, old[index], (*at, index), self._old)
        for index in {*range(len(new))} - {now for now, _ in pairs}:
            _collect(item, new[index], (*at, index), self._new)

    def _match(self) -> None:
        """Finds those that came, equal to one that went."""
        groups: dict[_Mark, tuple[list[_Object], list[_Object]]] = {}
        for side, objects in enumerate((self._old, self._new)):
            for one in objects:
                if not one.steady:
                    groups.setdefault(self._mark(one), ([], []))[side].append(one)
        staying: dict[_Mark, list[_Object]] | None = None
        for mark in sorted(groups, key=lambda mark: -len(mark[1])):  # the outer ones first
            old, new = ([one for one in side if not one.settled] for side in groups[mark])
            if not old or not new or not any(map(_has_newer, old)):
                continue
            staying = self._staying() if staying is None else staying
            alike = [*old, *staying.get(mark, ())]
            if len(old) < len(new) or len({canonical(one.plain) for one in alike}) > 1:
                raise self._refused(next(one for one in old if _has_newer(one)))
            for was, comes in zip(old, new, strict=False):
                was.settle()
                comes.settle()
                self.found.append((comes.declared, was.plain, comes.plain, comes.path))
                if was.partner is not None and not was.partner.settled:
                    self.fresh.append(was.partner.plain)

    def _mark(self, one: _Object) -> _Mark:
        return one.node.face.cls, self._known(one.node, one.plain)

    def _staying(self) -> dict[_Mark, list[_Object]]:
        found: dict[_Mark, list[_Object]] = {}
        for one in self._old:
            if one.steady:
                found.setdefault(self._mark(one), []).append(one)
        return found

    def _check(self) -> None:
        """Refuses where one that went may be one that came."""
        taken = {id(one) for one in self.fresh}
        came = {
            one.node.face.cls
            for one in self._new
            if not one.settled and (one.partner is None or id(one.plain) in taken)
        }
        for one in self._old:
            stays = one.partner is not None and not one.partner.settled
            goes = not one.settled and not stays and one.node.face.cls in came
            if goes and not all(map(one.node.knows, one.plain)):
                raise self._refused(one)

    def _refused(self, one: _Object) -> SchemaError:
        fields = [str(path[-1]) for path in unknown(one.node, one.plain)]
        return SchemaError(
            _TAKEN_AWAY + ", ".join(fields),
            target=format_path(one.path, self._root),
            hint="give this program the newer class; or remove the hook (a validator, "
            "__post_init__)",
        )


def _collect(declared: Node, plain: Plain, at: Path, into: list[_Object]) -> None:
    """Notes all objects in a value that stands at a place where none of them stood."""
    node, first = declared.pick(plain), len(into)
    if isinstance(node, AnyNode) or type(plain) not in (dict, list, tuple):
        return
    items = plain.items() if type(plain) is dict else enumerate(plain)
    for key, item in items:
        child = node.child(key)
        if child is not None:
            _collect(child, item, (*at, key), into)
    if isinstance(node, ObjectNode):
        into.append(_Object(declared, node, plain, at, into[first:]))


def _has_newer(one: _Object) -> bool:
    return next(unknown(one.node, one.plain), None) is not None
