"""Keeps a live typed object in step with ops: checks them, plans the change, applies it.

Planning does not change the live object; applying cannot fail. Both cost what changed (I9).
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from perdure.core.live.append_plan import TypedPlan
from perdure.core.live.ephemeral import carry_over
from perdure.core.live.ground import Ground, put_back, replace_content
from perdure.core.live.overruled import refuse_overruled
from perdure.core.live.shadow import (
    DictShadow,
    ListShadow,
    ObjectShadow,
    SetShadow,
    Shadow,
    shadow_of,
)
from perdure.core.types.classes import PydanticFace
from perdure.core.types.derived_fields import derived, untouched, without
from perdure.core.types.kept_whole import check_parts
from perdure.core.types.nodes import DictNode, LeafNode, Node, Walker, isolate
from perdure.core.types.normal_form import fields_as_stored, restless
from perdure.core.types.objects import UNKNOWN_KEYS, ObjectNode
from perdure.core.types.unions import UnionNode
from perdure.core.values import ops as ops_module
from perdure.core.values.ops import (
    AT_A_KEY,
    Append,
    Delete,
    Increment,
    Move,
    Op,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
    add,
)
from perdure.core.values.plain_values import SCALARS, Path, Plain, look_up, same
from perdure.errors import Drifted, SchemaError
from perdure.missing import MISSING
from perdure.system.user_errors import of_code

_BEGIN = itemgetter(0)
"""Of a change in the log of a `ListShadow`."""


class _UnseenError(Exception):
    """The op is at a place that the type does not know, or that is already settled."""


class _OpaqueError(Exception):
    """The type has no parts where the op goes in: the value is rebuilt from this depth on."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


