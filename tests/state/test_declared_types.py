"""Types that say too little of a value, or that are judged by what the log does not have."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    DirectoryPath,
    FilePath,
    FutureDate,
    FutureDatetime,
    NewPath,
    PastDatetime,
    PlainSerializer,
    PlainValidator,
    RootModel,
    StrictInt,
)
from pydantic import Strict as PydanticStrict
from typing_extensions import TypedDict

import perdure


@pytest.mark.parametrize(
    "name", ["Collection", "Iterable", "Container", "Reversible", "Sized", "Hashable"]
)
def test_a_type_that_may_be_anything_with_items_is_refused_by_its_name(name: str) -> None:
    """A list under `Collection` was read as a copy of its own: what an edit appended to it was
    lost, and nobody was told. Others were refused in a library's words, at a value that was right.
    """
    kind: Any = getattr(collections.abc, name)
    held = kind if name in ("Sized", "Hashable") else kind[str]

    made: Any = dataclass(type("Held", (), {"__annotations__": {"items": held}, "items": None}))
    with (
        perdure.open("memory://") as store,
        pytest.raises(perdure.SchemaError, match=f"{name} is ambiguous(?s:.*)declare Sequence"),
    ):
        store.agent("a", made, initial=made(["a"])).checkpoint("c")


class Vector:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    __hash__ = None  # type: ignore[assignment]


Point = Annotated[
    Vector,
    PlainValidator(lambda given: given if isinstance(given, Vector) else Vector(*given)),
    PlainSerializer(lambda vector: [vector.x, vector.y]),
]


class Walk(BaseModel):
    at: Point
    path: list[Point] = []


def test_values_with_a_plain_form_of_their_own_are_no_aliases_of_each_other() -> None:
    """The lists that they were dumped as were compared by their ids, which the next one got when
    one was gone: of two different vectors, one was said to stand where the other did."""
    walk = Walk(at=Vector(0, 0), path=[Vector(n, n) for n in range(50)])
    with perdure.open("memory://") as store:
        agent = store.agent("a", Walk, initial=walk)
        with agent.edit() as draft:
            draft.path = [Vector(n, -n) for n in range(50)]
        assert store.agent("a", Walk).state.path == [Vector(n, -n) for n in range(50)]


@pytest.mark.parametrize("kind", [FutureDatetime, FutureDate, FilePath, DirectoryPath, NewPath])
def test_i6_a_type_that_is_judged_by_clock_or_disk_is_refused(kind: Any) -> None:
    """A date in the future was right when it was committed. A second later nobody could read the
    agent any more, and the run that had waited for that date could never go on."""

    class Reminder(BaseModel):
        due: kind | None = None
        words: list[str] = field(default_factory=list)

    with (
        perdure.open("memory://") as store,
        pytest.raises(perdure.SchemaError, match=r"judged by the \w+ at each reading"),
    ):
        store.agent("a", Reminder, initial={"words": []})
    with perdure.open("memory://") as store:
        store.agent("a", list[PastDatetime], initial=[]).checkpoint("c")


class Kind(Enum):
    A = "a"
    B = "b"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    cents: int = 1
    paid: bool = False
    kind: Kind = Kind.A
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    ids: set[UUID] = set()
    file: Path = Path("x")


class ByField(BaseModel):
    cents: StrictInt = 1
    paid: Annotated[bool, PydanticStrict()] = False


@pytest.mark.parametrize("kind", [Strict, ByField])
@pytest.mark.parametrize(("name", "value"), [("cents", "4"), ("paid", "yes"), ("paid", 1)])
def test_what_a_strict_type_refuses_is_not_converted(kind: Any, name: str, value: Any) -> None:
    """ "yes" was committed as True where the type says that nothing is converted."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", kind, initial=kind())
        with pytest.raises(perdure.SchemaError, match=f"state.{name}"), agent.edit() as draft:
            setattr(draft, name, value)
        with pytest.raises(perdure.SchemaError):
            agent.save({name: value})


def test_a_strict_type_takes_its_own_values_and_reads_them_again() -> None:
    state = Strict(kind=Kind.B, ids={UUID(int=1)}, file=Path("y"))
    with perdure.open("memory://") as store:
        agent = store.agent("a", list[Strict], initial=[state])
        with agent.edit() as draft:
            draft[0].kind, draft[0].file, draft[0].cents = Kind.A, Path("z"), 5
        assert store.agent("a", list[Strict]).state == agent.state
        assert agent.state[0].kind is Kind.A and agent.state[0].file == Path("z")


