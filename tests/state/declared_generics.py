"""Generic classes and aliases, in each way that Python has to declare them, and values of them.

The names are the same in each way. Notes and lines differ in what they take, so that one in the
place of the other shows.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

CLASSES = {
    "dataclass": """
@dataclass
class Note:
    text: str
@dataclass
class Line:
    text: str
    cents: int = 0
""",
    "Struct": """
class Note(msgspec.Struct):
    text: str
class Line(msgspec.Struct):
    text: str
    cents: int = 0
""",
    "model": """
class Note(pydantic.BaseModel):
    text: str
class Line(pydantic.BaseModel):
    text: str
    cents: int = 0
""",
    "dict": """
class Note(te.TypedDict):
    text: str
class Line(te.TypedDict):
    text: str
    cents: te.NotRequired[int]
""",
}

IMPORTS = """
from dataclasses import dataclass, field
from typing import *
import msgspec, pydantic, pydantic.dataclasses, typing_extensions as te
T, Ts = TypeVar("T"), TypeVarTuple("Ts")
"""

OLDER = """
A, B, K, V = map(TypeVar, "ABKV")
Us, Q = TypeVarTuple("Us"), ParamSpec("Q")
D = te.TypeVar("D", default=Line)
Some = TypeVar("Some", int, str)
Lines = TypeVar("Lines", bound=Line)

def alias(name, meant, *variables):
    return te.TypeAliasType(name, meant, type_params=variables)

Sheet = alias("Sheet", dict[str, tuple[list[V], list[K]]], K, V)
Rep = alias("Rep", tuple[V, K, V], K, V)
Pick = alias("Pick", list[V | None], K, V)
Id = alias("Id", A, A)
Bare = alias("Bare", V, K, V)
Nested = alias("Nested", list[Sheet[V, K]], K, V)
Partial = alias("Partial", Sheet[K, Line], K)
Row = alias("Row", tuple[Unpack[Us]], Us)
Head = alias("Head", tuple[A, list[tuple[Unpack[Us]]]], A, Us)
Tail = alias("Tail", tuple[Unpack[Us], A], Us, A)
Tagged = alias("Tagged", list[A], Q, A)
Maybe = alias("Maybe", Optional[A], A)
Tree = alias("Tree", "dict[str, tuple[list[V], list[K], Tree[K, V]]]", K, V)
Turn = alias("Turn", "dict[str, tuple[list[V], list[K], Turn[V, K]]]", K, V)
Defaulted = alias("Defaulted", dict[str, tuple[list[D], list[K]]], K, D)
Bounded = alias("Bounded", list[Lines], Lines)

@dataclass
class Page(Generic[K, V]):
    a: list[V]
    b: dict[str, K] = field(default_factory=dict)
@dataclass
class Sub(Page[B, A], Generic[A, B]):
    c: list[A] = field(default_factory=list)
@dataclass
class Deep(Page[Line, A], Generic[A]):
    c: list[A] = field(default_factory=list)
@dataclass
class Cells(Generic[Unpack[Us]]):
    cells: list[tuple[Unpack[Us]]]
@dataclass
class SubCells(Cells[A, Line], Generic[A]):
    pass
@dataclass
class Order(Generic[K, V]):
    rows: Sheet[K, V]
class OrderStruct(msgspec.Struct, Generic[K, V]):
    rows: Sheet[K, V]
class OrderDict(te.TypedDict, Generic[K, V]):
    rows: Sheet[K, V]
class OrderTuple(NamedTuple, Generic[K, V]):
    rows: Sheet[K, V]
class PageStruct(msgspec.Struct, Generic[K, V]):
    a: list[V]
    b: dict[str, K] = {}
class SubStruct(PageStruct[B, A], Generic[A, B]):
    c: list[A] = []
class PageDict(te.TypedDict, Generic[K, V]):
    a: list[V]
    b: dict[str, K]
class SubDict(PageDict[B, A], Generic[A, B]):
    c: list[A]
class PageTuple(NamedTuple, Generic[K, V]):
    a: list[V]
    b: dict[str, K]
@dataclass
class HasTuple(Generic[K, V]):
    p: list[PageTuple[V, K]]
class HasRows(Protocol[A]):
    rows: list[A]
@dataclass
class Rows(HasRows[A]):
    rows: list[A]
@dataclass
class Tool(Generic[Q, A]):
    got: list[A]
