"""Plans: what ops touch is validated, and the live object follows without being rebuilt."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perdure.core.draft.draft import Recording, increment, move
from perdure.core.schema.schema import Ephemeral, Schema
from perdure.core.values import diff as diffs
from perdure.core.values import ops
from perdure.core.values.ops import Append, Delete, Op, Set, Splice
from perdure.core.values.plain_values import copy, same
from perdure.errors import Drifted, SchemaError


def inverses_of(plain: Any, delta: list[Op]) -> list[Op]:
    """Of each op, as it finds the plain value, which is changed."""
    inverses = []
    for op in delta:
        inverses.append(ops.invert(plain, op))
        plain = ops.apply(plain, ops.own(op))
    return inverses


class Message(BaseModel):
    role: str = "user"
    content: str = ""
    tags: list[str] = []

    @field_validator("content")
    @classmethod
    def strip(cls, text: str) -> str:
        return text.strip()


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str = ""
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = ""
    tricks: list[str] = []


class Ticket(BaseModel):
    customer: str = "c"
    priority: Annotated[int, Field(ge=0, le=9)] = 0
    messages: Annotated[list[Message], Field(max_length=4)] = []
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    client: Ephemeral[Any] = None
    by_id: dict[int, Message] = {}


class Span(BaseModel):
    low: int = 0
    high: int = 10
    width: int = 10
    parts: list[int] = []

    @model_validator(mode="after")
    def check(self) -> Span:
        if self.low > self.high:
            raise ValueError("low is above high")
        if sum(self.parts) > 100:
            raise ValueError("the parts are too much")
        self.width = self.high - self.low
        return self


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str = "a"
    inner: Message = Message()

    @field_validator("name")
    @classmethod
    def not_empty(cls, name: str) -> str:
        assert name, "empty"
        return name.strip()


@dataclass(frozen=True, slots=True)
class FrozenData:
    name: str = "a"
    items: list[int] = field(default_factory=list)


class FrozenStruct(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)] = "a"
    items: Annotated[list[int], msgspec.Meta(max_length=2)] = []


class CatStruct(msgspec.Struct, tag="cat"):
    lives: int = 9


class DogStruct(msgspec.Struct, tag="dog"):
    tricks: list[str] = []


class Room(msgspec.Struct):
    pet: CatStruct | DogStruct


class Movie(TypedDict, total=False):
    title: str
    year: int


def put(target: Any, name: str, value: Any) -> Any:
    setattr(target, name, value)


class State:
    """A state with its live object, and one change of it."""

    def __init__(self, type_: Any, value: Any) -> None:
        self.schema: Schema[Any] = Schema(type_)
        self.plain = self.schema.take(value, aliases_refused=True)
        self.before = copy(self.plain)
        self.typed = self.schema.build(self.plain)
        self.ops: list[Op] = []

    def change(self, act: Callable[[Any], Any]) -> Any:
        recording = Recording(self.schema, self.plain, typed=self.typed)
        try:
            act(recording.draft)
            self.plan(recording.ops, recording.inverses)
        except BaseException:
            recording.rollback()
            assert same(self.plain, self.before)
            raise
        recording.apply_ephemeral(self.typed)
        return self.typed

    def save(self, value: Any) -> Any:
        delta = diffs.diff(self.plain, self.schema.take(value, aliases_refused=True))
        return self.commit(delta)

    def commit(self, delta: list[Op]) -> Any:
        inverses = inverses_of(copy(self.plain), delta)
        for op in delta:
            self.plain = ops.apply(self.plain, op)
        self.plan(delta, inverses)
        return self.typed

    def plan(self, recorded: list[Op], inverses: list[Op]) -> None:
        plan = self.schema.plan(self.typed, self.plain, recorded, inverses)
        self.typed = plan.apply()
        self.ops = recorded
        taken = self.schema.take(self.typed, aliases_refused=True)
        again = self.schema.take(self.schema.build(self.plain), aliases_refused=True)
        assert same(taken, again)
        assert same(ops.fold(copy(self.before), recorded), self.plain)
        assert same(ops.fold(copy(self.plain), reversed(inverses)), self.before)
        self.before = copy(self.plain)
        assert self.schema.drift(self.typed, self.plain) == []


def ticket(*texts: str) -> State:
    return State(Ticket, Ticket(messages=[Message(content=text) for text in texts]))


# Validation


def test_the_live_object_stays_the_same_one() -> None:
    state = ticket("a", "b")
    root, first = state.typed, state.typed.messages[0]
    state.change(lambda d: (put(d.messages[0], "content", "x"), d.messages.append(Message())))
    assert state.typed is root and root.messages[0] is first
    assert [m.content for m in root.messages] == ["x", "b", ""]


def test_validators_of_a_field_run_and_normalise() -> None:
    state = ticket("a")
    state.change(lambda d: put(d.messages[0], "content", "  x  "))
    assert state.ops == [Set(("messages", 0, "content"), "x")]
    assert state.plain["messages"][0]["content"] == "x"


def test_what_is_changed_after_it_was_appended_is_validated_too() -> None:
    state = ticket()

    def act(draft: Any) -> None:
        draft.messages.append(Message(content="a"))
        draft.messages[0].content = "  b "
        draft.messages[0].tags.append("t")

    state.change(act)
    assert len(state.ops) == 1 and isinstance(state.ops[0], Append)
    assert state.typed.messages[0] == Message(content="b", tags=["t"])


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda d: put(d, "priority", 10), "state.priority"),
        (lambda d: increment(d, "priority", 10), "state.priority"),
        (lambda d: put(d, "priority", "many"), "state.priority"),
        (lambda d: put(d.messages[0], "role", None), "state.messages[0].role"),
        (lambda d: d.messages.append({"role": 1}), "state.messages[1].role"),
        (lambda d: d.messages[0].tags.append(1), "state.messages[0].tags[0]"),
        (lambda d: d.messages.extend([Message() for _ in range(4)]), "state.messages"),
        (lambda d: d.by_id.__setitem__("x", Message()), "state.by_id"),
        (lambda d: put(d.pet, "lives", "x"), "state.pet.lives"),
    ],
)
def test_what_does_not_fit_is_refused_by_path(act: Any, path: str) -> None:
    state = ticket("a")
    before = state.typed.model_copy(deep=True)
    with pytest.raises(SchemaError) as caught:
        state.change(act)
    assert caught.value.target.startswith(path)
    assert state.typed == before


def test_validators_over_several_fields_see_all_changes_at_once() -> None:
    state = State(Span, Span())

    def act(draft: Any) -> None:
        draft.low = 20
        draft.high = 50

    state.change(act)
    assert state.typed.width == 30
    assert state.plain["width"] == 30, "what a validator computes is logged"
    with pytest.raises(SchemaError, match="low is above high"):
        state.change(lambda d: put(d, "low", 60))
    with pytest.raises(SchemaError, match="too much"):
        state.change(lambda d: d.parts.append(101))
    state.change(lambda d: (d.parts.append(7), put(d, "low", 21)))


def test_a_failed_plan_leaves_ops_and_plain_as_they_were() -> None:
    state = State(list[Span], [Span(), Span()])
    delta: list[Op] = [Set((0, "low"), 3), Set((1, "low"), 99)]
    inverses = inverses_of(copy(state.plain), delta)
    for op in delta:
        ops.apply(state.plain, op)
    after = copy(state.plain)
    with pytest.raises(SchemaError, match="low is above high"):
        state.schema.plan(state.typed, state.plain, delta, inverses)
    assert same(state.plain, after)
    assert delta == [Set((0, "low"), 3), Set((1, "low"), 99)]
    assert state.typed == [Span(), Span()]


def test_frozen_classes_are_updated_all_the_same() -> None:
    state = State(Frozen, Frozen())
    state.change(lambda d: (put(d, "name", " b "), put(d.inner, "content", "c")))
    assert state.typed == Frozen(name="b", inner=Message(content="c"))
    assert "name" in state.typed.model_fields_set
    with pytest.raises(SchemaError, match="empty"):
        state.change(lambda d: put(d, "name", ""))
    data = State(FrozenData, FrozenData())
    data.change(lambda d: (put(d, "name", "b"), d.items.append(1)))
    assert data.typed == FrozenData("b", [1])
    struct = State(FrozenStruct, FrozenStruct())
    struct.change(lambda d: (put(d, "name", "b"), d.items.extend([1, 2])))
    assert struct.typed == FrozenStruct("b", [1, 2])
    with pytest.raises(SchemaError):
        struct.change(lambda d: put(d, "name", ""))
    with pytest.raises(SchemaError, match="at most 2") as caught:
        struct.change(lambda d: d.items.append(3))
    assert caught.value.target == "state.items"


def test_post_init_is_a_validator() -> None:
    @dataclass
    class Positive:
        n: int = 1

        def __post_init__(self) -> None:
            if self.n < 0:
                raise ValueError("negative")

    state = State(Positive, Positive())
    state.change(lambda d: put(d, "n", 2))
    with pytest.raises(SchemaError, match="negative"):
        state.change(lambda d: put(d, "n", -2))


def test_pydantic_dataclasses() -> None:
    @pydantic.dataclasses.dataclass
    class Data:
        n: Annotated[int, Field(ge=0)] = 0
        items: list[Message] = Field(default_factory=list)

    state = State(Data, Data())
    state.change(lambda d: (put(d, "n", "5"), d.items.append(Message(content=" x"))))
    assert state.typed == Data(5, [Message(content="x")])
    with pytest.raises(SchemaError):
        state.change(lambda d: put(d, "n", -1))


def test_typed_dicts() -> None:
    state = State(Movie, {"title": "t"})
    state.change(lambda d: d.update(year=1))
    assert state.typed == {"title": "t", "year": 1}
    state.change(lambda d: d.pop("year"))
    with pytest.raises(SchemaError, match=r"state\.year"):
        state.change(lambda d: d.update(year="x"))
    with pytest.raises(SchemaError, match="no such field"):
        state.change(lambda d: d.update(other=1))


# Unions


def test_changes_inside_a_member_of_a_union() -> None:
    state = ticket()
    pet = state.typed.pet
    state.change(lambda d: put(d.pet, "lives", 8))
    assert state.typed.pet is pet and pet.lives == 8


def test_a_union_that_becomes_another_member() -> None:
    state = ticket()
    state.change(lambda d: put(d, "pet", Dog(tricks=["sit"])))
    assert state.typed.pet == Dog(tricks=["sit"])
    state.save(Ticket(pet=Cat(name="x")))
    assert state.typed.pet == Cat(name="x")
    room = State(Room, Room(pet=CatStruct()))
    room.save(Room(pet=DogStruct(tricks=["sit"])))
    assert room.typed == Room(pet=DogStruct(tricks=["sit"]))
    room.change(lambda d: d.pet.tricks.append("run"))
    with pytest.raises(SchemaError):
        ticket().change(lambda d: put(d.pet, "kind", "dog"))


# Ops from elsewhere


def test_whole_values_are_saved_as_diffs() -> None:
    state = ticket("a", "b", "c")
    second = state.typed.messages[1]
    state.save(Ticket(messages=[Message(content=text) for text in ("a", "b", "x", "y")]))
    assert state.typed.messages[1] is second
    state.save(Ticket(messages=[], priority=3))
    assert state.typed == Ticket(priority=3)


def test_inverses_of_several_commits_in_one_delta() -> None:
    state = ticket("a")
    state.commit(
        [
            Set(("by_id",), {1: {"role": "user", "content": "x", "tags": []}}),
        ]
    )
    state.commit(
        [
            Splice(("messages",), 0, 1, []),
            Append(("messages",), [{"role": "r", "content": "y", "tags": []}]),
            Set(("by_id", 1, "content"), "z"),
            Delete(("by_id", 1)),
        ]
    )
    assert state.typed == Ticket(messages=[Message(role="r", content="y")])


def test_replacing_the_root_gives_a_new_one_and_keeps_ephemeral_fields() -> None:
    state = ticket("a")
    state.typed.client = "live"
    old = state.typed
    state.commit([Set((), Ticket(priority=2).model_dump(exclude={"client"}))])
    assert state.typed is not old
    assert state.typed.priority == 2 and state.typed.client == "live"


def test_fields_of_newer_programs_are_left_alone() -> None:
    state = ticket("a")
    state.plain["new"] = {"x": [1]}
    state.plain["messages"][0]["new"] = 1
    state.before = copy(state.plain)
    state.change(lambda d: put(d.messages[0], "content", "b"))
    assert state.plain["messages"][0]["new"] == 1
    state.commit([Set(("new", "x"), 2), Delete(("messages", 0, "new"))])
    assert state.plain["new"] == {"x": 2}
    message = {"role": "r", "content": "c", "tags": [], "new": 5}
    state.commit([Splice(("messages",), 0, 0, [copy(message)])])
    assert state.plain["messages"][0] == message


def test_a_default_that_is_not_stored_is_not_written_by_other_changes() -> None:
    state = State(Ticket, Ticket())
    state.plain = {"customer": "c"}
    state.before = copy(state.plain)
    state.typed = state.schema.build(state.plain)
    state.change(lambda d: put(d, "customer", "x"))
    assert state.plain == {"customer": "x"}
    state.change(lambda d: d.messages.append(Message(content="a")))
    assert set(state.plain) == {"customer", "messages"}
    assert state.ops == [Set(("messages",), [{"role": "user", "content": "a", "tags": []}])]
    state.commit([Delete(("messages",))])
    assert state.typed.messages == []


class Sums:
    n: int
    items: list[int]

    @functools.cached_property
    def total(self) -> int:
        return self.n + sum(self.items)


class SumsModel(BaseModel, Sums):
    n: int = 1
    items: list[int] = []


class SumsStruct(msgspec.Struct, Sums, dict=True):
    n: int = 1
    items: list[int] = []


@dataclass
class SumsDataclass(Sums):
    n: int = 1
    items: list[int] = field(default_factory=list)


@pytest.mark.parametrize("kind", [SumsModel, SumsStruct, SumsDataclass])
def test_caches_of_the_object_are_forgotten(kind: Any) -> None:
    """Story: of a Struct, a cached sum stayed what it was after an edit that set a field, as long
    as the handle lived: the program acted on a total that no state had."""
    state = State(kind, kind())
    assert state.typed.total == 1
    state.change(lambda d: d.items.append(4))
    assert state.typed.total == 5
    state.change(lambda d: put(d, "n", 2))
    assert state.typed.total == 6


# Drift


@pytest.mark.parametrize(
    ("drift", "act", "path"),
    [
        (lambda t: setattr(t, "priority", 5), lambda d: put(d, "priority", 3), "priority"),
        (lambda t: setattr(t, "priority", 5), lambda d: increment(d, "priority"), "priority"),
        (
            lambda t: t.messages.append(Message()),
            lambda d: d.messages.append(Message()),
            "messages",
        ),
        (
            lambda t: setattr(t.messages[-1], "content", "x"),
            lambda d: d.messages.append(Message()),
            "messages[1]",
        ),
        (
            lambda t: setattr(t.messages[0], "content", "x"),
            lambda d: d.messages.pop(0),
            "messages[0]",
        ),
        (lambda t: t.messages.pop(), lambda d: put(d.messages[1], "content", "x"), "messages[1]"),
        (lambda t: t.messages.pop(0), lambda d: d.messages.insert(1, Message()), "messages"),
        (lambda t: setattr(t, "messages", ()), lambda d: d.messages.append(Message()), "messages"),
        (lambda t: t.by_id.clear(), lambda d: d.by_id.pop(1), "by_id[1]"),
        (lambda t: setattr(t.by_id[1], "content", "y"), lambda d: d.by_id.pop(1), "by_id[1]"),
        (
            lambda t: setattr(t, "customer", "long" * 40),
            lambda d: put(d, "customer", d.customer + "!"),
            "customer",
        ),
        (lambda t: t.messages.pop(), lambda d: move(d.messages, 0, 1), "messages"),
    ],
)
def test_a_change_outside_edit_is_found_where_it_matters(drift: Any, act: Any, path: str) -> None:
    state = State(
        Ticket,
        Ticket(
            customer="c" * 100,
            messages=[Message(content="a"), Message(content="b")],
            by_id={1: Message()},
        ),
    )
    drift(state.typed)
    with pytest.raises(Drifted) as caught:
        state.change(act)
    assert caught.value.target.startswith(f"state.{path}")
    assert "outside edit" in str(caught.value) and "refresh()" in caught.value.hint


def test_drift_elsewhere_does_not_matter() -> None:
    state = ticket("a", "b", "c")
    state.typed.priority = 7
    recording = Recording(state.schema, state.plain)
    recording.draft.messages[1].content = "x"
    plan = state.schema.plan(state.typed, state.plain, recording.ops, recording.inverses)
    plan.apply()
    assert state.typed.priority == 7
    (drift,) = state.schema.drift(state.typed, state.plain)
    assert (drift.path, drift.in_memory) == ("state.priority", 7)


def test_ephemeral_fields_are_written_to_the_live_object_only() -> None:
    state = ticket("a")
    state.change(lambda d: put(d, "client", "c"))
    assert state.ops == [] and state.typed.client == "c"
    state.change(lambda d: put(d, "customer", d.client + "!"))
    assert state.typed.customer == "c!" and state.typed.client == "c"
    assert "client" not in state.plain


# Types that no library validates as a whole


@dataclass
class Started:
    at: int = 0
    log: list[str] = field(default_factory=list)


@dataclass
class Ended:
    why: str


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass
class Mixed:
    events: Annotated[list[Started | Ended], msgspec.Meta(max_length=3)] = field(
        default_factory=list
    )
    point: Point = field(default_factory=Point)
    message: Message = field(default_factory=Message)
    when: int | str | None = None
    extra: Started | dict[str, int] | None = None
    pair: tuple[int, Ended] | None = None
    marks: set[int] = field(default_factory=set)


def test_unions_of_dataclasses_and_mixed_libraries() -> None:
    state = State(Mixed, Mixed(events=[Started(at=1), Ended("x")], pair=(1, Ended("p"))))
    first = state.typed.events[0]

    def act(draft: Any) -> None:
        draft.events[0].log.append("a")
        draft.events[1].why = "z"
        draft.events.append(Ended("y"))
        draft.point.x = 4
        draft.message.content = " m "
        draft.extra = {"k": 1}
        draft.when = "now"
        draft.marks |= {1}

    state.change(act)
    assert state.typed.events == [Started(1, ["a"]), Ended("z"), Ended("y")]
    assert state.typed.events[0] is first
    assert state.typed.message == Message(content="m") and state.typed.extra == {"k": 1}
    for act in (
        lambda d: put(d.events[0], "at", "x"),
        lambda d: d.events.append({"other": 1}),
        lambda d: put(d.point, "x", -1),
        lambda d: put(d, "pair", (1,)),
        lambda d: d.events.append(Ended("fourth")),
        lambda d: put(d, "when", 1.5),
        lambda d: put(d, "point", {"x": -1}),
    ):
        with pytest.raises(SchemaError):
            state.change(act)
