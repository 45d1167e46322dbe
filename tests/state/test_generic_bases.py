"""A type variable stands for the same thing to an edit as to whoever reads the state: in a class
that derives from a generic one, too."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, NotRequired, TypeVar

import msgspec
import pydantic
import pytest
import typing_extensions
from typing_extensions import TypedDict

import perdure
from perdure.errors import SchemaError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Line(TypedDict):
    n: int


class NewerLine(TypedDict):
    n: int
    note: NotRequired[str]


@dataclass
class Item:
    n: int = 0


@dataclass
class NewerItem:
    n: int = 0
    note: str = ""


class Model(pydantic.BaseModel):
    n: int = 0


class NewerModel(pydantic.BaseModel):
    n: int = 0
    note: str = ""


class Struct(msgspec.Struct):
    n: int = 0


class NewerStruct(msgspec.Struct):
    n: int = 0
    note: str = ""


@dataclass
class Page(Generic[T]):
    rows: list[T]


@dataclass
class Swapped(Page[V], Generic[V, K]):
    by_name: dict[str, K] = dataclasses.field(default_factory=dict)


@pydantic.dataclasses.dataclass
class CheckedPage(Generic[T]):
    rows: list[T]


class StructPage(msgspec.Struct, Generic[T]):
    rows: list[T]


class DictPage(TypedDict, Generic[T]):
    rows: list[T]


class TuplePage(NamedTuple, Generic[T]):
    rows: list[T]


def derived(row: Any) -> Any:
    @dataclass
    class Rows(Page[row]):
        more: int = 0

    return Rows


def derived_twice(row: Any) -> Any:
    @dataclass
    class Between(Page[list[T]], Generic[T]):
        more: int = 0

    @dataclass
    class Rows(Between[row]):
        even_more: int = 0

    return Rows


def derived_in_another_order(row: Any) -> Any:
    @dataclass
    class Rows(Swapped[row, int]):
        more: int = 0

    return Rows


def derived_and_checked(row: Any) -> Any:
    @pydantic.dataclasses.dataclass
    class Rows(CheckedPage[row]):
        more: int = 0

    return Rows


def derived_struct(row: Any) -> Any:
    class Rows(StructPage[row]):
        more: int = 0

    return Rows


def derived_dict(row: Any) -> Any:
    class Rows(DictPage[row]):
        more: NotRequired[int]

    return Rows


def given(cls: Any) -> Callable[[Any], Any]:
    return lambda row: cls[row]


FORMS: dict[str, Callable[[Any], Any]] = {
    "given": given(Page),
    "given to pydantic's": given(CheckedPage),
    "given to a Struct": given(StructPage),
    "given to a dict": given(DictPage),
    "derived": derived,
    "derived twice": derived_twice,
    "derived in another order": derived_in_another_order,
    "derived and checked": derived_and_checked,
    "derived Struct": derived_struct,
    "derived dict": derived_dict,
}
FORMS = {name: functools.cache(form) for name, form in FORMS.items()}
"""Made once for each type: an instance is of that very class."""

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def page(form: Callable[[Any], Any], row: Any, declared: Any) -> Any:
    cls = form(declared)
    return cls(rows=[[row]] if form is FORMS["derived twice"] else [row])


def rows_of(form: Callable[[Any], Any], one: Any) -> Any:
    rows = one.rows if hasattr(one, "rows") else one["rows"]
    return rows[0] if form is FORMS["derived twice"] else rows


def state_of(annotation: Any) -> type:
    return dataclasses.make_dataclass("State", [("page", annotation), ("seen", int, 0)])


@each_form
@pytest.mark.parametrize(
    ("older", "newer", "row"),
    [
        (Line, NewerLine, {"n": 1, "note": "keep"}),
        (Item, NewerItem, NewerItem(1, "keep")),
        (Model, NewerModel, NewerModel(n=1, note="keep")),
        (Struct, NewerStruct, NewerStruct(1, "keep")),
    ],
    ids=["dict", "dataclass", "model", "struct"],
)
def test_an_older_program_keeps_what_stands_in_a_generic_class(
    form: Callable[[Any], Any], older: Any, newer: Any, row: Any
) -> None:
    """`class Orders(Page[Line])`: an older program counted what it had seen, and the note of each
    line, which it did not know, was gone: to the edit a line was anything, while the reader read a
    line, and left the rest away. Lines that are objects were refused, though declared."""
    if newer is NewerStruct and form in (
        FORMS["given to pydantic's"],
        FORMS["derived and checked"],
    ):
        pytest.skip("pydantic refuses Structs")
    new_class = state_of(form(newer))
    schemas: list[Any] = [
        perdure.Schema(state_of(form(older)), id="s", version=(1, 0)),
        perdure.Schema(new_class, id="s", version=(1, 1)),
    ]
    state = new_class(page(form, row, newer))
    with perdure.open("memory://") as store:
        new = store.agent("a", schemas[1], initial=state)
        new.checkpoint("made")
        old = store.agent("a", schemas[0])
        with old.edit("counted") as draft:
            draft.seen = 1
        with old.edit("changed") as draft:
            rows = rows_of(form, draft.page)
            if isinstance(rows[0], dict):
                rows[0]["n"] = 2
            else:
                rows[0].n = 2
        kept = store.agent_of(store.find("a")).state  # type: ignore[arg-type]
        assert "keep" in str(kept)
        seen = new.refresh()
        first = rows_of(form, seen.page)[0]
        assert first == ({**row, "n": 2} if isinstance(row, dict) else type(row)(n=2, note="keep"))
        assert type(first) is type(row)


@each_form
def test_an_edit_refuses_what_a_reader_would(form: Callable[[Any], Any]) -> None:
    """A word in a list of numbers of `class Counts(Page[int])` was committed, and from then on the
    same program could not read the agent."""
    cls = state_of(form(int))
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls(page(form, 1, int)))
        agent.checkpoint("made")
        with pytest.raises(SchemaError), agent.edit("a slip") as draft:
            rows_of(form, draft.page).append("two")
        with agent.edit("right") as draft:
            rows_of(form, draft.page).append(2)
        assert rows_of(form, store.agent("a", cls).state.page) == [1, 2]


def test_variables_that_are_passed_on_in_another_order_are_not_taken_for_each_other() -> None:
    cls = state_of(Swapped[str, int])
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls(Swapped(["a"], {"b": 1})))
        agent.checkpoint("made")
        with agent.edit("more") as draft:
            draft.page.rows.append("c")
            draft.page.by_name["d"] = 2
        for wrong in (lambda page: page.rows.append(3), lambda page: page.by_name.update(e="f")):
            with pytest.raises(SchemaError), agent.edit("a slip") as draft:
                wrong(draft.page)
        assert store.agent("a", cls).state.page == Swapped(["a", "c"], {"b": 1, "d": 2})


def test_a_generic_tuple_holds_what_it_was_given() -> None:
    cls = state_of(TuplePage[NewerItem])
    newer: Any = perdure.Schema(cls, id="s", version=(1, 1))
    older: Any = perdure.Schema(state_of(TuplePage[Item]), id="s", version=(1, 0))
    with perdure.open("memory://") as store:
        new = store.agent("a", newer, initial=cls(TuplePage([NewerItem(1, "keep")])))
        new.checkpoint("made")
        with store.agent("a", older).edit("counted") as draft:
            draft.seen = 1
        assert new.refresh().page == TuplePage([NewerItem(1, "keep")])


def test_an_instance_may_say_what_it_was_given() -> None:
    """`Page[int]([1])` was refused, as typing notes in each instance which class it was made by: a
    field that the class did not declare."""
    cls = state_of(Page[int])
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls(Page[int]([1])))
        with agent.edit("another") as draft:
            draft.page = Page[int]([2])
        assert store.agent("a", cls).state.page == Page([2])


@pytest.mark.parametrize(
    "variable",
    [TypeVar("variable", int, str), typing_extensions.TypeVar("variable", default=int)],
    ids=["constraints", "default"],
)
def test_a_variable_that_nothing_is_given_for_is_what_it_says_itself(variable: Any) -> None:
    """Where only the variable says what may stand there, an edit took anything, too."""

    class Rows(pydantic.BaseModel, Generic[variable]):  # type: ignore[misc]
        rows: list[variable]

    with perdure.open("memory://") as store:
        agent = store.agent("a", Rows, initial=Rows(rows=[1]))
        agent.checkpoint("made")
        with pytest.raises(SchemaError), agent.edit("a slip") as draft:
            draft.rows.append(1.5)
        assert store.agent("a", Rows).state.rows == [1]
