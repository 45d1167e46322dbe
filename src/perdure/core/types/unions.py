"""Unions: the member that a typed or plain value is of, and a stand-in where that is ambiguous.

An instance names its member. A list in a field that declares two kinds of list does not: it is read
and edited as a list whose items are of either kind, and the union judges it as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from perdure.core.types.annotations import has_validators, unwrap
from perdure.core.types.answers import asked, asking, builds, checking
from perdure.core.types.likeliest import IMPOSSIBLE, declared, knows_all, possible, score
from perdure.core.types.nodes import (
    DictNode,
    LeafNode,
    ListNode,
    Node,
    SetNode,
    TupleNode,
    Walker,
    isolate,
)
from perdure.core.types.objects import UNKNOWN_KEYS, ObjectNode
from perdure.core.types.side_by_side import Pair, side_by_side
from perdure.core.types.validation import Engine
from perdure.core.values.plain_values import SCALARS, Path, Plain, format_path, look_up, same
from perdure.errors import SchemaError, Unstorable
from perdure.system.cached import cached

_CONTAINERS = frozenset({list, dict, set, frozenset, tuple})


class UnionNode(Node):
    """One of several types. `registry`: makes the nodes of combined members."""

    def __init__(
        self, annotation: Any, engine: Engine, config: Any, options: list[Node], registry: Any
    ) -> None:
        super().__init__(annotation, engine, config)
        self._declared = options
        self._registry = registry
        self._takers: dict[type, list[Node]] = {}
        self._owners: dict[type, Sequence[Node]] = {}
        self._either: dict[type, Node] = {}

    @cached
    def options(self) -> Sequence[Node]:
        """The types, and those of unions within it."""
        options: list[Node] = []
        for one in self._declared:
            options += one.options if isinstance(one, UnionNode) else [one]
        return options

    def takers(self, kind: type) -> Sequence[Node]:
        """Returns the members that may have a plain value of this kind."""
        found = self._takers.get(kind)
        if found is None:
            found = self._takers[kind] = [one for one in self.options if one.takes(kind)]
        return found

    def owners(self, kind: type) -> Sequence[Node]:
        """Returns the members that may have a typed value of this kind."""
        found = self._owners.get(kind)
        if found is None:
            found = self._owners[kind] = self._find_owners(kind)
        return found

    def _find_owners(self, kind: type) -> Sequence[Node]:
        classes: list[Node] = [
            one
            for one in self.options
            if (isinstance(one, ObjectNode) and not one.face.is_dict and one.face.cls is kind)
            or (isinstance(one, TupleNode) and one.cls is kind)
        ]
        if classes and kind is not tuple:
            return classes
        found = [one for one in self.takers(kind) if not _wants_object(one)]
        named = [one for one in found if isinstance(one, TupleNode) and one.cls is not tuple]
        if len(named) < len(found):
            found = [one for one in found if one not in named]
        containers = [one for one in found if not isinstance(one, LeafNode)]
        return containers if containers and kind in _CONTAINERS else found

    def member(self, value: Any) -> Node | None:
        """Returns the member that a typed value surely is of; None where it may be of several."""
        owners = self.owners(type(value))
        if len(owners) == 1:
            return owners[0]
        return self.told(value) if owners and type(value) is dict else None

    def stays(self, value: Any, plain: Plain, at: Path, root: str) -> bool:
        """True if a live value is surely of the member that its new plain value is built as, so
        that it may be changed in place.

        Raises:
            SchemaError: the plain value is of none.
        """
        mine = self.member(value)
        if mine is None:
            return False
        takers = self.takers(type(plain))
        if len(takers) == 1 and not self._named:
            return takers[0] is mine
        told = self.told(plain) if type(plain) is dict else None
        if told is not None:
            return told is mine
        return self.member(self.build(plain, at, root)) is mine

    @cached
    def _named(self) -> bool:
        """True if a member is a NamedTuple, which pydantic also makes from lists and dicts."""
        return any(isinstance(one, TupleNode) and one.cls is not tuple for one in self.options)

    @cached
    def _words(self) -> Sequence[tuple[str, Mapping[str, Node]]]:
        """Fields whose value alone determines the class, whatever the other fields hold."""
        takers = self.takers(dict)
        classes = [one for one in takers if isinstance(one, ObjectNode)]
        metadata = unwrap(self.annotation).metadata
        if len(classes) < max(len(takers), 2) or has_validators(metadata):
            return ()
        if any(one.face.opaque_input for one in classes) or any(map(_chooses, metadata)):
            return ()
        return [
            (name, words)
            for name in (*(classes[0].face.tag or ())[:1], *classes[0].fields)
            if (words := _words_at(classes, name)) is not None
        ]

    def is_open(self, value: Mapping[Any, Any]) -> bool:
        """True if its fields decide which member a dict is of, rather than a tag, a literal, or a
        function of the user."""
        return not self._is_chosen and len(self.takers(dict)) > 1 and self.told(value) is None

    @cached
    def _is_chosen(self) -> bool:
        return any(map(_chooses, unwrap(self.annotation).metadata))

    def told(self, value: Mapping[Any, Any]) -> Node | None:
        """Returns the member that a value's tag or literal names; None without one."""
        for name, words in self._words:
            word = value.get(name)
            if type(word) is str and word in words:
                return words[word]
        return None

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        kind = type(value)
        if kind is dict and len(self.owners(dict)) > 1:
            option = self.guess(value)
        else:
            option = self.pick_typed(value)
        if option is not self:
            if kind is dict and isinstance(option, ObjectNode):
                self._check_tag(option, value, at, walker)
            return option.plain(value, at, walker)
        derived = [one for one in self._objects() if one.face.derives(value)]
        if derived:
            return derived[0].plain(value, at, walker)  # refuses it, saying why
        for one in self.options:
            if isinstance(one, LeafNode) and not one.as_is and kind not in (list, dict, set):
                try:
                    return one.plain(value, at, walker)
                except Unstorable:
                    continue
        return walker.take(value, at)

    def _check_tag(
        self, option: ObjectNode, value: dict[Any, Any], at: Path, walker: Walker
    ) -> None:
        """Refuses a dict of one of several classes that says by no tag of which."""
        tag = option.face.tag
        if tag is not None and tag[0] not in value and len(self.takers(dict)) > 1:
            raise SchemaError(
                f"it does not say of which class it is: {tag[0]!r} is missing",
                target=format_path(at, walker.root),
            )

    def _objects(self) -> list[ObjectNode]:
        return [one for one in self.options if isinstance(one, ObjectNode)]

    def pick_typed(self, value: Any) -> Node:
        kind = type(value)
        owners = self.owners(kind)
        if len(owners) == 1:
            return owners[0]
        if not owners:
            return self.guess(value) if kind is dict else self
        if kind is dict:
            return self._guess_among(owners, value)
        if kind not in _CONTAINERS:
            return owners[0] if isinstance(owners[0], ObjectNode) else self
        return self._together(kind, owners)

    def pick(self, plain: Plain) -> Node:
        kind = type(plain)
        takers = self.takers(kind)
        if len(takers) == 1:
            return takers[0].pick(plain)
        told = self.told(plain) if kind is dict else None
        if told is not None:
            return told
        try:
            built = self.build(plain)
        except SchemaError:
            return self.guess(plain)
        owners = self.owners(type(built))
        if len(owners) > 1 and isinstance(owners[0], ObjectNode | TupleNode) and kind is not list:
            return next((one for one in owners if builds(one, plain)), owners[0])
        option = self.pick_typed(built)
        return self.guess(plain) if option is self else option

    def guess(self, plain: Plain) -> Node:
        """Returns the member that a plain value most likely has, by kind, tag, literals and
        fields."""
        return self._guess_among(self.takers(type(plain)), plain)

    def _guess_among(self, fitting: Sequence[Node], plain: Plain) -> Node:
        kind = type(plain)
        if len(fitting) == 1:
            return fitting[0]
        if kind is not dict or not fitting:
            return self._together(kind, fitting) if kind in _CONTAINERS and fitting else self
        best, place = max((score(one, plain), -place) for place, one in enumerate(fitting))
        if best <= IMPOSSIBLE:
            return self
        found = fitting[-place]
        if not knows_all(found, plain):
            found = next(possible(fitting, plain))
        dicts = [one for one in fitting if isinstance(one, DictNode)]
        return found if found not in dicts or len(dicts) == 1 else self._together(dict, dicts)

    def _together(self, kind: type, members: Sequence[Node]) -> Node:
        """Returns a container whose items are of any of the members' items."""
        made = self._either.get(kind)
        if made is None:
            made = self._either[kind] = _put_together(self, kind, members, self._registry)
        return made

    def possible(self, plain: dict[Any, Any]) -> Sequence[Node]:
        """Returns the members that a dict may be of; see `likeliest.possible`."""
        return [*possible(self.takers(dict), plain)]

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        kind = type(plain)
        if kind in _CONTAINERS:
            self.check_limits(plain, at, root)
        if kind not in (dict, list) or asked.refused is not None:
            return self._assemble(plain, at, root)
        try:
            asked.refused = {}
            return self._assemble(plain, at, root)
        finally:
            asked.refused = None

    def _assemble(self, plain: Plain, at: Path, root: str) -> Any:
        kind, fitting = type(plain), self.takers(type(plain))
        problem = self.unfit(plain, "member of the union", at, root)
        for place, one in enumerate(possible(fitting, plain) if kind is dict else fitting):
            try:
                built = self._try_member(one, plain, at, root)
            except SchemaError as error:
                problem = error if place == 0 else problem
                continue
            if kind in _CONTAINERS and len(fitting) > 1 and not isinstance(one, ObjectNode):
                check_members(self, built, plain, at, root)
            return built
        raise problem

    def _try_member(self, one: Node, plain: Plain, at: Path, root: str) -> Any:
        """Builds a value as a member. One that refused it once, below another member of a union
        around it, is not asked again: that would cost a power of the depth."""
        known = asked.refused
        if known is None or type(plain) not in (dict, list):
            return one.build(plain, at, root)
        mark = id(one), id(plain), at
        if known and mark in known:
            raise known[mark][1]
        try:
            return one.build(plain, at, root)
        except SchemaError as error:
            known[mark] = plain, error  # with it, so that its id stays its own
            raise

    def _likely(self, plain: Plain) -> Node:
        """Returns the member that a plain value most likely is of, and surely one that takes it if
        it has what that member does not declare: another one may forbid that, or not take it."""
        found = self.guess(plain)
        if not isinstance(found, ObjectNode) or all(name in found.fields for name in plain):
            return found
        if self.told(plain) is not None:
            return found
        with asking() as known:
            return next((one for one in self.possible(plain) if known.builds(one, plain)), found)

    def prepare(self, plain: Plain) -> Any:
        option = self._likely(plain)
        if option is self:
            UNKNOWN_KEYS.met = object()
            return isolate(plain)
        prepared = option.prepare(plain)
        fewer = isinstance(option, ObjectNode) and len(prepared) < len(plain)
        if fewer and any(isinstance(one, DictNode) for one in self.takers(dict)):
            return isolate(plain)  # the library may take it for the dict, which has all keys
        return prepared

    def takes(self, kind: type) -> bool:
        return bool(self.takers(kind))


