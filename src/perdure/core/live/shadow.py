"""Shadows: live containers as they will be once a plan is applied, without touching them until
then.

A shadow keeps the changes beside the container: it costs what changed, not what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.core.types.nodes import DictNode, Node
from perdure.core.types.objects import ObjectNode
from perdure.core.types.private_attributes import renew
from perdure.core.values.plain_values import Path
from perdure.missing import MISSING


class Shadow:
    """The changes of one container.

    Attributes:
        value: the live container.
        path, at: its place when op number `at` was planned.
        declared: the type of its place; of a union of classes, `node` is the one that it is of.
        holder: the type of the container that it is in; None of the root.
        kids: shadows of containers in it, by the identity of the live container.
    """

    def __init__(self, value: Any, node: Node) -> None:
        self.value = value
        self.node = node
        self.path: Path = ()
        self.at = -1
        self.declared = node
        self.holder: Node | None = None
        self.kids: dict[int, Shadow] = {}

    @property
    def ambiguous(self) -> bool:
        """True if it stands where a union leaves a choice of class."""
        return self.declared is not self.node and isinstance(self.node, ObjectNode)

    @property
    def changed_itself(self) -> bool:
        raise NotImplementedError

    @property
    def dirty(self) -> bool:
        return self.changed_itself or any(kid.dirty for kid in self.kids.values())

    def get(self, key: Any) -> Any:
        """Returns the typed value at a key as it will be, without changes inside of it; MISSING
        without one."""
        raise NotImplementedError

    def put(self, key: Any, value: Any, op: int) -> None:
        raise NotImplementedError

    def size(self) -> int | None:
        """Returns the number of items that it will have, for limits."""
        return None

    def preview(self) -> Any:
        """Returns a shallow copy with the changes."""
        raise NotImplementedError

    def apply(self) -> None:
        """Applies the changes to the live container."""
        raise NotImplementedError


class ObjectShadow(Shadow):
    node: ObjectNode

    def __init__(self, value: Any, node: Node) -> None:
        super().__init__(value, node)
        self.changes: dict[str, Any] = {}
        self.ops: dict[str, int] = {}
        self.made: Any = None
        """An instance on which the class's own code ran: its private attributes come along."""
        self._left: set[str] = set()
        """Keys of a TypedDict, or extra fields, that were taken out. One that comes back stands
        last."""

    @property
    def changed_itself(self) -> bool:
        return bool(self.changes)

    def get(self, key: Any) -> Any:
        if key in self.changes:
            return self.changes[key]
        return self.node.face.get(self.value, key)

    def put(self, key: Any, value: Any, op: int) -> None:
        face = self.node.face
        in_order = face.is_dict or (face.keeps_extra and key not in face.fields)
        if in_order and (value is MISSING or self.changes.get(key, 0) is MISSING):
            self._left.add(key)
            self.changes.pop(key, None)
        self.changes[key] = value
        self.ops[key] = op

    def preview(self) -> Any:
        clone = self.node.face.clone(self.value)
        self._write(clone)
        return clone

    def apply(self) -> None:
        self._write(self.value)

    def _write(self, target: Any) -> None:
        face = self.node.face
        for name in self._left:
            face.drop(target, name)
        for name, value in self.changes.items():
            if value is MISSING:
                face.drop(target, name)
            else:
                face.put(target, name, value)
        if self.made is not None:
            renew(target, self.made, face.forgotten)
        if not self.changes and not face.is_dict:
            face.forget_caches(target)


class DictShadow(Shadow):
    def __init__(self, value: Any, node: Node) -> None:
        super().__init__(value, node)
        self.overlay: dict[Any, Any] = {}
        self.log: list[tuple[Any, Any]] = []
        self.count = len(value)

    @property
    def changed_itself(self) -> bool:
        return bool(self.log)

    def _key(self, key: Any) -> Any:
        return self.node.typed_key(key) if isinstance(self.node, DictNode) else key

    def get(self, key: Any) -> Any:
        key = self._key(key)
        if key in self.overlay:
            return self.overlay[key]
        return self.value.get(key, MISSING)

    def put(self, key: Any, value: Any, op: int) -> None:
        before = self.get(key) is not MISSING
        key = self._key(key)
        self.count += (value is not MISSING) - before
        self.overlay[key] = value
        self.log.append((key, value))

    def size(self) -> int:
        return self.count

    def preview(self) -> Any:
        clone = dict(self.value)
        self._write(clone)
        return clone

    def apply(self) -> None:
        self._write(self.value)

    def _write(self, target: dict[Any, Any]) -> None:
        for key, value in self.log:  # in order, because the order of keys follows from it
            if value is MISSING:
                del target[key]
            else:
                target[key] = value


