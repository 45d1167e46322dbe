"""Types that name themselves, and a few members of an Enum: taken, edited and read as any other."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

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


class Link(NamedTuple):
    value: int = 0
    next: Link | None = None


class Chained(BaseModel):
    first: Link = Link()
    more: Chain = None


Chain = TypeAliasType("Chain", "tuple[int, Chain] | None")


def test_a_named_tuple_within_itself() -> None:
    """Story: making its nodes never ended, and a RecursionError came out."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Chained, initial=Chained(first=Link(1, Link(2))))
        agent.checkpoint("made")
        agent.update(lambda draft: setattr(draft, "first", Link(3, Link(4, Link(5)))))
        assert read(store, Chained) == agent.state == Chained(first=Link(3, Link(4, Link(5))))


def test_tuples_are_no_deeper_than_all_else() -> None:
    """Story: 190 of them were taken, and whoever read them behind some calls had no stack left."""

    def chain(depth: int) -> Any:
        return None if not depth else (1, chain(depth - 1))

    with perdure.open("memory://") as store:
        with pytest.raises(perdure.Unstorable, match="more than 100 levels deep"):
            store.agent("a", Chained, initial=Chained.model_construct(more=chain(101))).state
        agent = store.agent("a", Chained, initial=Chained.model_construct(more=chain(98)))
        agent.checkpoint("made")
        assert read(store, Chained).more == chain(98)


SOURCE = """
Json = TypeAliasType("Json", "Union[dict[str, Json], list[Json], str, int, None]")

@dataclass
class Call:
    args: Json = None

@dataclass
class Text:
    text: str = ""

@dataclass
class State:
    messages: list[Union[Call, Text]] = field(default_factory=list)
    config: Json = None
"""


@pytest.fixture
def fresh_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the classes of a program that starts, which nobody has used yet."""

    def make(number: int) -> Any:
        made: Any = ModuleType(f"a_program_that_starts_{number}")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        begin = "from dataclasses import dataclass, field\nfrom typing import Union\n"
        exec(f"{begin}from typing_extensions import TypeAliasType\n{SOURCE}", made.__dict__)
        return made

    return make


def use(schema: Any, module: Any) -> None:
    with perdure.open("memory://") as store:
        value = module.State([module.Call({"b": [1]}), module.Text("t")], {"a": [1]})
        store.agent("a", schema, initial=value).checkpoint("made")
        assert store.agent("a", schema).state == value


def test_threads_that_begin_together_use_whole_types(fresh_module: Any) -> None:
    """Story: the threads of a server that started opened agents of one schema at the same moment.
    One of them used the placeholder of an alias that another one was making: some calls failed with
    a bare NotImplementedError, and now and then all of them until the next start."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(15):
            module = fresh_module(number)
            schema = perdure.Schema(module.State, id="state")
            with ThreadPoolExecutor(6) as pool:
                for done in [pool.submit(use, schema, module) for _ in range(6)]:
                    done.result()
    finally:
        sys.setswitchinterval(before)


class StoppedError(BaseException):
    """As of Ctrl-C."""


def test_an_exception_while_types_are_made_leaves_nothing_half_made(fresh_module: Any) -> None:
    """Story: Ctrl-C came as a cell of a notebook used a schema for the first time, and left the
    placeholder of an alias in place: each later use of the schema was a NotImplementedError."""
    lines = 0

    def count(at: int) -> Any:
        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.endswith("core/types/registry.py"):
                return None
            lines += event == "line"
            if lines == at:
                raise StoppedError
            return trace

        return trace

    def traced(at: int, schema: Any, module: Any) -> None:
        nonlocal lines
        lines = 0
        outer = sys.gettrace()
        sys.settrace(count(at))
        try:
            with suppress(StoppedError):
                use(schema, module)
        finally:
            sys.settrace(outer)

    module = fresh_module(0)
    traced(0, perdure.Schema(module.State, id="state"), module)
    for at in range(1, lines + 1, 7):
        schema = perdure.Schema(module.State, id="state")
        traced(at, schema, module)
        use(schema, module)