def check_members(node: Node, typed: Any, plain: Plain, at: Path, root: str) -> None:
    """Refuses a built value if an object in it was read as one of another class of a union, which
    ignored the fields that the object's own class did not accept.

    Raises:
        SchemaError: what the object's own class says of it.
    """
    if asked.checked or not any(map(_is_misread, side_by_side(node, typed, plain, at))):
        return
    with checking():
        _check_misread(node, typed, plain, at, root)


def _check_misread(node: Node, typed: Any, plain: Plain, at: Path, root: str) -> None:
    walker = Walker(root=root)
    shown = node.plain(typed, at, walker)  # a hook may have put it at another place
    for union, built, item, path in side_by_side(node, typed, plain, at):
        if not isinstance(union, UnionNode) or type(item) is not dict or not union.is_open(item):
            continue
        own = union.possible(item)
        if any(builds(one, item) for one in own):
            continue
        for other in union.takers(dict):
            if other not in own and _is_in(shown, at, walker, other, item, built):
                own[0].build(item, path, root)


def _is_misread(pair: Pair) -> bool:
    """True if an object is of a class that knows fewer fields of the plain one than its own."""
    union, typed, plain, _ = pair
    if not isinstance(union, UnionNode) or type(plain) is not dict or not union.is_open(plain):
        return False
    mine = union.pick_typed(typed)
    if not isinstance(mine, ObjectNode):
        return False
    if mine.face.is_dict:
        return bool(declared(union.possible(plain)[0], plain.keys() - typed.keys()))
    return not knows_all(mine, plain) and mine not in union.possible(plain)


