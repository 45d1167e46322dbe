"""A type variable stands for the same type to an edit as to whoever reads the state, in each way
that Python has to declare generics; and what no state may be of is refused at its declaration."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    TypeVarTuple,
    cast,
)

import msgspec
import pydantic
import pytest
from typing_extensions import TypeAliasType, TypedDict

import perdure
from perdure.errors import SchemaError
from tests.state.declared_generics import CLASSES, OF_MODELS, VALUES, WAYS, declared, module

Where = tuple[Any, ...]

PLACES: dict[str, Callable[[Any], Any]] = {
    "dataclass": lambda page: dataclasses.make_dataclass("State", [("page", page)]),
    "Struct": lambda page: msgspec.defstruct("State", [("page", page)]),
    "dict": lambda page: TypedDict("State", {"page": page}),  # type: ignore[operator]
    "model": lambda page: pydantic.create_model("State", page=(page, ...)),
    "pydantic's": lambda page: pydantic.dataclasses.dataclass(
        dataclasses.make_dataclass("State", [("page", page)])
    ),
}
"""States with a field of that type."""


def cases() -> Iterator[Any]:
    """Yields each type in each way with classes of one family, in a place of one family: which of
    them meet is drawn evenly."""
    families, places = [*CLASSES], [*PLACES]
    for way in WAYS:
        for at, said in enumerate([*VALUES, *OF_MODELS]):
            for nth in (at, at + 1):
                classes = families[nth % len(families)]
                if said in OF_MODELS and classes == "Struct":
                    classes = "dataclass"
                yield pytest.param(way, said, classes, places[(at + 2 * nth) % len(places)])


@pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of a mutant that it serializes
@pytest.mark.parametrize(("way", "said", "classes", "within"), [*cases()])
def test_a_variable_is_the_same_to_an_edit_as_to_a_reader(
    way: str, said: str, classes: str, within: str
) -> None:
    """`type Sheet[K, V] = dict[str, tuple[list[V], list[K]]]`: an edit took notes and lines where
    they belong, and every other handle read each as the other, and lost fields, or could not read
    the state at all: the library behind the reader gave types in the order in which the variables
    stood in the alias's value."""
    of = declared(way, classes)
    try:
        page = eval(said, vars(of))
    except NameError:
        pytest.skip("this Python has no such syntax")
    value = {**VALUES, **OF_MODELS}[said](of)
    try:
        cls = PLACES[within](page)
    except (pydantic.PydanticUserError, TypeError, ValueError):  # it knows no stars, nor Structs
        cls = PLACES["dataclass"](page)
    with perdure.open("memory://") as store:
        right = state_of(cls, value)
        agent = store.agent("a", cls, initial=copy.deepcopy(right))
        agent.checkpoint("made")
        assert repr(store.agent("a", cls).state) == repr(right)
        for nth, (path, item) in enumerate(mutants(value, of)):
            wrong = put(value, path, item)
            first = kept(partial(first_state, store, f"i{nth}", cls, wrong))
            whole = kept(partial(edited, store, f"w{nth}", cls, value, wrong))
            inside = kept(partial(edited_inside, store, f"e{nth}", cls, value, path, item))
            assert first == whole == inside, (path, item)


def state_of(cls: Any, value: Any) -> Any:
    """Returns a state that has just that value: nothing is checked or converted."""
    if issubclass(cls, pydantic.BaseModel):
        return cls.model_construct(page=value)
    if not dataclasses.is_dataclass(cls):
        return cls(page=value)
    made: Any = object.__new__(cast("type", cls))
    vars(made)["page"] = value
    return made


def kept(write: Callable[[], str]) -> str | None:
    """Returns what a reader gets of what was written; None if it was refused."""
    try:
        return write()
    except SchemaError:
        return None


def first_state(store: perdure.Store, name: str, cls: Any, value: Any) -> str:
    store.agent(name, cls, initial=state_of(cls, copy.deepcopy(value))).checkpoint("made")
    return repr(store.agent(name, cls).state)


def edited(store: perdure.Store, name: str, cls: Any, before: Any, after: Any) -> str:
    agent: Any = store.agent(name, cls, initial=state_of(cls, copy.deepcopy(before)))
    agent.checkpoint("made")
    with agent.edit("the whole of it") as draft:
        assign(draft, "page", copy.deepcopy(after))
    return repr(store.agent(name, cls).state)