class Planner(Ground):
    """Makes one plan. `ops` and `inverses` are changed where validation normalises values."""

    def run(self) -> TypedPlan:
        """Plans all ops.

        Raises:
            SchemaError, Drifted: see `Schema.plan`. Ops and plain tree are restored.
        """
        try:
            for index in range(self.count):
                self._one(index, self.ops[index])
            self._finish()
        except BaseException:
            self.inverses.append(ops_module.TORN)
            for target, key, old in reversed(self.undo):
                put_back(target, key, old)
            del self.ops[self.count :], self.inverses[self.count :]
            raise
        normalises = bool(self.undo) or len(self.ops) > self.count
        return TypedPlan(self.typed, list(self.shadows.values()), normalises, self.turned)

    # One op

    def _one(self, index: int, op: Op) -> None:
        at_parent = type(op) in AT_A_KEY
        if at_parent and not op.path:
            if isinstance(op, Set):
                self._replace_root(op if index + 1 == self.count else None)
            else:
                self._rebuild((), index)
            return
        place = op.path[:-1] if at_parent else op.path
        try:
            shadow = self._resolve(place, index)
            try:
                self._change(shadow, index, op)
            except Drifted:
                raise
            except SchemaError:
                if not shadow.ambiguous:
                    raise
                raise _OpaqueError(len(place)) from None
        except _UnseenError:
            return
        except _OpaqueError as opaque:
            self._rebuild(op.path[: opaque.depth], index)

    def _change(self, shadow: Shadow, index: int, op: Op) -> None:
        match op:
            case Set():
                self._set(shadow, index, op)
            case Delete():
                self._delete(shadow, index, op)
            case TextSplice() | Increment():
                self._edit_scalar(shadow, index, op)
            case Append() | Splice() | Move():
                if not isinstance(shadow, ListShadow):
                    raise self.drifted(op.path)
                self._change_list(shadow, index, op)
            case SetAdd() | SetRemove():
                if not isinstance(shadow, SetShadow):
                    raise self.drifted(op.path)
                self._change_set(shadow, index, op)

    def _resolve(self, path: Path, index: int) -> Shadow:
        """Returns the shadow of the container at a path, as it is before op number `index`."""
        shadow = self._shadow(self.typed, self.node, None, (), index)
        for depth, key in enumerate(path):
            node = shadow.node.child(key)
            if node is None:
                if shadow.ambiguous:
                    raise _OpaqueError(depth)
                raise _UnseenError
            value = self.get(shadow, key, path[: depth + 1])
            if value is MISSING:
                raise self.drifted(path[: depth + 1])
            shadow = self._shadow(value, node, shadow, path[: depth + 1], index)
        return shadow

    def _shadow(
        self, value: Any, node: Node, parent: Shadow | None, path: Path, index: int
    ) -> Shadow:
        if id(value) in self.settled:
            raise _UnseenError
        shadow = self.shadows.get(id(value))
        if shadow is None:
            if isinstance(node, UnionNode) and not self._stays(node, value, path, index):
                raise _OpaqueError(len(path))
            picked = node.pick_typed(value)
            made = shadow_of(value, picked)
            if made is None:
                if not isinstance(picked, LeafNode | UnionNode) or parent is None:
                    raise self.drifted(path)
                raise _OpaqueError(len(path))
            shadow = self.shadows[id(value)] = made
            shadow.declared = node
            if parent is not None:
                parent.kids[id(value)], shadow.holder = shadow, parent.node
        shadow.path, shadow.at = path, index - 1
        return shadow

    def _stays(self, node: UnionNode, value: Any, path: Path, index: int) -> bool:
        """True if the container is of the same member of the union after all ops. Only then is it
        changed in place: a reader of the log chooses the member by the whole value."""
        if type(value) in SCALARS:
            return True
        final = self.paths.final(path, index - 1)
        if final is None:
            return node.member(value) is not None  # it goes
        return node.stays(value, look_up(self.plain, final), final, self.name)

    def _rebuild(self, path: Path, index: int) -> None:
        """Rebuilds the value at a path from the final plain tree."""
        final = self.paths.final(path, index)
        if not path:
            if final is not None:
                old = self.typed
                given = isolate(self.plain)
                self.check_rebuilt(self.node, old, final, index)
                self._replace_root(None)
                self.check_turned(self.node, old, given, self.typed, final)
            return
        shadow = self._resolve(path[:-1], index)
        node = shadow.node.child(path[-1])
        if node is None:
            return
        old = shadow.get(path[-1])
        if final is None:
            value = self.passing()
        else:
            self.check_rebuilt(node, old, final, index)
            given = look_up(self.plain, final)
            value = self.settle(node, final)
            self.check_turned(node, old, given, value, final)
            carry_over(node, old, value)
        self.forget(old)
        shadow.put(path[-1], value, index)

    def _replace_root(self, op: Set | None) -> None:
        """Replaces the root with the op's value, or, if op is None, with the result of all ops."""
        old, plain = self.typed, self.plain if op is None else op.value
        self.typed, fixed = self.value(self.node, plain, ())
        if op is None:
            self.settled.add(id(self.typed))
        if fixed is not plain:
            if op is None:
                op = Set((), plain)
                self.ops.append(op)
                self.inverses.append(ops_module.invert(plain, op))
            self.fix_attribute(op, fixed)
            replace_content(self.plain, fixed)
        self.shadows.clear()
        carry_over(self.node, old, self.typed)

    def _set(self, shadow: Shadow, index: int, op: Set) -> None:
        key = op.path[-1]
        node = shadow.node.child(key)
        if node is None:
            raise self._beyond(shadow, op.path)
        if isinstance(shadow, DictShadow) and isinstance(shadow.node, DictNode):
            # A draft has checked the key; nobody has where the op comes of a log, or a comparison.
            free = type(key) is str and shadow.node.texts_stay
            if not free and shadow.get(key) is MISSING:
                shadow.node.key.build(key, op.path, self.name)
        self.expect(shadow, node, key, self.inverses[index])
        value, fixed = self.brought(node, op.value, op.path, index)
        if fixed is not op.value:
            self.fix_attribute(op, fixed)
            self.fix_plain(op.path, index, fixed)
        self.check_class(shadow, key, getattr(self.inverses[index], "value", MISSING), op.value)
        self.forget(shadow.get(key))
        shadow.put(key, value, index)

    @staticmethod
    def _beyond(shadow: Shadow, path: Path) -> Exception:
        """Returns what becomes of an op at a key that is no field: an object whose tag it changes
        is built anew."""
        tag = shadow.node.face.tag if isinstance(shadow.node, ObjectNode) else None
        is_tag = tag is not None and path[-1] == tag[0]
        UNKNOWN_KEYS.met = object()
        return _OpaqueError(len(path) - 1) if is_tag else _UnseenError()

    def _delete(self, shadow: Shadow, index: int, op: Delete) -> None:
        key = op.path[-1]
        node = shadow.node.child(key)
        if node is None:
            raise self._beyond(shadow, op.path)
        self.expect(shadow, node, key, self.inverses[index])
        value = MISSING
        if isinstance(shadow.node, ObjectNode) and key in shadow.node.fields:
            field = shadow.node.fields[key]
            if field.default is not None:
                value = shadow.node.default(key)
                self.own(value)
            elif field.required_key and not self.goes_on(op.path, index):
                raise SchemaError("a required field cannot be deleted", target=self.text(op.path))
        self.check_class(shadow, key, getattr(self.inverses[index], "value", MISSING), MISSING)
        self.forget(shadow.get(key))
        shadow.put(key, value, index)

    def _edit_scalar(self, shadow: Shadow, index: int, op: TextSplice | Increment) -> None:
        key = op.path[-1]
        node = shadow.node.child(key)
        if node is None:
            raise _UnseenError
        value = self.get(shadow, key, op.path)
        try:
            old = node.plain(value, op.path, Walker(root=self.name))
            if isinstance(op, Increment):
                new = add(old, op.by)
            else:
                end = op.index + op.removed
                gone = getattr(self.inverses[index], "text", None)
                if type(old) is not str or (gone is not None and old[op.index : end] != gone):
                    raise self.drifted(op.path)
                new = old[: op.index] + op.text + old[end:]
        except (TypeError, ArithmeticError) as error:
            raise self.drifted(op.path) from error
        if self.goes_on(op.path, index):
            shadow.put(key, new, index)
            return
        final = self.paths.final(op.path, index)
        if final is None or not same(look_up(self.plain, final), new):
            raise self.drifted(op.path)
        typed, fixed = self.value(node, new, op.path)
        shadow.put(key, typed, index)
        if fixed is not new:
            self.set_last(final, fixed)

    def _change_list(self, shadow: ListShadow, index: int, op: Append | Splice | Move) -> None:
        item = shadow.node.child(0)
        assert item is not None
        if isinstance(op, Move):
            value = shadow.get(op.source)
            if value is MISSING or not 0 <= op.target < shadow.count:
                raise self.drifted(op.path)
            shadow.splice(op.source, 1, [])
            shadow.splice(op.target, 0, [value])
            return
        start, removed = (shadow.count, 0) if isinstance(op, Append) else (op.index, op.removed)
        inverse = self.inverses[index]
        if start + removed > shadow.count:
            raise self.drifted(op.path)
        if isinstance(inverse, Splice):
            if inverse.index != start:
                raise self.drifted(op.path)
            for offset, old in enumerate(inverse.values):
                current = shadow.get(start + offset)
                self.same(item, current, old, (*op.path, start + offset))
        values = []
        for offset, plain in enumerate(op.values):
            path = (*op.path, start + offset)
            value, fixed = self.brought(item, plain, path, index)
            if fixed is not plain:
                self.undo.append((op.values, offset, plain))
                op.values[offset] = fixed
                self.fix_plain(path, index, fixed)
            values.append(value)
        if removed:
            for gone in shadow.items(start, removed):
                self.forget(gone)
        shadow.splice(start, removed, values)

    def _change_set(self, shadow: SetShadow, index: int, op: SetAdd | SetRemove) -> None:
        item = shadow.node.child(0) or shadow.node
        adding = isinstance(op, SetAdd)
        known = getattr(self.inverses[index], "members", [])
        for plain in known:
            if shadow.has(item.build(plain, op.path, self.name)) is adding:
                raise self.drifted(op.path)
        for plain in op.members:
            shadow.put(item.build(plain, op.path, self.name), adding, index)

    # The whole

    def _finish(self) -> None:
        deepest_first = sorted(self.shadows.values(), key=lambda one: -len(one.path))
        for shadow in deepest_first:
            self._check_place(shadow, shadow.node)
            if shadow.declared is not shadow.node and not _is_asked_by_holder(shadow):
                self._check_place(shadow, shadow.declared)
            if isinstance(shadow, ListShadow):
                self._check_list(shadow)
            elif isinstance(shadow, ObjectShadow):
                self._check_object(shadow)

    def _check_place(self, shadow: Shadow, node: Node) -> None:
        """Refuses a container that its place's conditions (limits, validators of it or of an item)
        would not accept from the log."""
        size = shadow.size()
        problem = None if size is None else node.limits.problem(size)
        if problem is not None and shadow.changed_itself:
            raise SchemaError(problem, target=self.text(shadow.path))
        if node.limits.judged and shadow.dirty and not self._reads_back(shadow, node):
            raise SchemaError(
                "its validator changes it to another value",
                target=self.text(shadow.path),
                hint="assign a whole new value, which becomes what the validator makes of it",
            )

    def _reads_back(self, shadow: Shadow, node: Node) -> bool:
        """Returns True if a reader of the log gets the same value.

        Raises:
            SchemaError: the value cannot be read.
        """
        final = self.paths.final(shadow.path, shadow.at)
        if final is None:
            return True
        plain = look_up(self.plain, final)
        value, fixed = self.value(node, plain, shadow.path)
        if fixed is not plain:
            return False
        if not isinstance(shadow, ObjectShadow):
            # What is shown is made of its parts; the place may make others of the same plain data.
            check_parts(shadow.node, plain, value, shadow.path, self.name)
        return True

    def _check_list(self, shadow: ListShadow) -> None:
        """Checks a list's length, and the last item before all changes, against the log."""
        final = self.paths.final(shadow.path, shadow.at)
        if final is None or not shadow.changed_itself:
            return
        plain = look_up(self.plain, final)
        if type(plain) is not list or len(plain) != shadow.count:
            raise self.drifted(shadow.path)
        last, item = min(map(_BEGIN, shadow.log)) - 1, shadow.node.child(0)
        if last >= 0 and item is not None:
            self.same(item, shadow.value[last], plain[last], (*shadow.path, last))

    def _check_object(self, shadow: ObjectShadow) -> None:
        """Runs the class's own validation if something that it looks at has changed."""
        face = shadow.node.face
        if face.checks_whole and shadow.dirty:
            self._check_whole(shadow)
        elif isinstance(face, PydanticFace) and (shadow.changes or face.looks_inside):
            self._check_fields(shadow, face)

    def _check_whole(self, shadow: ObjectShadow) -> None:
        """Makes the object that a reader of the log gets, on which its class's hooks run: what they
        refuse, nobody could read, and what they change is committed along.

        Such code may change what it is given in place, so it never gets a part of the live object.
        """
        final = self.paths.final(shadow.path, shadow.at)
        if final is None:
            return
        face, node, plain = shadow.node.face, shadow.node, look_up(self.plain, final)
        if face.late:  # what follows from other fields is made anew, if nothing came since
            again = {*untouched(plain, derived(node, shadow.value))} - shadow.changes.keys()
            plain = without(again, plain)
        try:
            made = node.build(plain, shadow.path, self.name)
        except SchemaError as error:
            raise SchemaError(error.problem, target=error.target) from error.__cause__
        shadow.made = made if face.has_private else None
        refuse_overruled(self, shadow, plain, final)
        shown = {
            name: item
            for name in {**node.fields, **plain, **face.extras(made)}
            if (item := face.get(made, name)) is not MISSING or name not in node.fields
        }
        fixed = self.normalise(shadow, shown)
        if fixed:
            stored = look_up(self.plain, final)
            read = node.build(stored, shadow.path, self.name)
            taken = self.fields_taken(node, {name: face.get(read, name) for name in fixed}, final)
            for name in fields_as_stored(node, stored, taken, final, self.name):
                raise restless((*shadow.path, name), self.name)

    def _check_fields(self, shadow: ObjectShadow, face: PydanticFace) -> None:
        """Runs the validators of the fields that changed, and of those that look inside."""
        node = shadow.node
        changed = [name for name, value in shadow.changes.items() if value is not MISSING]
        inside = [
            name
            for name in node.fields
            if name not in shadow.changes
            and (kid := shadow.kids.get(id(face.get(shadow.value, name))))
            and kid.dirty
        ]
        checked = changed + [name for name in inside if node.fields[name].validated]
        if not checked:
            return
        clone = face.clone(shadow.value)
        for name in {*changed, *inside}:
            face.put(clone, name, self.final(shadow.get(name)))
        before = {name: face.get(clone, name) for name in (*node.fields, *face.extras(clone))}
        try:
            face.check(clone, checked)
        except of_code() as error:
            raise node.engine.explain(error, shadow.path, self.name) from error
        shadow.made = clone if face.has_private else None
        made = {name: face.get(clone, name) for name in before | face.extras(clone)}
        made = {key: one for key, one in made.items() if one is not before.get(key, MISSING)}
        fixed = self.normalise(shadow, made)
        if fixed:
            self._check_rests(shadow, face, clone, fixed)

    def _check_rests(
        self, shadow: ObjectShadow, face: PydanticFace, clone: Any, names: list[str]
    ) -> None:
        """Checks that the values that validation made of fields stay the same when a reader
        validates them again."""
        node = shadow.node

        def taken() -> list[Plain]:
            return [
                (node.child(name) or node).plain(face.get(clone, name), (), Walker(root=self.name))
                for name in names
            ]

        first = taken()
        clone = face.clone(clone)
        try:
            face.check(clone, names)
        except of_code() as error:
            raise node.engine.explain(error, shadow.path, self.name) from error
        for name, one, other in zip(names, first, taken(), strict=True):
            if not same(one, other):
                raise restless((*shadow.path, name), self.name)


def _is_asked_by_holder(shadow: Shadow) -> bool:
    """True if the conditions of an object's place are asked where its holder is checked: a pydantic
    class runs the validators of a field, and they may change it."""
    holder = shadow.holder
    held = isinstance(holder, ObjectNode) and isinstance(holder.face, PydanticFace)
    return held and isinstance(shadow, ObjectShadow)
