"""What goes into a state, or is a result, comes out equal, or is refused: shapes of classes."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NotRequired, TypeVar

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

import perdure
from perdure.core.schema.schema import Schema
from perdure.errors import SchemaError

T = TypeVar("T")


@dataclass
class Counter:
    name: str
    count: int = field(init=False, default=0)
    seen: list[int] = field(init=False, default_factory=list)


@dataclass
class Sum:
    parts: list[int]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@dataclass
class Log:
    name: str
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = []


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    size: int = field(init=False, default=0)


@dataclass(slots=True, kw_only=True)
class Derived(Counter):
    more: str = ""
    kind: ClassVar[str] = "derived"


@dataclass
class Scaled:
    size: int
    scale: InitVar[int] = 1
    scaled: int = field(init=False, default=0)

    def __post_init__(self, scale: int) -> None:
        self.scaled = self.size * scale


@dataclass
class Box(Generic[T]):
    item: T
    opened: int = field(init=False, default=0)


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict, total=False):
    title: str
    year: NotRequired[int]


class Tagged(msgspec.Struct, tag="t", rename="camel", omit_defaults=True, kw_only=True):
    long_name: str
    size: int = 3


class Aliased(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str = Field(validation_alias=pydantic.AliasChoices("a", "b"))
    also: int = Field(1, serialization_alias="z")

    @pydantic.field_serializer("also")
    def hide(self, value: int) -> str:
        return "hidden"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    one: int = 0


class Whole(BaseModel):
    counter: Counter
    log: Log | None = None
    sums: dict[str, Sum] = {}


def changed(value: Any, **fields: Any) -> Any:
    for name, item in fields.items():
        object.__setattr__(value, name, item)
    return value


SHAPES: list[tuple[Any, Any]] = [
    (Counter, changed(Counter("a"), count=3, seen=[1, 2])),
    (Sum, Sum([1, 2])),
    (Sum, changed(Sum([1, 2]), total=7)),
    (Log, changed(Log("a"), lines=["one"])),
    (Frozen, changed(Frozen("a"), size=4)),
    (Derived, changed(Derived(name="a", more="b"), count=5, seen=[9])),
    (Scaled, Scaled(3, 5)),
    (Box[int], changed(Box(1), opened=2)),
    (list[Counter], [changed(Counter("a"), count=3)]),
    (dict[str, Box[Color]], {"a": changed(Box(Color.RED), opened=1)}),
    (Whole, Whole(counter=changed(Counter("a"), count=2), log=changed(Log("b"), lines=["x"]))),
    (Whole, Whole(counter=Counter("a"), sums={"s": changed(Sum([1]), total=9)})),
    (Point, Point(1, 2)),
    (Movie, {"year": 1999}),
    (Tagged, Tagged(long_name="a", size=4)),
    (Aliased, Aliased(a="n", also=7)),  # type: ignore[call-arg]
    (Open, Open(one=1, two=[2])),  # type: ignore[call-arg]
    (list[Annotated[Color, "mark"]], [Color.RED]),
]


@pytest.mark.parametrize(("kind", "value"), SHAPES, ids=lambda one: f"{one!r:.30}")
def test_it_comes_back_equal(kind: Any, value: Any, tmp_path: Any) -> None:
    """A dataclass field with `init=False` was dropped without a word by `initial=`, `save` and the
    results of steps: what it held was gone after the next start."""
    url = str(tmp_path / "a.db")

    @perdure.step(returns=kind)
    def give() -> Any:
        return value

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> bool:
        return bool(give() == value)

    with perdure.open(url, durability="os") as store:
        assert store.run(f, "run")
    schema: Schema[Any] = Schema(kind)
    plain = schema.take(value, aliases_refused=True)
    assert schema.build(plain) == value and schema.drift(schema.build(plain), plain) == []
    with perdure.open(url, durability="os") as store:
        holder = perdure.Schema(dict[str, kind], id="holder")
        agent = store.agent("a", holder, initial={"x": value})
        agent.checkpoint("made")
    with perdure.open(url, durability="os") as store:
        agent = store.agent("a", holder)
        assert agent.state == {"x": value} and agent.drift() == []
        with agent.edit("again") as draft:
            draft["y"] = agent.state["x"]
    with perdure.open(url, durability="os") as store:
        assert store.agent("a", holder).state == {"x": value, "y": value}


def test_an_edit_sets_no_field_back_that_post_init_begins_empty(tmp_path: Any) -> None:
    """`__post_init__` runs as the class's own check of an edit. What it sets anew is taken over
    where it follows from the other fields, and not where something came since."""
    with perdure.open(str(tmp_path / "a.db"), durability="os") as store:
        log = store.agent("log", Log, initial=Log("a"))
        with log.edit("a line") as draft:
            draft.lines.append("one")
        with log.edit("another name") as draft:
            draft.name = "b"
        total = store.agent("sum", Sum, initial=Sum([1]))
        with total.edit("more") as sums:
            sums.parts.append(2)
    with perdure.open(str(tmp_path / "a.db"), durability="os") as store:
        assert store.agent("log", Log).state == changed(Log("b"), lines=["one"])
        assert store.agent("sum", Sum).state == Sum([1, 2])


def test_what_was_stored_without_such_fields_is_read(tmp_path: Any) -> None:
    """Older versions did not store them."""
    schema: Schema[Any] = Schema(Sum)
    assert schema.build({"parts": [1, 2]}) == Sum([1, 2])
    assert schema.drift(Sum([1, 2]), {"parts": [1, 2]}) == []
    assert Schema(Counter).build({"name": "a"}) == Counter("a")


@dataclass
class Needs:
    size: int
    scale: InitVar[int]


@pydantic.dataclasses.dataclass
class OfPydantic:
    size: int
    late: int = field(init=False, default=0)


@pytest.mark.parametrize("kind", [Needs, OfPydantic])
def test_what_cannot_be_made_again_is_refused_where_it_is_declared(kind: Any) -> None:
    with pytest.raises(SchemaError, match=r"scale|late"):
        Schema(kind).root


class Other(enum.Enum):
    RED = "red"


@dataclass
class Colored:
    color: Color
    name: str = ""


@pytest.mark.parametrize(
    "value",
    [Colored(Other.RED), Colored(Color.RED, Color.RED)],  # type: ignore[arg-type]
)
def test_an_enum_where_another_type_is_declared_is_refused(value: Any) -> None:
    """Its bare value was stored: a text, or another enum's member, came back."""
    with pytest.raises(perdure.Unstorable, match=r"state\.(color|name)"):
        Schema(Colored).take(value, aliases_refused=True)
    assert Schema(Colored).take(Colored(Color.RED), aliases_refused=True)["color"] == "red"


