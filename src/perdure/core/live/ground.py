"""The base of planning: the live object, ops and plain tree, and how they are compared and kept.

The live object is only read. Ops and plain tree may change; `undo` notes how to take that back.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.core.live.append_plan import holds
from perdure.core.live.drift import REORDERED, Drift, compare, drift_of
from perdure.core.live.shadow import ObjectShadow, Shadow
from perdure.core.types.kept_whole import check_turned
from perdure.core.types.nodes import Node, Walker, isolate
from perdure.core.types.normal_form import fields_as_stored, in_normal_form
from perdure.core.types.objects import ObjectNode, is_default
from perdure.core.types.unions import UnionNode, keeps_class, may_be_another
from perdure.core.types.unknown_fields import of_which_class
from perdure.core.values import ops as ops_module
from perdure.core.values.ops import AT_A_KEY, Delete, Op, Set
from perdure.core.values.plain_values import SCALARS, Path, Plain, format_path, look_up, same
from perdure.core.values.shifted_places import Paths
from perdure.errors import Drifted, SchemaError, Unstorable
from perdure.missing import MISSING


class Ground:
    """The state of one plan in the making."""

    def __init__(
        self, node: Node, typed: Any, plain: Plain, ops: list[Op], inverses: list[Op], root: str
    ) -> None:
        self.node = node
        self.plain = plain
        self.ops = ops
        self.count = len(ops)  # as they were given; validation may add some
        self.inverses = inverses
        self.name = root
        self.typed = typed
        self.paths = Paths(list(ops))
        self._reached: dict[Path, list[int]] | None = None
        self.shadows: dict[int, Shadow] = {}
        self.built: dict[int, Any] = {}  # what this plan built: it cannot have drifted
        self.settled: set[int] = set()  # built from the final plain tree: later ops are in it
        self.undo: list[tuple[Any, Any, Any]] = []
        self.turned: list[SchemaError] = []  # see `TypedPlan`

    def value(self, node: Node, plain: Plain, path: Path) -> tuple[Any, Plain]:
        """Returns the typed value and its plain form: `plain` itself if that is in normal form."""
        value, fixed = in_normal_form(node, plain, path, self.name)
        self.own(value)
        return value, fixed

    def own(self, value: Any) -> None:
        if type(value) not in SCALARS:  # small ints and such are the same object everywhere
            self.built[id(value)] = value

    def forget(self, value: Any) -> None:
        """Drops the shadow of a replaced value: it need not be valid any more."""
        shadow = self.shadows.pop(id(value), None)
        if shadow is not None:
            for kid in shadow.kids.values():
                self.forget(kid.value)

    def fix_attribute(self, op: Set, value: Plain) -> None:
        self.undo.append((op, "value", op.value))
        op.value = value

    def fix_plain(self, path: Path, index: int, value: Plain) -> None:
        final = self.paths.final(path, index)
        if final:
            self._put_plain(final, value)

    def _put_plain(self, final: Path, value: Plain) -> None:
        parent, key = look_up(self.plain, final[:-1]), final[-1]
        old = parent.get(key, MISSING) if type(parent) is dict else parent[key]
        self.undo.append((parent, key, old))
        parent[key] = value

    def write(self, shadow: Shadow, name: Any, index: int, value: Plain) -> None:
        """Brings ops and plain tree in step with the value that validation made of a field."""
        op = self.ops[index] if index >= 0 else None
        if isinstance(op, Set) and op.path[-1] == name:
            self.fix_attribute(op, value)
            self.fix_plain(op.path, index, value)
            return
        base = self.paths.final(shadow.path, shadow.at)
        if base is not None:
            self.set_last((*base, name), value)

    def set_last(self, final: Path, value: Plain) -> None:
        """Adds one op behind all others, in their coordinates, and applies it to the plain tree."""
        extra = Set(final, value)
        self.ops.append(extra)
        inverse = ops_module.invert(self.plain, extra)
        if isinstance(inverse, Set):  # the very one: a draft that is taken back goes on in it
            inverse.value = look_up(self.plain, final)
        self.inverses.append(ops_module.TORN)
        self._put_plain(final, value)
        self.inverses[-1] = inverse

    # Changes by several ops. Each op continues from what the one before it left in the log, so only
    # the final value is validated: no op builds on what validation makes of it.

    def brought(self, node: Node, plain: Plain, path: Path, index: int) -> tuple[Any, Plain]:
        """Like `value`, for a value that op number `index` puts at a path."""
        try:
            value, fixed = self.value(node, plain, path)
        except SchemaError:
            if not self.goes_on(path, index):
                raise
        else:
            if fixed is plain or not self.goes_on(path, index):
                return value, fixed
        if type(plain) in SCALARS:
            return plain, plain
        final = self.paths.final(path, index)
        if final is not None:
            return self.settle(node, final), plain
        value = isolate(plain)  # what goes again need not be legal
        self.own(value)
        self.settled.add(id(value))
        return value, plain

    def goes_on(self, path: Path, index: int) -> bool:
        """True if an op after number `index` changes, replaces or removes the value at the path."""
        if index + 1 == self.count:
            return False
        final = self.paths.final(path, index)
        return final is None or self._last_at(final) > index

    def settle(self, node: Node, final: Path) -> Any:
        """Returns the typed value at a place after all ops: those inside of it included."""
        plain = look_up(self.plain, final)
        value, fixed = self.value(node, plain, final)
        if fixed is not plain:
            self.set_last(final, fixed)
        self.settled.add(id(value))
        return value

    def _last_at(self, final: Path) -> int:
        """Returns the number of the last op that goes into the value at a final place, or edits the
        scalar there."""
        found = self._ops_at(final)
        return found[-1] if found else -1

    def _ops_at(self, final: Path) -> list[int]:
        if self._reached is None:
            self._reached = {}
            for index, op in enumerate(self.ops[: self.count]):
                inside = op.path[:-1] if isinstance(op, Set | Delete) else op.path
                place = self.paths.final(inside, index)
                while place is None and inside:  # it goes again: what it was in may stay
                    inside = inside[:-1]
                    place = self.paths.final(inside, index)
                if place is not None:
                    for depth in range(len(place) + 1):
                        self._reached.setdefault(place[:depth], []).append(index)
        return self._reached.get(final, [])

    def passing(self) -> Any:
        """Returns a stand-in for a value that ops change and later ops take away."""
        value = object()
        self.own(value)
        self.settled.add(id(value))
        return value

    # Drift

    def check_rebuilt(self, node: Node, value: Any, final: Path, index: int) -> None:
        """Checks that a union's member, which is rebuilt after op number `index`, was what the log
        says before it: a change of it in memory only would be lost.

        Args:
            final: where it is in the end.
        """
        shadow = self.shadows.get(id(value))
        if not isinstance(node, UnionNode) or id(value) in self.built:
            return
        if shadow is not None and shadow.dirty:
            return  # ops in front of this one changed it, and looked at what they touched
        plain, depth = isolate(look_up(self.plain, final)), len(final)
        for at in reversed(self._ops_at(final)):
            op, inverse = self.ops[at], self.inverses[at]
            if at < index:
                break
            if len(op.path) > depth or type(op) not in AT_A_KEY:
                inside = replace(inverse, path=inverse.path[depth:])
                plain = ops_module.apply(plain, ops_module.own(inside))
        for one in self._drift(node, value, plain, final):
            if one.reason != REORDERED:  # taking a deletion back puts its key last
                raise self.drifted(final)

    def check_turned(self, node: Node, old: Any, given: Plain, new: Any, final: Path) -> None:
        """Notes a rebuilt value that differs from what a draft shows there; see `check_turned`.

        Args:
            given: the plain value, as the ops left it.
        """
        try:
            check_turned(node, type(old), given, new, final, self.name)
        except Unstorable as error:
            self.turned.append(error)

    def check_class(self, shadow: Shadow, key: Any, old: Plain, new: Plain) -> None:
        """Notes a field that an object gets or loses, or a value of it, which may make the object
        one of another class to a newer program; see `may_be_another`."""
        node = shadow.node
        final = self.paths.final(shadow.path, shadow.at) if shadow.ambiguous else None
        if final is None or not isinstance(node, ObjectNode):
            return
        plain = look_up(self.plain, final)
        if all(map(node.knows, plain)) or not may_be_another(shadow.declared, plain):
            return
        if old is MISSING or new is MISSING or not keeps_class(shadow.declared, key, old, new):
            self.turned.append(of_which_class(final, self.name))

    def get(self, shadow: Shadow, key: Any, path: Path) -> Any:
        try:
            return shadow.get(key)
        except (LookupError, TypeError, AttributeError) as error:
            raise self.drifted(path) from error

    def expect(self, shadow: Shadow, node: Node, key: Any, inverse: Op) -> None:
        """Raises Drifted unless the live value is what the log says: otherwise it was changed
        outside `edit`."""
        value = self.get(shadow, key, inverse.path)
        if isinstance(inverse, Delete):
            fixed = True
            if isinstance(shadow.node, ObjectNode) and value is not MISSING:
                field = shadow.node.fields.get(key)
                fixed = field is None or field.default_is_fixed
                if field is not None and value is not MISSING and id(value) not in self.built:
                    taken = node.plain(self.final(value), inverse.path, Walker(root=self.name))
                    if not fixed or is_default(shadow.node, key, taken):
                        return
            if value is not MISSING and id(value) not in self.built:
                raise self.drifted(inverse.path)
        elif isinstance(inverse, Set):
            self.same(node, value, inverse.value, inverse.path)

    def same(self, node: Node, typed: Any, plain: Plain, path: Path) -> None:
        if id(typed) in self.built:
            return
        shadow = self.shadows.get(id(typed))
        if shadow is not None and shadow.dirty:
            return  # ops in front of this one changed it, and looked at what they touched
        if holds(node, typed, plain):
            return
        if typed is MISSING or self._drift(node, typed, plain, path):
            raise self.drifted(path)

    def _drift(self, node: Node, typed: Any, plain: Plain, path: Path) -> list[Drift]:
        """Returns the differences between memory and log that are not as the types read the log."""
        try:
            return drift_of(node, typed, plain, path, deep=False, root=self.name)
        except SchemaError:  # the types do not read it
            return list(compare(node, typed, plain, path, deep=False, root=self.name))

    def final(self, value: Any) -> Any:
        """Returns a live container as it will be; the container itself if nothing in it changes."""
        shadow = self.shadows.get(id(value))
        if shadow is None or not shadow.dirty:
            return value
        preview = shadow.preview()
        if not any(kid.dirty for kid in shadow.kids.values()):
            return preview
        if isinstance(shadow, ObjectShadow):
            for name in shadow.node.fields:
                item = shadow.get(name)
                if id(item) in shadow.kids:
                    shadow.node.face.put(preview, name, self.final(item))
        elif type(preview) is list:
            return [self.final(item) if id(item) in shadow.kids else item for item in preview]
        elif type(preview) is dict:
            return {key: self.final(item) for key, item in preview.items()}
        return preview

    def drifted(self, path: Path) -> Drifted:
        return Drifted(
            "it was changed outside edit",
            target=self.text(path),
            hint="agent.state was changed outside edit; call agent.refresh() to drop it, "
            "or make the change inside agent.edit()",
        )

    def text(self, path: Path) -> str:
        return format_path(path, self.name)

    def normalise(self, shadow: ObjectShadow, made: dict[str, Any]) -> list[str]:
        """Logs the values that validation gave fields in place of those that they were set to.
        Returns the names of those that are not the same in the log."""
        final = self.paths.final(shadow.path, shadow.at)
        if final is None:
            return []
        stored, taken = look_up(self.plain, final), self.fields_taken(shadow.node, made, final)
        fixed = fields_as_stored(shadow.node, stored, taken, final, self.name)
        for name, plain in fixed.items():
            self.check_class(shadow, name, stored.get(name, MISSING), plain)
            index = shadow.ops.get(name, -1)
            self.write(shadow, name, index, plain)
            shadow.put(name, made[name], index)
        for name, plain in taken.items():
            if name not in fixed and self._shows_another(
                shadow, name, made[name], plain, (*final, name)
            ):
                shadow.put(name, made[name], shadow.ops.get(name, -1))
        return [*fixed]

    def fields_taken(
        self, node: ObjectNode, fields: dict[str, Any], final: Path
    ) -> dict[str, Plain]:
        """Returns the typed values of fields of an object as plain data."""
        return {
            name: child.plain(item, (*final, name), Walker(root=self.name))
            for name, item in fields.items()
            if (child := node.child(name)) is not None
        }

    def _shows_another(
        self, shadow: ObjectShadow, name: str, made: Any, plain: Plain, path: Path
    ) -> bool:
        """True if the live object has another value than the log in a field: a hook gave it one
        earlier, and makes of it now what is stored."""
        live, child = shadow.get(name), shadow.node.child(name)
        if live is made or live is MISSING or child is None:
            return live is not made
        if type(live) in SCALARS:
            return type(made) is not type(live) or not same(live, made)
        try:
            shown = child.plain(self.final(live), path, Walker(root=self.name))
        except SchemaError:
            return False  # changed outside `edit`
        return not same(shown, plain)


def put_back(target: Any, key: Any, value: Any) -> None:
    if isinstance(target, dict | list):
        if value is MISSING:
            del target[key]
        else:
            target[key] = value
    else:
        setattr(target, key, value)


def replace_content(target: Plain, value: Plain) -> None:
    """Gives a plain root other content in place, so that everyone who holds it sees the change."""
    if type(target) is dict and type(value) is dict:
        kept = dict(value)
        target.clear()
        target.update(kept)
    elif type(target) is list and type(value) is list:
        target[:] = list(value)