def edited_inside(
    store: perdure.Store, name: str, cls: Any, before: Any, path: Where, item: Any
) -> str:
    """Puts an item where it belongs, or the tuple around it, which cannot change."""
    agent: Any = store.agent(name, cls, initial=state_of(cls, copy.deepcopy(before)))
    agent.checkpoint("made")
    path = ("page", *path)
    after = put(state_of(cls, before), path, item)
    around = [after]
    for key in path:
        around.append(part(around[-1], key))
    tuples = [at for at, one in enumerate(around[:-1]) if isinstance(one, tuple)]
    depth = min([len(path), *tuples])
    with agent.edit("a part of it") as draft:
        place = draft
        for key in path[: depth - 1]:
            place = part(place, key)
        assign(place, path[depth - 1], copy.deepcopy(around[depth]))
    return repr(store.agent(name, cls).state)


def mutants(value: Any, of: Any, path: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Yields paths to what stands in a value, each with something of another type."""
    fields = {key for key, _ in parts(value)}
    if fields == {"text"}:
        yield path, of.Line(text="l", cents=5)
    elif fields == {"text", "cents"}:
        yield path, of.Note(text="n")
    elif type(value) in (int, str):
        yield path, "zz" if type(value) is int else 77
    else:
        for key, item in parts(value):
            yield from mutants(item, of, (*path, key))


def parts(value: Any) -> list[tuple[Any, Any]]:
    if type(value) is dict:
        return [*value.items()]
    if isinstance(value, list | tuple):
        return [*enumerate(value)]
    names: Any = getattr(value, "__struct_fields__", getattr(type(value), "model_fields", ()))
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
    return [(name, getattr(value, name)) for name in names]


def part(value: Any, key: Any) -> Any:
    return value[key] if _has_keys(value, key) else getattr(value, key)


def assign(place: Any, key: Any, item: Any) -> None:
    if _has_keys(place, key):
        place[key] = item
    else:
        setattr(place, key, item)


def _has_keys(value: Any, key: Any) -> bool:
    return not isinstance(key, str) or hasattr(value, "keys")


def put(value: Any, path: Where, item: Any) -> Any:
    """Returns a copy of a value with an item in the place of a part."""
    if not path:
        return item
    key = path[0]
    inner = put(part(value, key), path[1:], item)
    if isinstance(value, tuple):
        items = [*value]
        items[key] = inner
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    made = copy.copy(value)
    if isinstance(made, dict | list):
        made[key] = inner
    else:
        setattr(made, key, inner)
    return made


# -- what else they stood for --------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_next_edit_of_another_field_keeps_what_stands_in_an_alias(way: str) -> None:
    """Of dicts in the place of each other, the next edit of any other field deleted from the store
    what the wrong one does not declare."""
    of = declared(way, "dict")
    cls: Any = dataclasses.make_dataclass(
        "State", [("rows", of.Sheet[of.Note, of.Line]), ("seen", int, 0)]
    )
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls({}))
        with agent.edit("right values") as draft:
            draft.rows["k"] = ([{"text": "book", "cents": 500}], [])
        with store.agent("a", cls).edit("something else") as draft:
            draft.seen = 1
        stored = {"rows": {"k": ([{"text": "book", "cents": 500}], [])}, "seen": 1}
        assert agent.at("main").plain == stored


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Job(Generic[T]):
    page: Page[T]


def test_a_generic_model_in_a_generic_dataclass_is_of_the_type_that_was_given() -> None:
    """`Job[int]` with `page: Page[T]` took no value at all ("a Page[int] would come back as a
    Page"), as pydantic's `Page[T]` is the class `Page` itself."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Job[int], initial=Job(Page[int](items=[1])))
        with agent.edit("another") as draft:
            draft.page.items.append(2)
        with pytest.raises(SchemaError), agent.edit("a slip") as draft:
            draft.page.items.append("three")  # type: ignore[arg-type]
        with agent.edit("plain data") as draft:
            draft.page = {"items": [4]}  # type: ignore[assignment]
        assert type(store.agent("a", Job[int]).state.page) is Page[int]
        assert store.agent("a", Job[int]).state == Job(Page[int](items=[4]))


@dataclass
class Marked(Generic[T]):
    one: T
    several: list[T]


def test_a_mark_without_a_hash_is_passed_over() -> None:
    """`Annotated[int, {"doc": "…"}]` was a bare TypeError out of the middle of the library."""
    marked: Any = Annotated[int, {"doc": "a number"}]
    with perdure.open("memory://") as store:
        for nth, kind in enumerate([Marked[marked], list[Marked[marked]]]):
            value = Marked(1, [2]) if nth == 0 else [Marked(1, [2])]
            schema: Any = perdure.Schema(kind, id="marked")
            agent = store.agent(f"a{nth}", schema, initial=value)
            agent.checkpoint("made")
            assert store.agent(f"a{nth}", schema).state == value


# -- what no state may be of ---------------------------------------------------------------------


GROWING: Any = module(
    "growing",
    """
@dataclass
class Tree(Generic[T]):
    sub: "Tree[list[T]] | None" = None
class TreeStruct(msgspec.Struct, Generic[T]):
    sub: "TreeStruct[list[T]] | None" = None
class TreeDict(te.TypedDict, Generic[T]):
    sub: te.NotRequired["TreeDict[list[T]]"]
class TreeTuple(NamedTuple, Generic[T]):
    sub: "list[TreeTuple[list[T]]]"
@dataclass
class There(Generic[T]):
    back: "Back[tuple[T, T]] | None" = None
@dataclass
class Back(Generic[T]):
    there: list[There[T]]
@dataclass
class Wider(Generic[*Ts]):
    sub: "Wider[int, *Ts] | None" = None
Alias = te.TypeAliasType("Alias", "dict[str, Alias[list[T]]]", type_params=(T,))
""",
)
"""As text: type checkers do not come to an end with them, either."""


@pytest.mark.parametrize(
    "endless",
    [
        GROWING.Tree,
        GROWING.Tree[int],
        GROWING.TreeStruct[int],
        GROWING.TreeDict[int],
        GROWING.TreeTuple[int],
        GROWING.There[int],
        GROWING.Wider[int],
        GROWING.Alias[int],
    ],
    ids=str,
)
def test_types_that_grow_without_an_end_are_refused(endless: Any) -> None:
    """`sub: Tree[list[T]]` within `Tree[T]`: a bare RecursionError."""
    with perdure.open("memory://") as store:
        for kind in (endless, list[endless]):
            with pytest.raises(SchemaError, match="ever larger types") as refused:
                store.agent("a", perdure.Schema(kind, id="endless"))
            assert "refer to" in refused.value.hint


def test_types_that_are_nested_deep_but_end_are_taken() -> None:
    kind: Any = int
    value: Any = 1
    for _ in range(12):
        kind, value = Page[kind], Page[kind](items=[value])
    for _ in range(12):
        kind, value = Job[kind], Job(Page[kind](items=[value]))
    with perdure.open("memory://") as store:
        store.agent("a", kind, initial=value).checkpoint("made")
        assert store.agent("a", kind).state == value


class LostTuple(NamedTuple):
    a: Nowhere  # type: ignore[name-defined] # noqa: F821


@dataclass
class NoAttribute:
    a: collections.Nothing  # type: ignore[name-defined]


@dataclass
class NoType:
    a: list[int] + 1  # type: ignore[valid-type]


class LostModel(pydantic.BaseModel):
    a: Nowhere  # type: ignore[name-defined] # noqa: F821


@dataclass
class StarInTheMiddle(Generic[*Ts]):
    cells: tuple[int, *Ts]


A_LIST: Any = list
an_alias: Any = TypeAliasType  # of what no type checker could know
Itself = an_alias("Itself", "Itself")
Lost = an_alias("Lost", "list[Nowhere]")
Sheet = declared("Generic", "dataclass").Sheet


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Sheet[int], "each of its variables: K, V"),
        (Sheet[int, int, int], "each of its variables: K, V"),
        (Itself, "nothing but itself"),
        (A_LIST[Itself], "nothing but itself"),
        (Lost, "Nowhere"),
        (LostTuple, "Nowhere"),
        (LostModel, "Nowhere"),
        (NoAttribute, "Nothing"),
        (NoType, "no type"),
        (StarInTheMiddle, "any number of others"),
        (StarInTheMiddle[*tuple[str, ...]], "any number of others"),
        (A_LIST["Item"], "names something unknown"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_where_it_is_declared(kind: Any, said: str) -> None:
    """A bare NameError, AttributeError, TypeError or AssertionError, without a word of the type."""
    with perdure.open("memory://") as store:
        with pytest.raises(SchemaError, match=said) as refused:
            store.agent("a", perdure.Schema(kind, id="unread"))
        assert refused.value.target
        assert refused.value.hint


class Own:
    pass


@dataclass
class Both:
    page: Page[int]
    own: Own


def test_what_pydantic_does_not_know_shows_where_it_is_declared() -> None:
    """It showed with the first value."""
    with perdure.open("memory://") as store, pytest.raises(SchemaError, match="cannot validate"):
        store.agent("a", Both)
