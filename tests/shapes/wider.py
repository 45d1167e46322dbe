"""Shapes beside those of `generate`: what classes are made of in programs that use more of their
libraries, and classes that contain themselves."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections import OrderedDict, defaultdict, deque
from functools import partial
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar

import msgspec
import pydantic
from typing_extensions import ReadOnly, TypeAliasType, TypedDict

from tests.shapes.aliased import aliased
from tests.shapes.generate import A_LIST, A_TYPED_DICT, META, Generator
from tests.shapes.inherited import applied, inherited
from tests.shapes.leaves import Color, Level, Make, Mood, Rights, _of


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Word(str, enum.Enum):  # noqa: UP042
    YES = "yes"
    NO = "no"
    SAME = "yes"  # noqa: PIE796


class Place(enum.Enum):
    """Members of tuples, with a constructor."""

    HOME = (1, "h")
    AWAY = (2, "a")

    def __init__(self, number: int, letter: str) -> None:
        self.number, self.letter = number, letter


Number = NewType("Number", int)
Name = NewType("Name", str)

BESIDE: list[tuple[Any, Make]] = [
    (Level | int, _of(*Level, 1, 5)),
    (int | Level | None, _of(*Level, 1, None)),
    (Mood | str, _of(*Mood, "good", "bad")),
    (str | Mood | list[int], _of(*Mood, "good", [1])),
    (Mood | str | dict[str, int], _of(*Mood, "good", "bad")),
    (Word | str, _of(*Word, "yes")),
    (Color | str, _of(*Color, "red", "x")),
    (Rights | int, _of(Rights.READ, 1)),
    (Access | int, _of(Access.READ, 1, 2)),
    (Level | Mood | int | str, _of(*Level, *Mood, 1, "good")),
    (Level | float, _of(*Level, 1.0, 1.5)),
    (Literal[1] | Level, _of(1, *Level)),
]
"""An Enum beside the type of its values: stored, the two are one."""

SCALARS: list[tuple[Any, Make]] = [
    (Access, _of(Access.READ, Access.READ | Access.WRITE, Access(0))),
    (Word, _of(*Word)),
    (Place, _of(*Place)),
    (Number, _of(Number(3))),
    (Name, _of(Name("n"))),
    (Annotated[int, msgspec.Meta(ge=0)], _of(0, 5)),
    (Annotated[str, pydantic.Field(min_length=1)], _of("a", "ab")),
    (Annotated[list[int], pydantic.Field(max_length=3)], _of([], [1, 2])),
    (Literal[Color.RED, Level.LOW], _of(Color.RED, Level.LOW)),
    *BESIDE,
    (Literal[True, 0, "x"], _of(True, 0, "x")),
    (Optional[Color], _of(None, Color.BLUE)),  # noqa: UP045
    (Literal[Color.RED, "x", 5], _of(Color.RED, "x", 5)),
    (Optional[Literal[Place.HOME]], _of(None, Place.HOME)),  # noqa: UP045
    (dict[Literal[Level.LOW, Level.HIGH], int], _of({Level.LOW: 1}, {Level.HIGH: 2})),
    (deque[int], lambda rng: deque([1, 2])),
    (defaultdict[str, int], lambda rng: defaultdict(int, a=1)),
    (OrderedDict[str, int], lambda rng: OrderedDict(b=1, a=2)),
]


# -- classes that contain themselves ---------------------------------------------------------------


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)
    by_name: dict[str, Tree] = dataclasses.field(default_factory=dict)


class ModelTree(pydantic.BaseModel):
    name: str
    parent: ModelTree | None = None
    children: tuple[ModelTree, ...] = ()


class StructTree(msgspec.Struct):
    name: str
    left: StructTree | None = None
    right: StructTree | None = None


class DictTree(TypedDict, total=False):
    name: str
    inner: DictTree
    more: list[DictTree]


T = TypeVar("T")


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T] = []
    next: Page[T] | None = None
    by_name: dict[str, Page[T]] = {}


@dataclasses.dataclass
class Leaf:
    number: int = 0


class ModelLeaf(pydantic.BaseModel):
    number: int = 0


Twig: Any = TypeAliasType("Twig", "Leaf | list[Twig | None]")
ModelTwig: Any = TypeAliasType("ModelTwig", "ModelLeaf | list[ModelTwig] | None")
Nested: Any = TypeAliasType("Nested", "T | list[Nested[T]]", type_params=(T,))  # type: ignore[arg-type]


class Pair(NamedTuple):
    first: int
    second: str = "second"
    rest: tuple[int, ...] = ()


def _tree(rng: random.Random, depth: int = 0) -> Tree:
    made = Tree(f"t{depth}")
    if depth < 3:
        made.children = [_tree(rng, depth + 1) for _ in range(rng.randrange(3))]
        if rng.random() < 0.4:
            made.by_name = {"x": _tree(rng, depth + 1)}
    return made


def _model_tree(rng: random.Random, depth: int = 0) -> ModelTree:
    if depth == 3:
        return ModelTree(name="leaf")
    children = tuple(_model_tree(rng, depth + 1) for _ in range(rng.randrange(3)))
    parent = _model_tree(rng, 3) if rng.random() < 0.4 else None
    return ModelTree(name="m", parent=parent, children=children)


def _struct_tree(rng: random.Random, depth: int = 0) -> StructTree:
    left = _struct_tree(rng, depth + 1) if depth < 3 and rng.random() < 0.6 else None
    return StructTree("s", left, StructTree("r") if rng.random() < 0.5 else None)


def _dict_tree(rng: random.Random, depth: int = 0) -> DictTree:
    made = DictTree(name="d")
    if depth < 3 and rng.random() < 0.6:
        made["inner"] = _dict_tree(rng, depth + 1)
        made["more"] = [_dict_tree(rng, depth + 2)]
    return made


def _nested(leaf: Make, rng: random.Random, depth: int = 0, *, dicts: bool = False) -> Any:
    if depth == 4 or rng.random() < 0.3:
        return leaf(rng)
    if dicts and rng.random() < 0.4:
        return {name: _nested(leaf, rng, depth + 1, dicts=True) for name in "ab"}
    return [_nested(leaf, rng, depth + 1, dicts=dicts) for _ in range(rng.randrange(3))]


def _page(leaf: Make, kind: Any, rng: random.Random, depth: int = 0) -> Any:
    made = Page[kind](items=[leaf(rng)])
    if depth < 3:
        made.next = _page(leaf, kind, rng, depth + 1) if rng.random() < 0.6 else None
        made.by_name = {"a": _page(leaf, kind, rng, 3)} if rng.random() < 0.4 else {}
    return made


RECURSIVE: list[tuple[Any, Make]] = [
    (pydantic.JsonValue, partial(_nested, _of(1, "x", None, True, 1.5), dicts=True)),
    (Twig, partial(_nested, lambda rng: rng.choice([Leaf(3), [None]]))),
    (ModelTwig, partial(_nested, lambda rng: rng.choice([ModelLeaf(number=3), None]))),
    (Nested[int], partial(_nested, _of(1, 2))),
    (Nested[Leaf], partial(_nested, lambda rng: Leaf(3))),
    (Page[int], partial(_page, _of(1, 2), int)),
    (Page[ModelLeaf], partial(_page, lambda rng: ModelLeaf(number=3), ModelLeaf)),
    (Tree, _tree),
    (ModelTree, _model_tree),
    (StructTree, _struct_tree),
    (DictTree, _dict_tree),
    (Pair, _of(Pair(1), Pair(1, "x", (2, 3)))),
]


class Wider(Generator):
    """As `Generator`, and these: the same for a seed in every process, too."""

    def kind(self, depth: int) -> tuple[Any, Make]:
        if self._chance(0.15):
            return self.rng.choice(SCALARS)
        return super().kind(depth)

    def _composed(self, depth: int) -> tuple[Any, Make]:
        if self._chance(0.6):
            return super()._composed(depth)
        makers = (
            self._aliased,
            self._root_model,
            self._discriminated,
            self._choices,
            self._configured,
            self._derived,
            self._positional,
            self._array_like,
            self._tagged,
            self._read_only,
            self._pairs,
            self._inherited,
            self._applied,
            self._recursive,
            self._recursive,
        )
        maker = self.rng.choice(makers)
        if maker in (self._root_model, self._array_like) and self._chance(0.8):
            maker = self._recursive  # those are refused where they are declared, each
        return maker(depth + 1)

    def _recursive(self, depth: int) -> tuple[Any, Make]:
        return self.rng.choice(RECURSIVE)

    def _aliased(self, depth: int) -> tuple[Any, Make]:
        return aliased(self.rng, self._name(), self.kind(depth), self.kind(depth))

    # pydantic

    def _root_model(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        root: Any = pydantic.RootModel
        cls = META(
            self._name(),
            (root[kind],),
            {
                "__module__": __name__,
                "__annotations__": {},
                "model_config": pydantic.ConfigDict(arbitrary_types_allowed=True),
            },
        )
        return cls, lambda rng: cls.model_construct(make(rng))

    def _discriminated(self, depth: int) -> tuple[Any, Make]:
        """A field of one of two models, told apart by a word of theirs."""
        makes: list[Make] = []
        kinds: list[Any] = []
        for word in ("cat", "dog"):
            inner, make = self.kind(depth)
            cls = META(
                self._name(),
                (pydantic.BaseModel,),
                {
                    "__module__": __name__,
                    "kind": word,
                    "__annotations__": {"kind": Literal[word], "value": inner},
                    "model_config": pydantic.ConfigDict(arbitrary_types_allowed=True),
                },
            )
            kinds.append(cls)
            makes.append(partial(_construct, cls, make, kind=word))
        one_of: Any = kinds[0] | kinds[1]
        outer = META(
            self._name(),
            (pydantic.BaseModel,),
            {
                "__module__": __name__,
                "__annotations__": {"pet": one_of, "pets": A_LIST[one_of]},
                "pet": pydantic.Field(discriminator="kind"),
                "pets": pydantic.Field(default_factory=list),
            },
        )
        return outer, lambda rng: outer.model_construct(
            pet=rng.choice(makes)(rng), pets=[rng.choice(makes)(rng) for _ in range(2)]
        )

    def _choices(self, depth: int) -> tuple[Any, Make]:
        """Fields that come in under several names."""
        kind, make = self.kind(depth)
        how = self.rng.choice(
            (
                {"validation_alias": pydantic.AliasChoices("one", "other")},
                {"validation_alias": pydantic.AliasPath("deep", 0)},
                {"validation_alias": "in", "serialization_alias": "out"},
                {"alias": "class"},
            )
        )
        config = pydantic.ConfigDict(
            arbitrary_types_allowed=True,
            populate_by_name=self._chance(0.5),
            serialize_by_alias=self._chance(0.3),
        )
        body = {
            "__module__": __name__,
            "__annotations__": {"f0": kind, "f1": int},
            "f0": pydantic.Field(**how),
            "f1": 7,
            "model_config": config,
        }
        cls = META(self._name(), (pydantic.BaseModel,), body)
        return cls, lambda rng: cls.model_construct(f0=make(rng), f1=rng.choice((7, 8)))

    CONFIGURED: tuple[str, ...] = (
        "use_enum_values",
        "validate_assignment",
        "strict",
        "revalidate_instances",
        "str_strip_whitespace",
        "validate_default",
        "from_attributes",
    )

    def _configured(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        config: dict[str, Any] = {"arbitrary_types_allowed": True}
        for name in self.CONFIGURED:
            if self._chance(0.25):
                config[name] = "always" if name == "revalidate_instances" else True
        body = {
            "__module__": __name__,
            "__annotations__": {"f0": kind, "text": str},
            "text": " padded ",
            "model_config": pydantic.ConfigDict(**config),  # type: ignore[typeddict-item]
        }
        cls = META(self._name(), (pydantic.BaseModel,), body)

        def make_one(rng: random.Random) -> Any:
            try:
                return cls(f0=make(rng))  # as its configuration has it
            except pydantic.ValidationError:
                return cls.model_construct(f0=make(rng), text="x")

        return cls, make_one

    def _derived(self, depth: int) -> tuple[Any, Make]:
        """A model that inherits from another, which declares a field anew."""
        (kind, make), (other, make_other) = self.kind(depth), self.kind(depth)
        config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        base = META(
            self._name(),
            (pydantic.BaseModel,),
            {
                "__module__": __name__,
                "__annotations__": {"f0": Any, "f1": other},
                "model_config": config,
            },
        )
        cls = META(self._name(), (base,), {"__module__": __name__, "__annotations__": {"f0": kind}})
        return cls, lambda rng: cls.model_construct(f0=make(rng), f1=make_other(rng))

    # dataclasses, Structs, dicts

    def _positional(self, depth: int) -> tuple[Any, Make]:
        """One that inherits from one that was made here, by its position, with a sentinel."""
        (kind, make), (other, make_other) = self.kind(depth), self.kind(depth)
        frozen, slots = self._chance(0.3), self._chance(0.3)
        base = dataclasses.make_dataclass(
            self._name(), [("first", kind)], frozen=frozen, slots=slots, order=self._chance(0.2)
        )
        more: list[Any] = [("second", other)]
        if self._chance(0.4):
            more += [("_", dataclasses.KW_ONLY), ("third", int, dataclasses.field(default=3))]
        cls = dataclasses.make_dataclass(
            self._name(),
            more,
            bases=(base,),
            frozen=frozen,
            slots=slots,
            unsafe_hash=self._chance(0.2),
        )
        return cls, lambda rng: self._bent(cls(make(rng), make_other(rng)), ["first", "second"])

    def _array_like(self, depth: int) -> tuple[Any, Make]:
        (kind, make), (other, make_other) = self.kind(depth), self.kind(depth)
        base = msgspec.defstruct(self._name(), [("f0", kind)], array_like=True)
        cls = msgspec.defstruct(self._name(), [("f1", other)], bases=(base,), array_like=True)
        return cls, lambda rng: cls(make(rng), make_other(rng))

    def _tagged(self, depth: int) -> tuple[Any, Make]:
        """One of two Structs, told apart by a number or a word in a field of that name."""
        tags: Any = self.rng.choice(((1, 2), ("one", "two")))
        field = self.rng.choice(("type", "kind"))
        kinds: list[Any] = []
        makes: list[Make] = []
        for tag in tags:
            kind, make = self.kind(depth)
            cls = msgspec.defstruct(self._name(), [("f0", kind)], tag=tag, tag_field=field)
            kinds.append(cls)
            makes.append(partial(_call, cls, make))
        return kinds[0] | kinds[1], lambda rng: rng.choice(makes)(rng)

    def _read_only(self, depth: int) -> tuple[Any, Make]:
        kind, make = self.kind(depth)
        mark: Any = ReadOnly
        cls = A_TYPED_DICT(self._name(), {"f0": mark[kind], "f 1": int, "class": str}, total=False)
        return cls, lambda rng: {"f0": make(rng), "f 1": 1} if rng.random() < 0.7 else {"class": ""}

    # Type variables

    def _inherited(self, depth: int) -> tuple[Any, Make]:
        return inherited(self.rng, self._name(), self.kind(depth), self.kind(depth))

    def _applied(self, depth: int) -> tuple[Any, Make]:
        return applied(self.rng, self.kind(depth))

    def _pairs(self, depth: int) -> tuple[Any, Make]:
        """Containers in containers."""
        kind, make = self.kind(depth)
        inner: Any = A_LIST[tuple[A_LIST[kind], dict[str, A_LIST[kind]]]]
        return inner, lambda rng: [([make(rng)], {"k": [make(rng)], "": []})]


def _construct(cls: Any, make: Make, rng: random.Random, **more: Any) -> Any:
    return cls.model_construct(value=make(rng), **more)


def _call(cls: Any, make: Make, rng: random.Random) -> Any:
    return cls(make(rng))