class Private(BaseModel):
    name: str
    _seen: int = 0
    _client: perdure.Ephemeral[object] = pydantic.PrivateAttr(None)
    _length: int = 0
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)

    def model_post_init(self, context: Any, /) -> None:
        self._length = len(self.name)


@pytest.mark.parametrize("kind", [Private, list[Private], dict[str, Private | int]])
def test_a_private_attribute_that_would_be_lost_is_refused(kind: Any) -> None:
    """What a model kept in a private attribute was dropped without a word."""

    def around(value: Private) -> Any:
        return value if kind is Private else [value] if kind == list[Private] else {"a": value}

    value = Private(name="abc")
    value._client = object()  # lives in memory only: the class says so
    schema: Schema[Any] = Schema(kind)
    assert schema.take(around(value), aliases_refused=True) == around_plain(kind)
    value._seen = 3
    with pytest.raises(perdure.Unstorable, match=r"_seen.*private attribute"):
        schema.take(around(value), aliases_refused=True)


def around_plain(kind: Any) -> Any:
    plain = {"name": "abc"}
    return plain if kind is Private else [plain] if kind == list[Private] else {"a": plain}


@dataclass
class Sequences:
    many: Sequence[int] = ()
    each: Set[str] = frozenset()
    exact: list[int] = field(default_factory=list)
    pair: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "value",
    [
        Sequences(),
        Sequences((1, 2), {"a"}),
        Sequences([1], frozenset("ab"), [1], (1,)),
        Sequences([], set()),
    ],
)
def test_a_sequence_stays_the_kind_that_it_is(value: Sequences, tmp_path: Any) -> None:
    """A tuple where `Sequence` is declared came back as a list, a frozenset as a set."""
    url = str(tmp_path / "a.db")
    with perdure.open(url, durability="os") as store:
        agent = store.agent("a", Sequences, initial=value)
        with agent.edit("more") as draft:
            assert (draft.many, draft.each) == (value.many, value.each)
            draft.exact.append(5)
            draft.many = (*draft.many, 7)
    with perdure.open(url, durability="os") as store:
        state = store.agent("a", Sequences).state
    expected = dataclasses.replace(value, many=(*value.many, 7), exact=[*value.exact, 5])
    assert state == expected and type(state.each) is type(value.each)


