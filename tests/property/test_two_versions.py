"""Edits of an older program at random, beside a model of what each object carries on.

A part that an older program had made was popped and put where another part stood: it got what a
newer program had noted in that one. It had nothing, and that goes with it as notes do.

Notes in a tuple went with the first edit of something else: what the types show of a state is
stored before it, and of tuples that was without notes. And an object of one of two classes that
only a newer program can tell apart was one of the other class once an older program had saved it.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

import perdure
from perdure.core.draft.draft import Recording
from perdure.core.schema.schema import Schema
from perdure.core.values import ops, plain_values

ROUNDS = 150
COUNT = 14


@dataclass
class Part:
    name: int = 0
    child: Part | None = None
    parts: list[Part] = field(default_factory=list)


class Named(NamedTuple):
    number: int
    part: Part


@dataclass
class Wide:
    """Which of the two an object is, only a newer program can say: it has a note in `Narrow`."""

    name: int = 0
    width: int = 0


@dataclass
class Narrow:
    name: int = 0


@dataclass
class Parts:
    items: list[Part] = field(default_factory=list)
    by: dict[str, Part] = field(default_factory=dict)
    one: Part | None = None
    both: tuple[Part, int] | None = None
    named: Named | None = None
    many: tuple[Part, ...] = ()
    pairs: list[tuple[tuple[Part, ...], Part]] = field(default_factory=list)
    either: list[Wide | Narrow] = field(default_factory=list)


class PartModel(pydantic.BaseModel):
    name: int = 0
    child: PartModel | None = None
    parts: list[PartModel] = []


class NamedModel(NamedTuple):
    number: int
    part: PartModel


class PartsModel(pydantic.BaseModel):
    items: list[PartModel] = []
    by: dict[str, PartModel] = {}
    one: PartModel | None = None
    both: tuple[PartModel, int] | None = None
    named: NamedModel | None = None
    many: tuple[PartModel, ...] = ()
    pairs: list[tuple[tuple[PartModel, ...], PartModel]] = []
    either: list[Wide | Narrow] = []


class PartStruct(msgspec.Struct):
    name: int = 0
    child: PartStruct | None = None
    parts: list[PartStruct] = []


class NamedStruct(NamedTuple):
    number: int
    part: PartStruct


class PartsStruct(msgspec.Struct):
    items: list[PartStruct] = []
    by: dict[str, PartStruct] = {}
    one: PartStruct | None = None
    both: tuple[PartStruct, int] | None = None
    named: NamedStruct | None = None
    many: Sequence[PartStruct] = ()
    pairs: list[tuple[tuple[PartStruct, ...], PartStruct]] = []
    either: list[Wide | Narrow] = []


class PartDict(TypedDict):
    name: int
    child: NotRequired[PartDict | None]
    parts: NotRequired[list[PartDict]]


class NamedDict(NamedTuple):
    number: int
    part: PartDict


class PartsDict(TypedDict):
    items: list[PartDict]
    by: dict[str, PartDict]
    one: PartDict | None
    both: tuple[PartDict, int] | None
    named: NamedDict | None
    many: tuple[PartDict, ...]
    pairs: list[tuple[tuple[PartDict, ...], PartDict]]
    either: list[Wide | Narrow]


def replaced(part: Any, name: int) -> Any:
    if isinstance(part, pydantic.BaseModel):
        return part.model_copy(update={"name": name})
    if isinstance(part, msgspec.Struct):
        return msgspec.structs.replace(part, name=name)
    return dataclasses.replace(part, name=name)


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "dataclass": (Parts, Part, Named),
    "pydantic": (PartsModel, PartModel, NamedModel),
    "struct": (PartsStruct, PartStruct, NamedStruct),
    "typed dict": (PartsDict, PartDict, NamedDict),
}


class Model:
    """What a part is, and carries.

    Attributes:
        note: what a newer program noted in it.
        was: of a copy that came out of the draft, the part as it was there. A whole value has none.
    """

    def __init__(self, name: int, note: str | None = None, was: Model | None = None) -> None:
        self.name = name
        self.note = note
        self.was = was
        self.child: Model | None = None
        self.parts: list[Model] = []

    def plain(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": self.name,
            "child": None if self.child is None else self.child.plain(),
            "parts": [part.plain() for part in self.parts],
        }
        return made if self.note is None else {**made, "note": self.note}

    def given(self) -> Model:
        """A copy that the draft gives out."""
        return copy.deepcopy(self)._given()

    def _given(self) -> Model:
        made = Model(self.name, was=self)
        made.child = None if self.child is None else self.child._given()
        made.parts = [part._given() for part in self.parts]
        return made

    def taken(self, there: Model | None = None) -> Model:
        """What becomes of it in the draft, where another one may stand."""
        base = there if self.was is None else self.was
        made = Model(self.name, None if base is None else base.note)
        if self.child is not None:
            made.child = self.child.taken(None if base is None else base.child)
        made.parts = [part.taken() for part in self.parts]
        return made


@dataclass
class Root:
    items: list[Model] = field(default_factory=list)
    by: dict[str, Model] = field(default_factory=dict)
    one: Model | None = None
    both: Model | None = None
    named: Model | None = None
    many: list[Model] = field(default_factory=list)
    pairs: list[tuple[list[Model], Model]] = field(default_factory=list)
    either: list[dict[str, Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {
            "items": [part.plain() for part in self.items],
            "by": {key: part.plain() for key, part in self.by.items()},
            "one": None if self.one is None else self.one.plain(),
            "both": None if self.both is None else (self.both.plain(), 1),
            "named": None if self.named is None else (1, self.named.plain()),
            "many": tuple(part.plain() for part in self.many),
            "pairs": [
                (tuple(part.plain() for part in parts), one.plain()) for parts, one in self.pairs
            ],
            "either": [dict(one) for one in self.either],
        }

    def in_tuples(self) -> list[tuple[Sequence[Any], Model]]:
        """Returns the parts in tuples, each with the keys that lead to it."""
        found: list[tuple[Sequence[Any], Model]] = []
        if self.both is not None:
            found.append((("both", 0), self.both))
        if self.named is not None:
            found.append((("named", 1), self.named))
        found += [(("many", at), part) for at, part in enumerate(self.many)]
        for at, (parts, one) in enumerate(self.pairs):
            found.append((("pairs", at, 1), one))
            found += [(("pairs", at, 0, no), part) for no, part in enumerate(parts)]
        return found


class Both:
    """A draft and its model, of which each action changes both.

    Attributes:
        hands: copies that were taken out of the draft, and whole values, each with its model.
    """

    def __init__(self, rng: random.Random, kind: str, draft: Any, root: Root) -> None:
        self.rng = rng
        _, self.cls, self.named = KINDS[kind]
        self.draft = draft
        self.root = root
        self.hands: list[tuple[Any, Model]] = []
        self.names = 1000

    def get(self, holder: Any, name: str) -> Any:
        return holder[name] if isinstance(holder, dict) else getattr(holder, name)

    def put(self, holder: Any, name: str, value: Any) -> None:
        if isinstance(holder, dict):
            holder[name] = value
        else:
            setattr(holder, name, value)

    def new_name(self) -> int:
        self.names += 1
        return self.names

    def whole(self) -> tuple[Any, Model]:
        name = self.new_name()
        return self.cls(name=name, child=None, parts=[]), Model(name)

    def hand(self) -> tuple[Any, Model]:
        return self.rng.choice(self.hands) if self.hands else self.whole()

    def places(self) -> list[tuple[Any, Model]]:
        """All parts in the draft that can be changed there."""
        items = self.get(self.draft, "items")
        found = [(items[at], part) for at, part in enumerate(self.root.items)]
        by = self.get(self.draft, "by")
        found += [(by[key], part) for key, part in self.root.by.items()]
        if self.root.one is not None:
            found.append((self.get(self.draft, "one"), self.root.one))
        for proxy, part in found:  # it grows
            if part.child is not None:
                found.append((self.get(proxy, "child"), part.child))
            parts = self.get(proxy, "parts") if part.parts else []
            found += [(parts[at], one) for at, one in enumerate(part.parts)]
        return found

    def lists(self) -> list[tuple[Any, list[Model]]]:
        found = [(self.get(self.draft, "items"), self.root.items)]
        return found + [(self.get(proxy, "parts"), one.parts) for proxy, one in self.places()]

    def act(self) -> None:
        self.rng.choice(ACTIONS)(self)

    # What takes out

    def pop(self) -> None:
        items, parts = self.rng.choice(self.lists())
        if parts:
            at = self.rng.randrange(len(parts))
            self.hands.append((items.pop(at), parts.pop(at).given()))

    def pop_key(self) -> None:
        if self.root.by:
            key = self.rng.choice(list(self.root.by))
            self.hands.append((self.get(self.draft, "by").pop(key), self.root.by.pop(key).given()))

    def copied(self) -> None:
        if places := self.places():
            proxy, part = self.rng.choice(places)
            make = self.rng.choice([copy.copy, copy.deepcopy])
            self.hands.append((make(proxy), part.given()))

    def removed_while_held(self) -> None:
        items, parts = self.rng.choice(self.lists())
        if parts:
            at = self.rng.randrange(len(parts))
            proxy = items[at]
            del items[at]
            self.hands.append((proxy, parts.pop(at).given()))

    def in_a_tuple(self) -> None:
        if found := self.root.in_tuples():
            (name, *keys), part = self.rng.choice(found)
            value = plain_values.look_up(self.get(self.draft, name), keys)
            self.hands.append((value, part.given()))

    def pop_pair(self) -> None:
        if self.root.pairs:
            at = self.rng.randrange(len(self.root.pairs))
            values, value = self.get(self.draft, "pairs").pop(at)
            parts, part = self.root.pairs.pop(at)
            models = [one.given() for one in (*parts, part)]
            self.hands += zip((*values, value), models, strict=True)

    def copied_list(self) -> None:
        items, parts = self.rng.choice(self.lists())
        self.hands += zip(items.copy(), [part.given() for part in parts], strict=True)

    # What is done with copies

    def pickled(self) -> None:
        """Nobody knows what that is a copy of."""
        value, part = self.hand()
        if is_copy(value):
            value = pickle.loads(pickle.dumps(value))
            self.put(value, "child", None)
            self.put(value, "parts", [])
            self.hands.append((value, Model(part.name)))

    def replaced(self) -> None:
        value, _ = self.hand()
        if is_copy(value) and not isinstance(value, dict):
            name = self.new_name()
            value = replaced(copy.deepcopy(value), name)
            self.put(value, "child", None)
            self.put(value, "parts", [])
            self.hands.append((value, Model(name)))

    def renamed(self) -> None:
        value, part = self.hand()
        if is_copy(value):
            part.name = self.new_name()
            self.put(value, "name", part.name)

    def child_taken_out(self) -> None:
        value, part = self.hand()
        if is_copy(value) and part.child is not None:
            self.hands.append((self.get(value, "child"), part.child))
            self.put(value, "child", None)
            part.child = None

    def child_given(self) -> None:
        """A whole value: it is the child that was there."""
        value, part = self.hand()
        if is_copy(value):
            whole, part.child = self.whole()
            self.put(value, "child", whole)

    def parts_of_a_copy(self) -> None:
        value, part = self.hand()
        if is_copy(value) and part.parts:
            parts = self.get(value, "parts")
            at = self.rng.randrange(len(parts))
            if self.rng.random() < 0.5:
                self.hands.append((parts.pop(at), part.parts.pop(at)))
            else:
                parts.append(parts.pop(at))
                part.parts.append(part.parts.pop(at))

    def into_a_copy(self) -> None:
        value, part = self.hand()
        if is_copy(value) and len(self.hands) > 1:
            other, inner = self.hands.pop(self.rng.randrange(len(self.hands)))
            if other is not value and inner.was is not None and is_copy(other):
                self.get(value, "parts").append(other)
                part.parts.append(inner)

    # What puts in

    def put_into_list(self) -> None:
        items, parts = self.rng.choice(self.lists())
        value, part = self.hand()
        at = self.rng.randint(0, len(parts))
        items.insert(at, value)
        parts.insert(at, part.taken())

    def put_over_item(self) -> None:
        items, parts = self.rng.choice(self.lists())
        if parts:
            value, part = self.hand()
            at = self.rng.randrange(len(parts))
            items[at] = value
            parts[at] = part.taken(parts[at])

    def put_at_key(self) -> None:
        value, part = self.hand()
        key = self.rng.choice("klm")
        self.get(self.draft, "by")[key] = value
        self.root.by[key] = part.taken(self.root.by.get(key))

    def put_at_field(self) -> None:
        value, part = self.hand()
        self.put(self.draft, "one", value)
        self.root.one = part.taken(self.root.one)

    def put_at_child(self) -> None:
        if places := self.places():
            (proxy, there), (value, part) = self.rng.choice(places), self.hand()
            self.put(proxy, "child", value)
            there.child = part.taken(there.child)

    def put_into_tuple(self) -> None:
        value, part = self.hand()
        if self.rng.random() < 0.5:
            self.put(self.draft, "both", (value, 1))
            self.root.both = part.taken(self.root.both)
        else:
            self.put(self.draft, "named", self.named(1, value))
            self.root.named = part.taken(self.root.named)

    def put_into_pairs(self) -> None:
        pairs, at = self.get(self.draft, "pairs"), self.rng.randint(0, len(self.root.pairs))
        (value, part), (other, inner) = self.hand(), self.whole()
        if at == len(self.root.pairs):
            pairs.append(((other,), value))
            self.root.pairs.append(([inner.taken()], part.taken()))
        else:
            parts, there = self.root.pairs[at]
            pairs[at] = (pairs[at][0], value)
            self.root.pairs[at] = (parts, part.taken(there))

    def whole_over(self) -> None:
        self.hands.append(self.whole())
        self.rng.choice([Both.put_over_item, Both.put_at_key, Both.put_at_field])(self)
        self.hands.pop()

    # What moves

    def sorted(self) -> None:
        items, parts = self.rng.choice(self.lists())
        turned = self.rng.random() < 0.5
        items.sort(key=lambda part: self.get(part, "name"), reverse=turned)
        parts.sort(key=lambda part: part.name, reverse=turned)

    def moved(self) -> None:
        items, parts = self.rng.choice(self.lists())
        if parts:
            source, target = self.rng.randrange(len(parts)), self.rng.randrange(len(parts))
            perdure.move(items, source, target)
            parts.insert(target, parts.pop(source))

    def shuffled(self) -> None:
        """Some of its own, in another order, and with a copy among them."""
        items, parts = self.rng.choice(self.lists())
        order = self.rng.sample(range(len(parts)), self.rng.randint(0, len(parts)))
        come = [items[at] for at in order]
        models = [parts[at] for at in order]
        value, part = self.hand()
        if part.was is not None:
            at = self.rng.randint(0, len(come))
            come.insert(at, value)
            models.insert(at, part.taken())
        items[:] = come
        parts[:] = models

    def shuffled_in_a_tuple(self) -> None:
        count = len(self.root.many)
        order = self.rng.sample(range(count), self.rng.randint(0, count))
        many = self.get(self.draft, "many")
        come, models = [many[at] for at in order], [self.root.many[at] for at in order]
        value, part = self.hand()
        if part.was is not None:
            come.append(value)
            models.append(part.taken())
        self.put(self.draft, "many", tuple(come))
        self.root.many = models

    def pairs_moved(self) -> None:
        if self.root.pairs:
            pairs, count = self.get(self.draft, "pairs"), len(self.root.pairs)
            source, target = self.rng.randrange(count), self.rng.randrange(count)
            perdure.move(pairs, source, target)
            self.root.pairs.insert(target, self.root.pairs.pop(source))

    def pairs_turned(self) -> None:
        self.get(self.draft, "pairs").reverse()
        self.root.pairs.reverse()

    def swapped(self) -> None:
        if len(keys := list(self.root.by)) > 1:
            one, other = self.rng.sample(keys, 2)
            by = self.get(self.draft, "by")
            by[one], by[other] = copy.copy(by[other]), copy.copy(by[one])
            parts = self.root.by[one].given(), self.root.by[other].given()
            self.root.by[one], self.root.by[other] = parts[1].taken(), parts[0].taken()

    def changed(self) -> None:
        if places := self.places():
            proxy, part = self.rng.choice(places)
            part.name = self.new_name()
            self.put(proxy, "name", part.name)


ACTIONS: list[Callable[[Both], None]] = [
    action
    for name, action in vars(Both).items()
    if not name.startswith("_")
    and name not in ("get", "put", "new_name", "whole", "hand", "places", "lists", "act")
]


def is_copy(value: Any) -> bool:
    return not hasattr(type(value), "__perdure_place__")


def some_part(rng: random.Random, depth: int = 0) -> Model:
    name = rng.randrange(100)
    part = Model(name, rng.choice([None, f"note of {name} {rng.random()}"]))
    if depth < 2 and rng.random() < 0.5:
        part.child = some_part(rng, depth + 1)
    if depth < 2 and rng.random() < 0.4:
        part.parts = [some_part(rng, depth + 1) for _ in range(rng.randrange(3))]
    return part


def some_root(rng: random.Random) -> Root:
    return Root(
        [some_part(rng) for _ in range(rng.randrange(4))],
        {key: some_part(rng) for key in rng.sample("klm", 2)},
        rng.choice([None, some_part(rng)]),
        rng.choice([None, some_part(rng)]),
        rng.choice([None, some_part(rng)]),
        [some_part(rng) for _ in range(rng.randrange(3))],
        [
            ([some_part(rng) for _ in range(rng.randrange(3))], some_part(rng))
            for _ in range(rng.randrange(3))
        ],
        [
            rng.choice([{"name": 1, "width": 2}, {"name": 1, "note": "narrow"}])
            for _ in range(rng.randrange(3))
        ],
    )


def ordered(plain: Any) -> Any:
    """Fields in one order; that of a dict's keys is what it is."""
    if type(plain) is dict:
        pairs = [(key, ordered(item)) for key, item in plain.items()]
        return dict(sorted(pairs)) if "name" in plain or "items" in plain else dict(pairs)
    if type(plain) in (list, tuple):
        return type(plain)(map(ordered, plain))
    return plain


def check(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    root = some_root(rng)
    plain = root.plain()
    before = plain_values.copy(plain)
    schema: Schema[Any] = Schema(KINDS[kind][0])
    assert plain_values.same(schema.normal(plain, schema.version), before), (
        "reading it changes nothing"
    )
    saved = schema.take(schema.build(plain), aliases_refused=True)
    assert plain_values.same(schema.merge_unknown(plain, saved), before), "nor saving it as read"
    recording = Recording(schema, plain)
    both = Both(rng, kind, recording.draft, root)
    for _ in range(rng.randrange(COUNT)):
        both.act()
    assert plain_values.same(ordered(recording.plain), ordered(root.plain())), seed
    assert plain_values.same(ops.fold(plain_values.copy(before), recording.ops), recording.plain), (
        seed
    )
    assert plain_values.same(recording.before(), before), seed


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_keeps_what_a_newer_program_noted_in_it(kind: str) -> None:
    for seed in range(ROUNDS):
        check(kind, seed)