@pytest.mark.parametrize("beside", [True, False])
def test_a_change_in_place_that_no_draft_sees_is_refused(beside: bool) -> None:
    """A draft gave out a vector of the user's own as it was. What was changed in it was dropped as
    the block ended, and the change beside it was committed."""

    class Ship(BaseModel):
        at: Point
        path: list[Point] = []
        moves: int = 0

    with perdure.open("memory://") as store:
        agent = store.agent("a", Ship, initial=Ship(at=Vector(0, 0), path=[Vector(1, 1)]))
        agent.checkpoint("begun")
        for change in (lambda draft: draft.at, lambda draft: draft.path[0]):
            with pytest.raises(perdure.Drifted, match="assign a new"), agent.edit() as draft:
                change(draft).x = 7
                if beside:
                    draft.moves += 1
            assert agent.state.at == Vector(0, 0) and agent.state.moves == 0
        with agent.edit() as draft:
            moved = draft.at
            moved.x = 3
            draft.at = moved
            draft.path[0] = Vector(2, 2)
        assert store.agent("a", Ship).state == agent.state
        assert agent.state.at == Vector(3, 0)
        agent.verify()


class Root(RootModel[int]):
    pass


@pytest.mark.parametrize("never", [collections.deque[int], Root])
def test_a_class_that_no_state_can_hold_is_refused_where_it_is_declared(never: Any) -> None:
    """It was refused where its type was looked at first: a union of two classes, one with such a
    field that was never set, was well until an undo, or a rollback, compared the two."""
    held: Any = dataclass(type("Held", (), {"__annotations__": {"a": never | None}, "a": None}))
    with (
        perdure.open("memory://") as store,
        pytest.raises(perdure.SchemaError, match="cannot be part of a state"),
    ):
        store.agent("a", dict[str, held | Vector2], initial={}).checkpoint("c")


@dataclass
class Vector2:
    x: int = 0
    y: int = 0


class Named(TypedDict, total=False):
    name: str


class Sized(TypedDict, total=False):
    size: int


Either = dict[str, dict[str, Named] | dict[str, Sized]]


@pytest.mark.parametrize("how", ["initial", "save", "edit"])
def test_a_dict_of_the_other_typed_dict_is_refused(how: str) -> None:
    """It was read as the first class of the union, which has none of its keys: they were dropped,
    and nobody was told."""
    given: Any = {"b": {"a": {"size": 1}, "c": {}}}
    with perdure.open("memory://") as store, pytest.raises(perdure.Unstorable, match=r"\.b\.a"):
        if how == "initial":
            store.agent("a", Either, initial=given).checkpoint("c")
        elif how == "save":
            store.agent("a", Either, initial={}).save(given)
        else:
            store.agent("a", Either, initial={}).update(lambda draft: draft.update(given))


def test_pydantic_tells_typed_dicts_apart() -> None:
    class Holder(BaseModel):
        parts: Either = {}

    given: Any = {"b": {"a": {"size": 1}, "c": {}}}
    with perdure.open("memory://") as store:
        store.agent("a", Holder, initial=Holder(parts=given)).checkpoint("c")
        assert store.agent("a", Holder).state == Holder(parts=given)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Reading(NamedTuple):
    level: int | Level | None


@dataclass
class Nothing:
    pass


class Marked(BaseModel):
    level: int = 0


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        # Read as base64, it was a set of bytes.
        (frozenset[bytes] | frozenset[Kind], frozenset({Kind.A})),
        # Compared as equal numbers, as the union has no place for the parts of one of its classes.
        (dict[str, Reading] | dict[str, Marked], {"a": Reading(Level.HIGH)}),
        # A dict of the second class was read as the first, which takes any.
        (dict[str, Nothing] | dict[str, Named], {"a": {"name": "n"}}),
    ],
    ids=["bytes", "parts", "any"],
)
def test_what_a_union_would_read_as_another_is_refused(kind: Any, given: Any) -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", dict[str, kind], initial={})
        for put in (
            lambda: agent.save({"x": given}),
            lambda: agent.update(lambda draft: draft.__setitem__("x", given)),
        ):
            with pytest.raises(perdure.Unstorable, match=r"state\.x"):
                put()
        assert agent.state == {}