class Shout(BaseModel):
    text: Annotated[str, pydantic.AfterValidator(str.upper)] = ""
    many: list[int] = []


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Sequences, Sequences(exact=(1,)), "exact"),  # type: ignore[arg-type]
        (Sequences, Sequences(pair=[1]), "pair"),  # type: ignore[arg-type]
        (list[Sequences], [Sequences(exact=(1,))], "exact"),  # type: ignore[arg-type]
        (Shout, Shout.model_construct(text="low"), "text"),
        (Shout, Shout.model_construct(text="LOW", many=(1,)), "many"),
        (Colored, Colored("red"), "color"),  # type: ignore[arg-type]
    ],
)
def test_an_instance_that_would_come_back_otherwise_is_refused(
    kind: Any, value: Any, path: str
) -> None:
    """Another kind of container, a text for an Enum, and what a validator would change in an
    instance that it never saw, came back as something else than was given."""
    with pytest.raises(perdure.Unstorable, match=path):
        Schema(kind).take(value, aliases_refused=True)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"
    SAD = "sad"


class Beside(BaseModel):
    level: Level | int = 5
    mood: str | Mood = "bad"
    many: dict[Mood | str, list[Level | int]] = {}
    seen: set[Level | int] = set()


def test_an_enum_beside_the_type_of_its_values_is_kept_or_refused() -> None:
    """Where `Level | int` is declared, `Level.LOW` came back as 1: equal to it, and of the other
    type. What the union tells apart is kept."""
    schema = Schema(Beside)
    kept = Beside(level=1, mood="good", many={"good": [1]}, seen={1})
    back = schema.build(schema.take(kept, aliases_refused=True))
    assert back == kept and type(back.level) is int and type(back.mood) is str
    for refused, path in [
        (Beside(level=Level.LOW), r"state\.level: a Level would come back as a int"),
        (Beside(mood=Mood.GOOD), r"state\.mood"),
        (Beside(many={Mood.GOOD: []}), r"state\.many"),
        (Beside(many={"a": [Level.LOW]}), r"state\.many\.a\[0\]"),
        (Beside(seen={Level.LOW}), r"state\.seen"),
    ]:
        with pytest.raises(perdure.Unstorable, match=path):
            schema.take(refused, aliases_refused=True)


def test_an_enum_beside_the_type_of_its_values_in_a_draft() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Beside, initial=Beside())
        with agent.edit("begun") as draft:
            draft.many["good"] = []
            draft.seen.add(1)
        changes: list[Callable[[Any], Any]] = [
            lambda draft: setattr(draft, "level", Level.LOW),
            lambda draft: draft.many.update({Mood("good"): [Level.LOW]}),
            lambda draft: draft.many["good"].append(Level.LOW),
        ]
        for change in changes:
            with pytest.raises(perdure.Unstorable, match="a Level would come back as a int"):
                agent.update(change)
        with pytest.raises(perdure.Unstorable, match="a Mood would come back as a str"):
            agent.update(lambda draft: draft.many.update({Mood.SAD: []}))
        with pytest.raises(perdure.Unstorable, match="a Level would come back as a int"):
            agent.update(lambda draft: draft.seen.update([1, Level.HIGH]))
        with agent.edit("found, as what it is equal to") as draft:
            assert Mood.GOOD in draft.many and Level.LOW in draft.seen
            draft.many[Mood.GOOD] = [7]
            draft.seen.add(Level.LOW)
        assert agent.state.many == {"good": [7]} and type(next(iter(agent.state.many))) is str
        assert {type(one) for one in agent.state.seen} == {int}


