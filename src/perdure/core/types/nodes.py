"""The types of a state as a tree of nodes: each takes typed values apart and builds them again.

A node is made once for each annotation. `plain` walks a typed value into a plain one; `build` lets
the engine validate a plain value into a typed one; `child` and `pick` find the node further down.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, get_origin

from msgspec import field

from perdure.core.types.annotations import ItemLimits, unwrap
from perdure.core.types.exact_leaves import exact_kinds, exact_texts, fixed_zone
from perdure.core.types.validation import Engine, Marks
from perdure.core.values.base_values import StandIn
from perdure.core.values.plain_values import (
    SCALARS,
    CopyWalk,
    Path,
    Plain,
    changed,
    check_zone,
    format_path,
)
from perdure.errors import SchemaError, SharedValue, Unstorable
from perdure.system.cached import cached
from perdure.system.user_errors import check_own, of_code


class Copied(NamedTuple):
    """A typed copy of a container, or of an object, that a draft has given out.

    Attributes:
        typed: the copy.
        node: its type.
        plain: a copy of the stored value; MISSING where the types show all of it.
        derived: the fields that its class made of others, with what they held.
    """

    typed: Any
    node: Node
    plain: Plain
    derived: Mapping[str, Plain]


class Walker(CopyWalk):
    """One walk over a typed value.

    Attributes:
        classes: the class met at each place where a union leaves a choice.
        given: copies that may be met, by their identity.
        found: the places of those met; inner ones first.
        unsure: True if something met is missing in the plain form, and has to be compared.
    """

    classes: dict[Path, Any] = field(default_factory=dict)
    given: Mapping[int, Copied] | None = None
    found: dict[Path, Copied] = field(default_factory=dict)
    unsure: bool = False

    def leave(self, container: Any) -> None:
        at = self.open.pop(id(container))
        if self.given and id(container) in self.given:
            self.found[at] = self.given[id(container)]

    def other(self, value: Any, at: Path) -> Plain:
        place = getattr(type(value), "__perdure_place__", None)
        if place is not None:
            raise SharedValue(
                f"it already stands at {place(value)}",
                target=format_path(at, self.root),
                hint="a state is a tree; assign a copy: copy.deepcopy(…)",
            )
        return super().other(value, at)

    def lost(self, what: str, at: Path, hint: str) -> Unstorable:
        return Unstorable(what, target=format_path(at, self.root), hint=hint)


def isolate(value: Plain) -> Plain:
    """Returns a deep copy that shares no mutable container, not even one inside a tuple."""
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) is str else isolate(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) is str else isolate(item) for item in value]
    if kind is set:
        return set(value)
    if kind is tuple:
        return tuple(isolate(item) for item in value)
    return value


class Node:
    """The type of one place."""

    as_is = False  # a plain scalar here is its own typed value
    exact: frozenset[type] = frozenset()  # kinds of which every plain value is `stable`
    limits = ItemLimits()
    marks: Marks | None = None  # what a library asks of a value that is built of its parts

    def __init__(self, annotation: Any, engine: Engine, config: Mapping[str, Any] | None) -> None:
        self.annotation = annotation
        self.engine = engine
        self.config = config
        self.prepared: Any = None

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        """Returns a typed (or raw) value as a fresh plain one; checks kinds, not constraints.

        Raises:
            Unstorable, SharedValue: see `values.take`.
        """
        raise NotImplementedError

    def build(self, plain: Plain, at: Path = (), root: str = "state") -> Any:
        """Returns the typed value of a plain one; shares nothing with it.

        Raises:
            SchemaError: it does not fit; names each path.
        """
        if self.engine.piecewise:
            return self._put_together(plain, at, root)
        return self.engine.validate(self, self.prepare(plain), at, root)

    def build_stable(self, plain: Plain, at: Path, root: str) -> Any:
        """Returns the typed value of a plain one that is `stable`: it needs no copy."""
        if self.engine.piecewise:
            return self._put_together(plain, at, root)
        return self.engine.validate(self, plain, at, root)

    def _put_together(self, plain: Plain, at: Path, root: str) -> Any:
        built = self.assemble(plain, at, root)
        return built if self.marks is None else self.engine.validate(self.marks, built, at, root)

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        """Builds the typed value from its parts, for types that no library validates whole."""
        return self.engine.validate(self, isolate(plain), at, root)

    def unfit(self, plain: Plain, wanted: str, at: Path, root: str) -> SchemaError:
        found = type(plain).__name__
        return SchemaError(f"a {found} where a {wanted} should be", target=format_path(at, root))

    def check_limits(self, plain: Any, at: Path, root: str) -> None:
        problem = self.limits.problem(len(plain))
        if problem is not None:
            raise SchemaError(problem, target=format_path(at, root))

    def prepare(self, plain: Plain) -> Any:
        """Returns the engine's input: a copy without unknown fields, under the names it wants."""
        return isolate(plain)

    def stable(self, plain: Plain) -> bool:
        """True if building this value surely succeeds and gives one of the same plain form that
        shares nothing with it. A quick check: False only means that it has to be tried."""
        return False

    def all_stable(self, items: Sequence[Plain]) -> bool:
        """True if each of them is `stable`."""
        return all(map(self.stable, items))

    def child(self, key: Any) -> Node | None:
        """Returns the node of an item; None where the type has no such place."""
        return None

    def pick(self, plain: Plain) -> Node:
        """Returns the node of this plain value: a union's member, else this one."""
        return self

    def pick_typed(self, value: Any) -> Node:
        """Returns the node of this typed value."""
        return self

    def takes(self, kind: type) -> bool:
        """True if a plain value of this kind may stand here. May be True where it may not."""
        return True


