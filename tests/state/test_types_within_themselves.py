"""Types that name themselves, and a few members of an Enum: taken, edited and read as any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, Field, JsonValue
from typing_extensions import TypeAliasType

import perdure

T = TypeVar("T")


class Call(BaseModel):
    arguments: dict[str, JsonValue] = {}
    result: JsonValue = None


def read(store: Any, kind: Any) -> Any:
    return store.agent("a", kind).state


@pytest.mark.parametrize("result", [{"a": [1]}, [{"id": 1}], {"items": [{"tags": ["x", None]}]}, 3])
def test_what_a_tool_answers_is_taken_at_any_depth(result: Any) -> None:
    """A `JsonValue` took one list or dict, and none within: what stands in it was asked of pydantic
    by a name that only pydantic's own module knows."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Call, initial=Call(result=result))
        agent.checkpoint("made")
        with agent.edit() as draft:
            draft.arguments = {"given": result}
        with agent.edit() as draft:
            draft.result = {"of": result}
        with agent.edit() as draft:
            inside: Any = draft.result
            inside["of"] = [result, {"more": {}}]
            inside["of"][1]["more"]["x"] = result
        now = read(store, Call)
        assert now == agent.state
        assert now.result == {"of": [result, {"more": {"x": result}}]}
        with pytest.raises(perdure.SchemaError), agent.edit() as draft:
            inside = draft.result
            inside["of"] = {1, 2}


@dataclass
class Leaf:
    number: int = 0


class ModelLeaf(BaseModel):
    number: int = 0


Twig: Any = TypeAliasType("Twig", "Leaf | list[Twig]")
ModelTwig: Any = TypeAliasType("ModelTwig", "ModelLeaf | list[ModelTwig | None]")


@pytest.mark.parametrize(("twig", "leaf"), [(Twig, Leaf), (ModelTwig, ModelLeaf)])
def test_what_an_alias_holds_within_itself_is_what_it_declares(twig: Any, leaf: Any) -> None:
    """An alias within itself stood for plain data: an object there was refused."""
    kind: Any = dict[str, twig]
    with perdure.open("memory://") as store:
        agent = store.agent("a", kind, initial={"t": [leaf(number=1), [leaf(number=2)]]})
        with agent.edit() as draft:
            draft["t"][1][0].number = 5
            draft["t"][1].append([leaf(number=6)])
        assert read(store, kind) == {"t": [leaf(number=1), [leaf(number=5), [leaf(number=6)]]]}
        assert agent.drift() == []
        with pytest.raises(perdure.SchemaError), agent.edit() as draft:
            draft["t"][1] = [["text"]]


class Page(BaseModel, Generic[T]):
    items: list[T] = []
    next: Page[T] | None = None
    by_name: dict[str, Page[T]] = {}


class Book(BaseModel):
    page: Page[ModelLeaf] = Page()


@pytest.mark.parametrize("kind", [Page[ModelLeaf], Book])
def test_a_generic_model_may_hold_its_like(kind: Any) -> None:
    """Where it refers to itself, pydantic leaves a mark that nothing outside of it can read."""
    inner: Any = Page[ModelLeaf]
    first = inner(next=inner(items=[ModelLeaf(number=2)]))
    with perdure.open("memory://") as store:
        agent = store.agent("a", kind, initial=first if kind is inner else Book(page=first))
        with agent.edit() as draft:
            page = (draft if kind is inner else draft.page).next
            page.items.append(ModelLeaf(number=3))
            page.by_name["x"] = inner(items=[ModelLeaf(number=4)])
        now = read(store, kind)
        assert now == agent.state
        page = (now if kind is inner else now.page).next
        assert [one.number for one in page.items] == [2, 3]
        assert type(page.by_name["x"]) is inner


class Box(BaseModel, Generic[T]):
    held: T | None = None


class Boxed(BaseModel, Generic[T]):
    box: Box[Boxed[T]] = Box()


def test_one_that_cannot_be_told_is_refused_where_it_is_declared() -> None:
    with pytest.raises(perdure.SchemaError, match="refers to itself inside of another generic"):
        _ = perdure.Schema(Boxed[int]).root


# -- members of an Enum ----------------------------------------------------------------------------


class Kind(Enum):
    CAT = 1
    DOG = 2
    EMU = 3


class Cat(BaseModel):
    kind: Literal[Kind.CAT] = Kind.CAT
    lives: int = 9


class Dog(BaseModel):
    kind: Literal[Kind.DOG] = Kind.DOG


class Zoo(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    seen: list[Literal[Kind.CAT, "none"]] = []
    count: dict[Literal[Kind.CAT, Kind.DOG], int] = {}
    best: Literal[Kind.CAT, Kind.DOG] | None = None
    those: set[Literal[Kind.CAT, Kind.DOG]] = set()


@dataclass
class DataZoo:
    seen: list[Literal[Kind.CAT, "none"]] = field(default_factory=list)
    count: dict[Literal[Kind.CAT, Kind.DOG], int] = field(default_factory=dict)
    best: Literal[Kind.CAT, Kind.DOG] | None = None
    those: set[Literal[Kind.CAT, Kind.DOG]] = field(default_factory=set)


class StructZoo(msgspec.Struct):
    seen: list[Literal[Kind.CAT, "none"]] = []
    count: dict[Literal[Kind.CAT, Kind.DOG], int] = {}
    best: Literal[Kind.CAT, Kind.DOG] | None = None
    those: set[Literal[Kind.CAT, Kind.DOG]] = set()


@pytest.mark.parametrize("kind", [Zoo, DataZoo, StructZoo])
def test_a_literal_may_name_members_of_an_enum(kind: Any) -> None:
    """They were refused in a library's words, "Literal may only contain None/booleans/…"."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", kind, initial=kind(seen=[Kind.CAT], best=Kind.DOG))
        with agent.edit() as draft:
            draft.seen += ["none", Kind.CAT]
            draft.count[Kind.DOG] = 2
            draft.best = None
            draft.those |= {Kind.CAT, Kind.DOG}
            if kind is Zoo:
                draft.pet = Dog()
        now = read(store, kind)
        assert now == agent.state
        assert (now.seen, now.count) == ([Kind.CAT, "none", Kind.CAT], {Kind.DOG: 2})
        assert now.those == {Kind.CAT, Kind.DOG}
        assert agent.at(agent.seq).plain["seen"] == [1, "none", 1]
        for wrong in (Kind.EMU, 3, "text"):
            with pytest.raises(perdure.SchemaError), agent.edit() as draft:
                draft.best = wrong
        with agent.edit() as draft:
            draft.best = 1  # plain data is input
        assert agent.state.best is Kind.CAT


# -- what is refused -------------------------------------------------------------------------------


class Lazy(BaseModel):
    items: Iterable[int] = ()


class Lazier(BaseModel):
    items: Iterator[int] | None = None
    model_config = {"arbitrary_types_allowed": True}


@pytest.mark.parametrize("kind", [Lazy, Lazier, dict[str, Iterable[ModelLeaf]]])
def test_what_pydantic_makes_a_generator_of_is_refused_by_its_name(kind: Any) -> None:
    """Each value of it was, in a library's words: it is the type that cannot be stored."""
    given: Any = {"a": []} if is_dict(kind) else kind()
    with (
        perdure.open("memory://") as store,
        pytest.raises(perdure.SchemaError, match=r"is ambiguous(?s:.*)declare Sequence"),
    ):
        store.agent("a", kind, initial=given).checkpoint("made")


def is_dict(kind: Any) -> bool:
    return not isinstance(kind, type) or not issubclass(kind, BaseModel)