@dataclass
class OrList:
    mood: Mood | str | list[int]


def test_a_text_beside_an_enum_does_not_become_its_member() -> None:
    schema = Schema(OrList)
    for taken in (OrList(Mood.GOOD), OrList("bad"), OrList([1])):
        back = schema.build(schema.take(taken, aliases_refused=True))
        assert back == taken and type(back.mood) is type(taken.mood)
    for given in (OrList("good"), {"mood": "good"}):
        with pytest.raises(perdure.Unstorable, match="a str would come back as a Mood"):
            schema.take(given, aliases_refused=True)


def test_plain_data_is_converted_as_the_library_does() -> None:
    schema: Schema[Any] = Schema(Shout)
    assert schema.take({"text": "low", "many": (1,)}, aliases_refused=True) == {
        "text": "LOW",
        "many": [1],
    }


@dataclass
class Items(list[int]):
    name: str = ""


@dataclass
class Failure(Exception):
    code: int = 0


class Slotted:
    __slots__ = ("__hidden", "beside")


@dataclass
class OfSlots(Slotted):
    name: str = ""


def test_what_no_field_shows_is_refused() -> None:
    """The items of a dataclass that is a list as well, and what stood in slots of a base, were
    dropped without a word."""
    for kind in (Items, Failure):
        with pytest.raises(SchemaError, match="no field shows"):
            Schema(kind).root
    schema: Schema[Any] = Schema(OfSlots)
    value = OfSlots("a")
    assert schema.take(value, aliases_refused=True) == {"name": "a"}
    value.beside = 1  # type: ignore[attr-defined]
    with pytest.raises(perdure.Unstorable, match="beside"):
        schema.take(value, aliases_refused=True)
    hidden = OfSlots("a")
    hidden._Slotted__hidden = 1  # type: ignore[attr-defined]
    with pytest.raises(perdure.Unstorable, match="hidden"):
        schema.take(hidden, aliases_refused=True)


class Login(BaseModel):
    password: str = ""
    tags: list[str] = []

    @field_validator("password")
    @classmethod
    def hashed(cls, value: str) -> str:
        return f"#{value}" if value else value

    @field_validator("tags")
    @classmethod
    def marked(cls, value: list[str]) -> list[str]:
        return [tag.strip() for tag in value] + ["checked"] if value else value


@dataclass
class Price:
    cents: int = 0
    n: int = 0

    def __post_init__(self) -> None:
        self.cents += self.cents // 5


class Logins(BaseModel):
    all: list[Login] = []
    by: dict[str, Price] = {}


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda draft: setattr(draft.all[0], "password", "x"), r"state\.all\[0\]\.password"),
        (lambda draft: draft.all[0].tags.append("x"), r"state\.all\[0\]\.tags"),
        (lambda draft: setattr(draft.by["a"], "cents", 100), r"state\.by\.a\.cents"),
    ],
)
def test_what_a_validator_changes_each_time_is_refused_in_an_edit(act: Any, path: str) -> None:
    """Story: a password was hashed by a validator of the class. An edit committed the hash, and all
    but the handle that made it read the hash of that. A whole value was refused all along."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Logins, initial=Logins(all=[Login()], by={"a": Price()}))
        agent.checkpoint("made")
        with pytest.raises(perdure.Unstorable, match=rf"{path}: validating it a second time"):
            agent.update(act)
        agent.update(lambda draft: setattr(draft.by["a"], "n", 1))
        after = Logins(all=[Login()], by={"a": Price(0, 1)})
        assert agent.state == store.agent("a", Logins).state == after