@dataclass
class Constrained(Generic[Some]):
    got: list[Some]
@dataclass
class OfLines(Generic[Lines]):
    got: list[Lines]
@dataclass
class Lined(Generic[K, D]):
    a: list[D]
    b: list[K]
"""

OLDER_MODELS = """
class Model(pydantic.BaseModel, Generic[K, V]):
    a: list[V]
    b: dict[str, K] = {}
class SubModel(Model[B, A], Generic[A, B]):
    c: list[A] = []
class OrderModel(pydantic.BaseModel, Generic[K, V]):
    rows: Sheet[K, V]
@pydantic.dataclasses.dataclass
class OrderChecked(Generic[K, V]):
    rows: Sheet[K, V]
@dataclass
class Box(Generic[A]):
    p: list[Model[A, Line]]
class BoxDict(te.TypedDict, Generic[A]):
    p: list[Model[A, Line]]
class BoxTuple(NamedTuple, Generic[A]):
    p: list[Model[A, Line]]
Models = alias("Models", list[Model[V, K]], K, V)
@dataclass
class BoxAlias(Generic[K, V]):
    p: Models[K, V]
@dataclass
class BoxDeep(Generic[K, V]):
    p: list[Model[list[V], Model[K, V]]]
"""

NEWER = """
type Sheet[K, V] = dict[str, tuple[list[V], list[K]]]
type Rep[K, V] = tuple[V, K, V]
type Pick[K, V] = list[V | None]
type Id[A] = A
type Bare[K, V] = V
type Nested[K, V] = list[Sheet[V, K]]
type Partial[K] = Sheet[K, Line]
type Row[*Us] = tuple[*Us]
type Head[A, *Us] = tuple[A, list[tuple[*Us]]]
type Tail[*Us, A] = tuple[*Us, A]
type Tagged[**Q, A] = list[A]
type Maybe[A] = A | None
type Tree[K, V] = dict[str, tuple[list[V], list[K], Tree[K, V]]]
type Turn[K, V] = dict[str, tuple[list[V], list[K], "Turn[V, K]"]]
type Bounded[Lines: Line] = list[Lines]

@dataclass
class Page[K, V]:
    a: list[V]
    b: dict[str, K] = field(default_factory=dict)
@dataclass
class Sub[A, B](Page[B, A]):
    c: list[A] = field(default_factory=list)
@dataclass
class Deep[A](Page[Line, A]):
    c: list[A] = field(default_factory=list)
@dataclass
class Cells[*Us]:
    cells: list[tuple[*Us]]
@dataclass
class SubCells[A](Cells[A, Line]):
    pass
@dataclass
class Order[K, V]:
    rows: Sheet[K, V]
class OrderStruct[K, V](msgspec.Struct):
    rows: Sheet[K, V]
class OrderDict[K, V](TypedDict):
    rows: Sheet[K, V]
class OrderTuple[K, V](NamedTuple):
    rows: Sheet[K, V]
class PageStruct[K, V](msgspec.Struct):
    a: list[V]
    b: dict[str, K] = {}
class SubStruct[A, B](PageStruct[B, A]):
    c: list[A] = []
class PageDict[K, V](TypedDict):
    a: list[V]
    b: dict[str, K]
class SubDict[A, B](PageDict[B, A]):
    c: list[A]
class PageTuple[K, V](NamedTuple):
    a: list[V]
    b: dict[str, K]
@dataclass
class HasTuple[K, V]:
    p: list[PageTuple[V, K]]
class HasRows[A](Protocol):
    rows: list[A]
@dataclass
class Rows[A](HasRows[A]):
    rows: list[A]
@dataclass
class Tool[**Q, A]:
    got: list[A]
@dataclass
class Constrained[Some: (int, str)]:
    got: list[Some]
@dataclass
class OfLines[Lines: Line]:
    got: list[Lines]
"""

NEWER_DEFAULTS = """
type Defaulted[K, D = Line] = dict[str, tuple[list[D], list[K]]]
@dataclass
class Lined[K, D = Line]:
    a: list[D]
    b: list[K]
"""

NEWER_MODELS = """
class Model[K, V](pydantic.BaseModel):
    a: list[V]
    b: dict[str, K] = {}
class SubModel[A, B](Model[B, A]):
    c: list[A] = []
class OrderModel[K, V](pydantic.BaseModel):
    rows: Sheet[K, V]