def _is_in(shown: Plain, at: Path, walker: Walker, node: Node, plain: Plain, here: Any) -> bool:
    """True if what a class reads of a dict stands somewhere in a value; of a TypedDict: here."""
    if not isinstance(node, ObjectNode):
        return False
    try:
        made = node.build(plain)
    except SchemaError:
        return False
    if node.face.is_dict:
        return bool(made == here)
    read = node.plain(made, (), Walker())
    return any(
        cls is node.face.cls and same(look_up(shown, path[len(at) :]), read)
        for path, cls in walker.classes.items()
    )


def may_be_another(node: Node, plain: Plain) -> bool:
    """True if a newer program may take a stored object for one of another class than this one does:
    which it is hangs on its fields, some of which only the newer program knows."""
    if not isinstance(node, UnionNode) or type(plain) is not dict or node.told(plain) is not None:
        return False
    fitting = [one for one in node.takers(dict) if score(one, plain) > IMPOSSIBLE]
    classes = [one for one in fitting if isinstance(one, ObjectNode)]
    return len(fitting) > 1 and not any(all(map(one.knows, plain)) for one in classes)


def keeps_class(node: Node, key: Any, old: Plain, new: Plain) -> bool:
    """True if each class of a union takes a field's new value as it took the old one: then which of
    them an object is cannot change along with that field."""
    assert isinstance(node, UnionNode)
    fields = [child for one in node.takers(dict) if (child := one.child(key)) is not None]
    return all(_takes_as_is(one, old) is _takes_as_is(one, new) for one in fields)