PIECES_MAX = 32
"""Of a list; each change looks through them. So many are put together."""


class ListShadow(Shadow):
    """A list as pieces of the live one and of new ones."""

    def __init__(self, value: Any, node: Node) -> None:
        super().__init__(value, node)
        self._pieces: list[tuple[list[Any], int, int]] = [(value, 0, len(value))]
        self.log: list[tuple[int, int, list[Any]]] = []
        """Of each change where it begins, how many items it takes out, and which it puts in."""
        self.count = len(value)

    @property
    def changed_itself(self) -> bool:
        return bool(self.log)

    def get(self, key: Any) -> Any:
        if 0 <= key < self.count:
            for items, start, stop in self._pieces:
                if key < stop - start:
                    return items[start + key]
                key -= stop - start
        return MISSING

    def items(self, index: int, count: int) -> list[Any]:
        return [self.get(one) for one in range(index, index + count)]

    def put(self, key: Any, value: Any, op: int) -> None:
        self.splice(key, 1, [value])

    def splice(self, index: int, removed: int, values: list[Any]) -> None:
        self.log.append((index, removed, values))
        if index == self.count:
            self._pieces.append((values, 0, len(values)))
            self.count += len(values)
            return
        front = list(self._cut(0, index))
        back = list(self._cut(index + removed, self.count))
        self._pieces = [*front, (values, 0, len(values)), *back]
        self.count += len(values) - removed
        if len(self._pieces) > PIECES_MAX:
            self._pieces = [(self.preview(), 0, self.count)]

    def _cut(self, low: int, high: int) -> Iterator[tuple[list[Any], int, int]]:
        at = 0
        for items, start, stop in self._pieces:
            first, last = max(low, at), min(high, at + stop - start)
            if first < last:
                yield items, start + first - at, start + last - at
            at += stop - start

    def size(self) -> int:
        return self.count

    def preview(self) -> Any:
        found: list[Any] = []
        for items, start, stop in self._pieces:
            found += items[start:stop]
        return found

    def apply(self) -> None:
        for index, removed, values in self.log:
            self.value[index : index + removed] = values


class SetShadow(Shadow):
    def __init__(self, value: Any, node: Node) -> None:
        super().__init__(value, node)
        self.overlay: dict[Any, bool] = {}
        self.log: list[tuple[Any, bool]] = []

    @property
    def changed_itself(self) -> bool:
        return bool(self.log)

    def put(self, key: Any, value: Any, op: int) -> None:
        """Adds a member (`value` is True) or removes it."""
        self.overlay[key] = value
        self.log.append((key, value))

    def has(self, member: Any) -> bool:
        return self.overlay.get(member, member in self.value)

    def preview(self) -> Any:
        return self._write(set(self.value))

    def size(self) -> int:
        there = sum(now - (member in self.value) for member, now in self.overlay.items())
        return len(self.value) + there

    def apply(self) -> None:
        self._write(self.value)

    def _write(self, target: set[Any]) -> set[Any]:
        for member, there in self.log:  # in order: an equal one may have taken another's place
            if there:
                target.add(member)
            else:
                target.discard(member)
        return target


def shadow_of(value: Any, node: Node) -> Shadow | None:
    """Returns a shadow of a live container of this node; None if it is not one, or is another
    node's."""
    kind = type(value)
    if isinstance(node, ObjectNode):
        return ObjectShadow(value, node) if type(value) is node.face.type else None
    if kind is dict:
        return DictShadow(value, node)
    if kind is list:
        return ListShadow(value, node)
    return SetShadow(value, node) if kind is set else None
