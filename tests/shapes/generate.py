"""A type and a value of it, by a seed: the same in every process.

Values are as their classes make them; at times something is then set that the class would not have
taken: another kind in a field, an attribute that it does not declare, a private one.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Generic, NamedTuple, NotRequired, Required, TypeVar

import msgspec
import pydantic
from msgspec import Struct
from typing_extensions import TypedDict

from tests.shapes.leaves import MEMBERS, OTHERS, SCALARS, Make

T = TypeVar("T")


class Shape(Struct):
    """`odd`: something was put in that the type does not declare, so that it may be refused."""

    kind: Any
    value: Any
    odd: bool


@dataclasses.dataclass
class Parent:
    inherited: int = 3
    seen: list[int] = dataclasses.field(init=False, default_factory=list)


@dataclasses.dataclass(slots=True)
class SlottedParent:
    inherited: str = "p"


class LooseSlots:
    __slots__ = ("beside",)


class Contents(list[int]):
    pass


@dataclasses.dataclass
class Boxed(Generic[T]):
    item: T
    count: ClassVar[int] = 0


class ModelBox(pydantic.BaseModel, Generic[T]):
    item: T


# Types that are made here are none that a type checker could know.
A_LIST: Any = list
A_DICT: Any = dict
A_SEQUENCE: Any = Sequence
A_TUPLE: Any = tuple
A_BOX: Any = Boxed
A_MODEL: Any = ModelBox
A_TYPED_DICT: Any = TypedDict
A_NAMED_TUPLE: Any = NamedTuple
META: Any = type(pydantic.BaseModel)


class Generator:
    """Makes one shape. Each class gets a name of its own: unions tell classes apart."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.count = 0
        self.odd = False

    def shape(self) -> Shape:
        kind, make = self._composed(0)
        return Shape(kind, make(self.rng), self.odd)

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _name(self) -> str:
        self.count += 1
        return f"Shape{self.seed}_{self.count}"

    # Types

    def kind(self, depth: int) -> tuple[Any, Make]:
        if depth > 3 or self._chance(0.45):
            return self.rng.choice(SCALARS)
        return self._composed(depth)

    def _composed(self, depth: int) -> tuple[Any, Make]:
        makers = (
            self._list,
            self._dict,
            self._set,
            self._tuple,
            self._optional,
            self._dataclass,
            self._dataclass,
            self._model,
            self._model,
            self._struct,
            self._typed_dict,
            self._named_tuple,
            self._pydantic_dataclass,
            self._generic,
            self._union,
            self._containers,
        )
        return self.rng.choice(makers)(depth + 1)

    def _list(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        if self._chance(0.3):
            inner = self.rng.choice((list, tuple))
            return A_SEQUENCE[kind], lambda rng: inner(make(rng) for _ in range(rng.randrange(3)))
        return A_LIST[kind], lambda rng: [make(rng) for _ in range(rng.randrange(3))]

    def _dict(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        keyed, make_key = self.rng.choice([one for one in MEMBERS if one[0] is not bool])
        outer: Any = self.rng.choice((dict, dict, Mapping))
        return outer[keyed, kind], lambda rng: {make_key(rng): make(rng) for _ in range(2)}

    def _set(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.rng.choice(MEMBERS)
        outer: Any = self.rng.choice((set, frozenset, AbstractSet))
        made = frozenset if outer is AbstractSet else outer  # pydantic makes one of each set
        return outer[kind], lambda rng: made(make(rng) for _ in range(rng.randrange(3)))

    def _tuple(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        if self._chance(0.5):
            return A_TUPLE[kind, ...], lambda rng: tuple(make(rng) for _ in range(rng.randrange(3)))
        other, make_other = self.kind(depth)
        return A_TUPLE[kind, other], lambda rng: (make(rng), make_other(rng))

    def _optional(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        return (
            kind | None if kind is not Any else Any,
            lambda rng: None if rng.random() < 0.4 else make(rng),
        )

    def _union(self, depth: int) -> tuple[Any, Make]:
        maker = self.rng.choice((self._dataclass, self._model, self._struct))
        (one, make), (other, make_other) = maker(depth), maker(depth)
        return one | other, lambda rng: rng.choice((make, make_other))(rng)

    def _containers(self, depth: int) -> tuple[Any, Make]:
        """Two kinds of list, of dict or of set in one place."""
        maker = self.rng.choice((self._list, self._by_name, self._set))
        (one, make), (other, make_other) = maker(depth), maker(depth)
        return one | other, lambda rng: rng.choice((make, make_other))(rng)

    def _by_name(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        return A_DICT[str, kind], lambda rng: {name: make(rng) for name in ("a", "b")}

    # Classes

    def _fields(self, depth: int) -> list[tuple[str, Any, Make]]:
        return [(f"f{i}", *self.kind(depth)) for i in range(self.rng.randrange(4))]

    def _dataclass(self, depth: int) -> tuple[Any, Make]:
        rng, options = self.rng, {}
        fields = self._fields(depth)
        bases: tuple[type, ...] = rng.choice(
            ((), (), (), (Parent,), (SlottedParent,), (LooseSlots,), (Contents,))
        )
        options["kw_only"] = True
        if bases not in ((Parent,), (SlottedParent,)):
            options["frozen"] = self._chance(0.3)
        options["slots"] = self._chance(0.3)
        options["eq"] = not self._chance(0.1)
        spec: list[Any] = []
        late = []
        for name, kind, one in fields:
            extra: dict[str, Any] = {}
            if self._chance(0.3):
                extra["default_factory"] = _frozen_default(one, rng.random())
            if self._chance(0.2):
                extra |= {"init": False}
                late.append((name, one))
            if self._chance(0.2):
                extra |= {"compare": False, "repr": False}
            spec.append((name, kind, dataclasses.field(**extra)))
        if self._chance(0.15):
            spec.append(("given", dataclasses.InitVar[int], 5))
        namespace: dict[str, Any] = {}
        if self._chance(0.2):
            namespace["__post_init__"] = _touch
        cls = dataclasses.make_dataclass(
            self._name(), spec, bases=bases, namespace=namespace, **options
        )
        given = [(name, one) for name, _, one in fields if (name, one) not in late]

        def make(rng: random.Random) -> Any:
            value = cls(**{name: one(rng) for name, one in given})
            for name, one in late:
                object.__setattr__(value, name, one(rng))
            return self._bent(value, [name for name, _, _ in fields])

        return cls, make

    def _model(self, depth: int) -> tuple[Any, Make]:
        rng = self.rng
        config: dict[str, Any] = {"arbitrary_types_allowed": True}
        extra = rng.choice(("ignore", "forbid", "allow"))
        config |= {"extra": extra, "frozen": self._chance(0.2)}
        config["populate_by_name"] = True
        body: dict[str, Any] = {"__annotations__": {}, "__module__": __name__}
        fields = self._fields(depth)
        for name, kind, one in fields:
            options: dict[str, Any] = {}
            if self._chance(0.2):
                options["alias"] = f"alias_{name}"
            if self._chance(0.1):
                options["serialization_alias"] = f"out_{name}"
            if self._chance(0.3):
                options["default_factory"] = _frozen_default(one, rng.random())
                options["exclude"] = self._chance(0.2) or None
            body["__annotations__"][name] = kind
            body[name] = pydantic.Field(**options)
            if self._chance(0.1):
                body[f"serialize_{name}"] = pydantic.field_serializer(name)(_hidden)
        if self._chance(0.25):
            body["__annotations__"]["_private"] = list[int]
            body["_private"] = pydantic.PrivateAttr(default_factory=list)
        if self._chance(0.1):
            body["total"] = pydantic.computed_field(property(_total))
        body["model_config"] = pydantic.ConfigDict(**config)  # type: ignore[typeddict-item]
        cls: Any = META(self._name(), (pydantic.BaseModel,), body)

        def make(rng: random.Random) -> Any:
            values = {name: one(rng) for name, _, one in fields}
            if extra == "allow" and rng.random() < 0.5:
                values["more"] = rng.choice((1, "x", [1, (2,)], None))
            value: Any = cls.model_construct(**values)
            if rng.random() < 0.1:
                self.odd = True
                value._private = [1]
            return self._bent(value, [name for name, _, _ in fields])

        return cls, make

    def _pydantic_dataclass(self, depth: int) -> tuple[Any, Make]:
        fields = self._fields(depth)
        cls = dataclasses.make_dataclass(
            self._name(), [(name, kind) for name, kind, _ in fields], slots=self._chance(0.3)
        )
        made: Any = pydantic.dataclasses.dataclass(
            cls, config=pydantic.ConfigDict(arbitrary_types_allowed=True)
        )

        def make(rng: random.Random) -> Any:
            value = object.__new__(made)
            for name, _, one in fields:
                object.__setattr__(value, name, one(rng))
            return self._bent(value, [name for name, _, _ in fields])

        return made, make

    def _struct(self, depth: int) -> tuple[Any, Make]:
        fields = self._fields(depth)
        options: dict[str, Any] = {
            "frozen": self._chance(0.3),
            "omit_defaults": self._chance(0.3),
            "forbid_unknown_fields": self._chance(0.3),
            "rename": self.rng.choice((None, "camel", "upper")),
        }
        name = self._name()
        if self._chance(0.5):
            options["tag"] = name
        cls = msgspec.defstruct(
            name,
            [
                (one, kind, msgspec.field(default_factory=_frozen_default(make, 0.5)))
                if self._chance(0.3)
                else (one, kind)
                for one, kind, make in fields
            ],
            kw_only=True,
            **options,
        )

        def make(rng: random.Random) -> Any:
            value = cls(**{one: make(rng) for one, _, make in fields})
            return self._bent(value, [one for one, _, _ in fields])

        return cls, make

    def _typed_dict(self, depth: int) -> tuple[Any, Make]:
        fields = self._fields(depth)
        total = self._chance(0.5)
        marks = [self.rng.choice((None, Required, NotRequired)) for _ in fields]
        hints = {
            name: kind if mark is None else mark[kind]
            for (name, kind, _), mark in zip(fields, marks, strict=True)
        }
        cls = A_TYPED_DICT(self._name(), hints, total=total)

        def make(rng: random.Random) -> Any:
            return {
                name: one(rng)
                for (name, _, one), mark in zip(fields, marks, strict=True)
                if (mark is Required or (mark is None and total)) or rng.random() < 0.6
            }

        return cls, make

    def _named_tuple(self, depth: int) -> tuple[Any, Make]:
        fields = self._fields(depth)
        cls = A_NAMED_TUPLE(self._name(), [(name, kind) for name, kind, _ in fields])
        return cls, lambda rng: cls(*[one(rng) for _, _, one in fields])

    def _generic(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        if self._chance(0.5):
            return A_BOX[kind], lambda rng: self._bent(Boxed(make(rng)), ["item"])
        cls = A_MODEL[kind]
        return cls, lambda rng: self._bent(cls.model_construct(item=make(rng)), ["item"])

    # What does not belong

    def _bent(self, value: Any, names: list[str]) -> Any:
        """The value, at times with something in it that its class does not declare."""
        if not self._chance(0.12):
            return value
        self.odd = True
        put = msgspec.structs.force_setattr if isinstance(value, Struct) else object.__setattr__
        try:
            if names and self._chance(0.7):
                put(value, self.rng.choice(names), self.rng.choice(OTHERS))
            else:
                put(value, self.rng.choice(("stray", "beside", "_hidden")), 1)
        except AttributeError:  # it has slots
            pass
        return value


def _frozen_default(make: Make, seed: float) -> Any:
    return lambda: make(random.Random(seed))


def _touch(self: Any, given: int = 0) -> None:
    """Looks, and changes nothing."""


def _hidden(self: Any, value: Any) -> str:
    return "hidden"


def _total(self: Any) -> int:
    return 7