class AnyNode(Node):
    """Plain kinds only: an instance here would not come back as what it is."""

    as_is = True

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        return walker.take(value, at)

    def build(self, plain: Plain, at: Path = (), root: str = "state") -> Any:
        return isolate(plain)

    def child(self, key: Any) -> Node | None:
        return self


class LeafNode(Node):
    """A value whose parts have no nodes. `members`: those of a union of such values."""

    members: Sequence[LeafNode] = ()

    def __init__(self, annotation: Any, engine: Engine, config: Any, kinds: Any) -> None:
        super().__init__(annotation, engine, config)
        self.kinds: frozenset[type] | None = kinds
        self.literals: list[Any] | None = None
        self.as_is = kinds is not None
        self.exact = exact_kinds(annotation, config)
        self._texts = exact_texts(annotation, config)
        declared = unwrap(annotation).type
        self.enum = declared if isinstance(declared, type) and issubclass(declared, Enum) else None

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        kind = type(value)
        if kind in SCALARS:
            if kind is dt.datetime or kind is dt.time:
                value = fixed_zone(value)
                check_zone(value, at, walker.root)
            return value
        if kind is self.enum:
            return walker.take(value.value, at)
        if isinstance(value, Enum) and not hasattr(kind, "__perdure_place__"):
            if value == value.value:
                return walker.take(value.value, at)
            if self.as_is:  # its value alone would come back, which is not equal to it
                raise walker.lost(f"a {kind.__qualname__} would not come back", at, _LEAF_HINT)
        if self.as_is or hasattr(kind, "__perdure_place__") or isinstance(value, StandIn):
            return walker.take(value, at)
        return self._dump(value, at, walker)

    def stable(self, plain: Plain) -> bool:
        kind = type(plain)
        return kind in self.exact or (kind is str and plain in self._texts)

    def all_stable(self, items: Sequence[Plain]) -> bool:
        if self._texts:
            return {str}.issuperset(map(type, items)) and self._texts.issuperset(items)
        return self.exact.issuperset(map(type, items))

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        if not self._in_parts:
            return super().assemble(plain, at, root)
        kind = type(plain)
        fitting = [one for one in self.members if one.takes(kind)]
        problem = self.unfit(plain, "member of the union", at, root)
        # An int stays one where a float may stand, too.
        for one in sorted(fitting, key=lambda one: kind is int and float in (one.kinds or ())):
            try:
                return one.build(plain, at, root)
            except SchemaError as error:
                problem = error
        raise problem

    @cached
    def _in_parts(self) -> bool:
        """True of a union of kinds that JSON cannot tell apart, which msgspec refuses."""
        return self.as_is and bool(self.members) and not self.engine.supports(self.annotation)

    def _dump(self, value: Any, at: Path, walker: Walker) -> Plain:
        """Returns the library's own dump, if the value built from it is equal (I12)."""

        def dumped() -> tuple[Plain, bool]:
            plain = Walker(root=walker.root).take(self.engine.dump(self, value), at)
            back = self.build(plain, at, walker.root)
            return plain, type(back) is type(value) and bool(back == value)

        try:
            plain, equal = dumped()
        except SharedValue:
            raise
        except of_code() as error:
            check_own(error, dumped)
            raise walker.lost(
                f"a {type(value).__module__}.{type(value).__qualname__} has no plain form: {error}",
                at,
                _LEAF_HINT,
            ) from error
        if not equal:
            raise walker.lost(f"a {type(value).__qualname__} would not come back", at, _LEAF_HINT)
        return plain

    def takes(self, kind: type) -> bool:
        return kind in self.kinds if self.kinds is not None else kind not in (list, dict, set)