def _takes_as_is(node: Node, plain: Plain) -> bool:
    try:
        back = node.plain(node.build(plain), (), Walker())
    except SchemaError:
        return False
    return type(plain) not in SCALARS or same(back, plain)


def _wants_object(node: Node) -> bool:
    return isinstance(node, ObjectNode) and not node.face.is_dict


def _chooses(mark: Any) -> bool:
    """True if a mark on a union chooses by a function of the user."""
    return callable(getattr(mark, "discriminator", None))


def _words_at(classes: Sequence[ObjectNode], name: str) -> Mapping[str, Node] | None:
    """Returns the texts that a field must have in each of the classes, if no two accept the
    same."""
    words: dict[str, Node] = {}
    for one in classes:
        tag, field = one.face.tag, one.fields.get(name)
        literals = getattr(one.child(name), "literals", None) if field is not None else None
        if tag is not None and tag[0] == name:
            literals = [tag[1]]
        elif field is None or field.validated or literals is None:
            return None
        for word in literals:
            if type(word) is not str or word in words:
                return None
            words[word] = one
    return words


# -- combined members -----------------------------------------------------------------------------


class Whole(Node):
    """Several members as one. The union decides what a value is; in a draft, the items decide for
    themselves."""

    union: UnionNode

    def build(self, plain: Plain, at: Path = (), root: str = "state") -> Any:
        try:
            return self.union.build(plain, at, root)
        except SchemaError:
            return super().build(plain, at, root)

    def stable(self, plain: Plain) -> bool:
        return False


class EitherList(Whole, ListNode):
    """Several kinds of list."""


class EitherDict(Whole, DictNode):
    """Several kinds of dict."""


class EitherSet(Whole, SetNode):
    """Several kinds of set."""


class EitherTuple(Whole, TupleNode):
    """Several kinds of tuple."""


def _put_together(union: UnionNode, kind: type, members: Sequence[Node], registry: Any) -> Node:
    def of_any(nodes: Iterable[Node | None]) -> Node:
        annotations = [one.annotation for one in nodes if one is not None]
        made: Node = registry.node(Union[tuple(annotations)], union.config)  # noqa: UP007
        return made

    engine, config = union.engine, union.config
    made: Any
    if kind is dict:
        key = of_any(getattr(one, "key", None) for one in members)
        item = of_any(getattr(one, "item", None) for one in members)
        made = EitherDict(_of(dict, key, item), engine, config, key, item)
    elif kind is tuple:
        parts = [part for one in members for part in _parts(one)] or [registry.any]
        item = of_any(parts)
        made = EitherTuple(_of(tuple, item, ...), engine, config, [], item)
    elif kind is list:
        item = of_any(one.child(0) for one in members)
        made = EitherList(_of(list, item), engine, config, item)
    else:
        item = of_any(one.child(0) for one in members)
        made = EitherSet(_of(kind, item), engine, config, item, kind, either=False)
    made.union = union
    whole: Node = made
    return whole


def _parts(node: Node) -> list[Node]:
    if isinstance(node, TupleNode):
        return node.items if node.rest is None else [*node.items, node.rest]
    item = node.child(0)
    return [] if item is None else [item]


def _of(kind: Any, *items: Any) -> Any:
    return kind[tuple(one.annotation if isinstance(one, Node) else one for one in items)]