@pydantic.dataclasses.dataclass
class OrderChecked[K, V]:
    rows: Sheet[K, V]
@dataclass
class Box[A]:
    p: list[Model[A, Line]]
class BoxDict[A](TypedDict):
    p: list[Model[A, Line]]
class BoxTuple[A](NamedTuple):
    p: list[Model[A, Line]]
type Models[K, V] = list[Model[V, K]]
@dataclass
class BoxAlias[K, V]:
    p: Models[K, V]
@dataclass
class BoxDeep[K, V]:
    p: list[Model[list[V], Model[K, V]]]
"""

WAYS = ("Generic", "brackets") if sys.version_info >= (3, 12) else ("Generic",)

Values = Callable[[Any], Any]


def note(of: Any) -> Any:
    return of.Note(text="n")


def line(of: Any) -> Any:
    return of.Line(text="l", cents=5)


def sheet(of: Any) -> Any:
    return {"k": ([line(of)], [note(of)])}


def model(of: Any) -> Any:
    return of.Model[of.Note, of.Line](a=[line(of)], b={"k": note(of)})


def deep_model(of: Any) -> Any:
    lines: Any = list[of.Line]
    return of.Model[lines, of.Model[of.Note, of.Line]](a=[model(of)], b={"k": [line(of)]})


VALUES: dict[str, Values] = {
    "Sheet[Note, Line]": sheet,
    "Sheet[int, str]": lambda of: {"k": (["a"], [1])},
    "Sheet[list[Note], Line]": lambda of: {"k": ([line(of)], [[note(of)]])},
    "Sheet": lambda of: {"k": (["a"], [1])},
    "list[Rep[Note, Line]]": lambda of: [(line(of), note(of), line(of))],
    "list[Rep[int, str]]": lambda of: [("a", 1, "b")],
    "Pick[Note, Line]": lambda of: [line(of), None],
    "list[Id[Line]]": lambda of: [line(of)],
    "list[Id[int]]": lambda of: [1],
    "list[Bare[Note, Line]]": lambda of: [line(of)],
    "list[Bare[int, str]]": lambda of: ["x"],
    "Nested[Line, Note]": lambda of: [sheet(of)],
    "Partial[Note]": sheet,
    "list[Row[Note, Line, int]]": lambda of: [(note(of), line(of), 1)],
    "list[Head[Note, Line, int]]": lambda of: [(note(of), [(line(of), 1)])],
    "list[Tail[Note, Line, int]]": lambda of: [(note(of), line(of), 1)],
    "Tagged[[int, str], Line]": lambda of: [line(of)],
    "list[Maybe[Line]]": lambda of: [line(of), None],
    "list[Maybe[int]]": lambda of: [1, None],
    "Maybe[Sheet[Note, Line]]": sheet,
    "Tree[Note, Line]": lambda of: {
        "k": ([line(of)], [note(of)], {"j": ([line(of)], [note(of)], {})})
    },
    "Turn[Note, Line]": lambda of: {
        "k": ([line(of)], [note(of)], {"j": ([note(of)], [line(of)], {})})
    },
    "Defaulted[Note]": sheet,
    "Defaulted[int, str]": lambda of: {"k": (["a"], [1])},
    "Bounded": lambda of: [line(of)],
    "Bounded[Line]": lambda of: [line(of)],
    "Annotated[Sheet[Note, Line], msgspec.Meta(max_length=3)]": sheet,
    "list[Sheet[Note, Line] | int]": lambda of: [sheet(of), 1],
    "Page[Note, Line]": lambda of: of.Page([line(of)], {"k": note(of)}),
    "Page[int, str]": lambda of: of.Page(["a"], {"k": 1}),
    "Page": lambda of: of.Page(["a"], {"k": 1}),
    "Page[Sheet[Note, Line], Line]": lambda of: of.Page([line(of)], {"k": sheet(of)}),
    "Page[Page[Note, Line], Page[Line, Note]]": lambda of: of.Page(
        [of.Page([note(of)], {"k": line(of)})], {"k": of.Page([line(of)], {"k": note(of)})}
    ),
    "Maybe[Page[Note, Line]]": lambda of: of.Page([line(of)], {"k": note(of)}),
    "Sub[Line, Note]": lambda of: of.Sub([line(of)], {"k": note(of)}, [line(of)]),
    "Page[Note, Line] | Sub[Line, Note]": lambda of: of.Sub(
        [line(of)], {"k": note(of)}, [line(of)]
    ),
    "Deep[Note]": lambda of: of.Deep([note(of)], {"k": line(of)}, [note(of)]),
    "Cells[Note, Line, int]": lambda of: of.Cells([(note(of), line(of), 1)]),
    "Cells[int, Unpack[tuple[str, Line]]]": lambda of: of.Cells([(1, "a", line(of))]),
    "Cells[()]": lambda of: of.Cells([()]),
    "Cells": lambda of: of.Cells([(1, "a")]),
    "SubCells[Note]": lambda of: of.SubCells([(note(of), line(of))]),
    "Order[Note, Line]": lambda of: of.Order(sheet(of)),
    "OrderStruct[Note, Line]": lambda of: of.OrderStruct(sheet(of)),
    "OrderDict[Note, Line]": lambda of: {"rows": sheet(of)},
    "OrderTuple[Note, Line]": lambda of: of.OrderTuple(sheet(of)),
    "PageStruct[Note, Line]": lambda of: of.PageStruct([line(of)], {"k": note(of)}),
    "SubStruct[Line, Note]": lambda of: of.SubStruct([line(of)], {"k": note(of)}, [line(of)]),
    "PageDict[Note, Line]": lambda of: {"a": [line(of)], "b": {"k": note(of)}},
    "SubDict[Line, Note]": lambda of: {"a": [line(of)], "b": {"k": note(of)}, "c": [line(of)]},
    "list[PageTuple[Note, Line]]": lambda of: [of.PageTuple([line(of)], {"k": note(of)})],
    "HasTuple[Line, Note]": lambda of: of.HasTuple([of.PageTuple([line(of)], {"k": note(of)})]),
    "Rows[Line]": lambda of: of.Rows([line(of)]),
    "Tool[[int], Line]": lambda of: of.Tool([line(of)]),
    "Constrained": lambda of: of.Constrained([1]),
    "Constrained[int]": lambda of: of.Constrained([1]),
    "OfLines": lambda of: of.OfLines([line(of)]),
    "Lined[Note]": lambda of: of.Lined([line(of)], [note(of)]),
    "Lined[int, str]": lambda of: of.Lined(["a"], [1]),
    "Lined": lambda of: of.Lined([line(of)], [1]),
    "list[tuple[()]]": lambda of: [()],
    "list[tuple[int, Unpack[tuple[str, Line]]]]": lambda of: [(1, "a", line(of))],
}
"""What stands in each: the value is right, and of no other type."""

OF_MODELS: dict[str, Values] = {
    "Model[Note, Line]": model,
    "SubModel[Line, Note]": lambda of: of.SubModel[of.Line, of.Note](
        a=[line(of)], b={"k": note(of)}, c=[line(of)]
    ),
    "OrderModel[Note, Line]": lambda of: of.OrderModel[of.Note, of.Line](rows=sheet(of)),
    "OrderChecked[Note, Line]": lambda of: of.OrderChecked(rows=sheet(of)),
    "Box[Note]": lambda of: of.Box([model(of)]),
    "BoxDict[Note]": lambda of: {"p": [model(of)]},
    "BoxTuple[Note]": lambda of: of.BoxTuple([model(of)]),
    "Models[Line, Note]": lambda of: [model(of)],
    "BoxAlias[Line, Note]": lambda of: of.BoxAlias([model(of)]),
    "BoxDeep[Note, Line]": lambda of: of.BoxDeep([deep_model(of)]),
}
"""The same, of pydantic's generic models: those take no Structs."""


def declared(way: str, classes: str) -> Any:
    """Returns a module in which all of them are declared, in one way, over notes and lines of one
    family."""
    source = CLASSES[classes]
    models = classes != "Struct"
    if way == "Generic":
        source += OLDER + (OLDER_MODELS if models else "")
    else:
        source += NEWER + (NEWER_MODELS if models else "")
        source += NEWER_DEFAULTS if sys.version_info >= (3, 13) else ""
    return module(f"{way}_{classes}", source)


def module(said: str, source: str) -> Any:
    """Returns a module of that text, made once."""
    name = f"{__name__}_{said}"
    found = sys.modules.get(name)
    if found is not None:
        return found
    made = sys.modules[name] = types.ModuleType(name)
    exec(compile(IMPORTS + source, name, "exec", dont_inherit=True), vars(made))
    return made