_LEAF_HINT = "store what it is made of, or mark the field perdure.Ephemeral"


class ListNode(Node):
    """A list. `either`: a Sequence, where a tuple stays one."""

    def __init__(
        self, annotation: Any, engine: Engine, config: Any, item: Node, either: bool = False
    ) -> None:
        super().__init__(annotation, engine, config)
        self.item = item
        self.either = either

    def stable(self, plain: Plain) -> bool:
        return (
            type(plain) is list
            and get_origin(self.annotation) is list
            and self.item.all_stable(plain)
        )

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        kind = type(value)
        if kind is not list and kind is not tuple:
            return walker.take(value, at)
        walker.enter(value, at, frozen=kind is tuple)
        item = self.item
        taken = [item.plain(one, (*at, index), walker) for index, one in enumerate(value)]
        walker.leave(value)
        if kind is tuple:
            if self.either:
                return tuple(taken)
            walker.unsure = True
        return taken

    def prepare(self, plain: Plain) -> Any:
        if not self.takes(type(plain)):
            return isolate(plain)
        prepared = [self.item.prepare(one) for one in plain]
        return prepared if type(plain) is list else tuple(prepared)

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        if not self.takes(type(plain)):
            raise self.unfit(plain, "list", at, root)
        self.check_limits(plain, at, root)
        built = [self.item.build(one, (*at, index), root) for index, one in enumerate(plain)]
        return built if type(plain) is list else tuple(built)

    def child(self, key: Any) -> Node | None:
        return self.item

    def takes(self, kind: type) -> bool:
        return kind is list or (self.either and kind is tuple)


class DictNode(Node):
    def __init__(self, annotation: Any, engine: Engine, config: Any, key: Node, item: Node) -> None:
        super().__init__(annotation, engine, config)
        self.key = key
        self.item = item
        free = isinstance(key, AnyNode)
        self.texts_stay = free or (key.stable("") and getattr(key, "literals", None) is None)

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        if type(value) is not dict:
            return walker.take(value, at)
        walker.enter(value, at)
        taken = {}
        try:
            for key, one in value.items():
                plain_key = self.plain_key(key, at, walker)
                taken[plain_key] = self.item.plain(one, (*at, plain_key), walker)
        except RuntimeError as error:
            raise changed(error, at, walker.root) from error
        walker.leave(value)
        return taken

    def plain_key(self, key: Any, at: Path, walker: Walker) -> Any:
        if type(key) is str:
            return key
        return walker.key(self.key.plain(key, (*at, key), walker), at, key)

    def stored_key(self, key: Any, at: Path, walker: Walker) -> Any:
        """Returns the plain key for a user's key, in the form in which it will come back.

        Raises:
            SchemaError: it does not fit the type of the keys.
        """
        if type(key) is str and self.texts_stay:
            return key
        plain = self.plain_key(key, at, walker)
        if isinstance(self.key, AnyNode):
            return plain
        return self.plain_key(self.key.build(plain, (*at, key), walker.root), at, walker)

    def typed_key(self, key: Any) -> Any:
        return key if self.key.as_is else self.key.build(key)

    def prepare(self, plain: Plain) -> Any:
        if type(plain) is not dict:
            return isolate(plain)
        keys = plain if self.key.as_is else map(self.key.prepare, plain)
        return dict(zip(keys, map(self.item.prepare, plain.values()), strict=True))

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        if type(plain) is not dict:
            raise self.unfit(plain, "dict", at, root)
        self.check_limits(plain, at, root)
        return {
            self.key.build(key, (*at, key), root): self.item.build(one, (*at, key), root)
            for key, one in plain.items()
        }

    def child(self, key: Any) -> Node | None:
        return self.item

    def takes(self, kind: type) -> bool:
        return kind is dict


class SetNode(Node):
    """A set or frozenset (`kind`). `either`: a collections.abc.Set, where each stays what it is."""

    def __init__(
        self, annotation: Any, engine: Engine, config: Any, item: Node, kind: Any, either: bool
    ) -> None:
        super().__init__(annotation, engine, config)
        self.item = item
        self.kind = kind
        self.either = either

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        if type(value) not in (set, frozenset, list, tuple):
            return walker.take(value, at)
        kind = frozenset if self.either and type(value) is frozenset else self.kind
        walker.check_depth(at)
        try:
            return kind(self.member(one, at, walker) for one in value)
        except RuntimeError as error:
            raise changed(error, at, walker.root) from error

    def child(self, key: Any) -> Node | None:
        return self.item

    def prepare(self, plain: Plain) -> Any:
        ready = self.item.as_is or not self.takes(type(plain))
        return isolate(plain) if ready else type(plain)(map(self.item.prepare, plain))

    def member(self, value: Any, at: Path, walker: Walker) -> Any:
        return walker.member(self.item.plain(value, (*at, value), walker), at, value)

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        if not self.takes(type(plain)):
            raise self.unfit(plain, self.kind.__name__, at, root)
        self.check_limits(plain, at, root)
        return type(plain)(self.item.build(one, (*at, one), root) for one in plain)

    def takes(self, kind: type) -> bool:
        return kind is self.kind or (self.either and kind is frozenset)


class TupleNode(Node):
    """A tuple, a variadic one, or a NamedTuple (`cls`)."""

    def __init__(
        self,
        annotation: Any,
        engine: Engine,
        config: Any,
        items: list[Node],
        rest: Node | None,
        cls: Any = tuple,
    ) -> None:
        super().__init__(annotation, engine, config)
        self.items = items
        self.rest = rest
        self.cls = cls

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        if type(value) not in (tuple, list, self.cls):
            return walker.take(value, at)
        walker.check_depth(at)
        return tuple(
            node.plain(one, (*at, index), walker)
            if (node := self.child(index)) is not None
            else walker.take(one, (*at, index))
            for index, one in enumerate(value)
        )

    def prepare(self, plain: Plain) -> Any:
        if type(plain) is not tuple:
            return isolate(plain)
        return tuple(
            node.prepare(one) if (node := self.child(index)) is not None else isolate(one)
            for index, one in enumerate(plain)
        )

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        if type(plain) is not tuple or (self.rest is None and len(plain) != len(self.items)):
            raise self.unfit(plain, f"tuple of {len(self.items)}", at, root)
        self.check_limits(plain, at, root)
        items = [
            node.build(one, (*at, index), root)
            for index, one in enumerate(plain)
            if (node := self.child(index)) is not None
        ]
        return tuple(items) if self.cls is tuple else self.cls(*items)

    def child(self, key: Any) -> Node | None:
        if type(key) is not int:  # as of a dict that is stored where a tuple is declared
            return None
        first = 0 if self.rest is not None else -len(self.items)  # else the end is anywhere
        return self.items[key] if first <= key < len(self.items) else self.rest

    def takes(self, kind: type) -> bool:
        return kind is tuple
