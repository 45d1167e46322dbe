"""Random edits of lists in lists, against the same done to plain data.

Outer lists are spliced, shortened and moved first, and what is inside is changed before and after:
the place of an inner change is then another one in the end. An edit once lost track of such places.
It gave what a validator had made to another item, and wrote that to the log; it refused legal edits
as drift; and on plain data it failed with a TypeError of its own.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

import perdure
from perdure.core.values.plain_values import same

PHASES = [Phase.explicit, Phase.generate]  # a failing example says enough; shrinking takes minutes

# Both validators give the same whether they run after each change or once in the end.
Digit = Annotated[int, AfterValidator(lambda number: number % 7)]


class Leaf(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    name: str = ""
    low: str = ""
    n: Digit = 0
    marks: list[Digit] = []

    @model_validator(mode="after")
    def lower(self) -> Leaf:
        if self.low != self.name.lower():
            object.__setattr__(self, "low", self.name.lower())
        return self


class Row(BaseModel):
    items: list[Leaf] = []


class Model(BaseModel):
    rows: list[Row] = []
    nested: list[list[Leaf]] = []


@dataclass
class DLeaf:
    name: str = ""
    low: str = ""
    n: int = 0
    marks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.low, self.n = self.name.lower(), self.n % 7
        self.marks = [mark % 7 for mark in self.marks]


@dataclass
class DRow:
    items: list[DLeaf] = field(default_factory=list)


@dataclass
class DModel:
    rows: list[DRow] = field(default_factory=list)
    nested: list[list[DLeaf]] = field(default_factory=list)


class SLeaf(msgspec.Struct):
    name: str = ""
    low: str = ""
    n: int = 0
    marks: list[int] = []


class SRow(msgspec.Struct):
    items: list[SLeaf] = []


class SModel(msgspec.Struct):
    rows: list[SRow] = []
    nested: list[list[SLeaf]] = []


class TLeaf(TypedDict):
    name: str
    low: str
    n: int
    marks: list[int]


class TRow(TypedDict):
    items: list[TLeaf]


class TModel(TypedDict):
    rows: list[TRow]
    nested: list[list[TLeaf]]


VALIDATED = (Model, DModel)


def validated(raw: dict[str, Any]) -> dict[str, Any]:
    """What the validators make of plain data."""
    raw = copying.deepcopy(raw)
    for leaf in leaves(raw):
        leaf["low"], leaf["n"] = leaf["name"].lower(), leaf["n"] % 7
        leaf["marks"] = [mark % 7 for mark in leaf["marks"]]
    return raw


def get(target: Any, name: str) -> Any:
    return target[name] if isinstance(target, dict) else getattr(target, name)


def put(target: Any, name: str, value: Any) -> None:
    if isinstance(target, dict):
        target[name] = value
    else:
        setattr(target, name, value)


def inner(root: Any) -> list[Any]:
    """The lists of leaves, in one order for a draft and its mirror."""
    return [get(row, "items") for row in get(root, "rows")] + list(get(root, "nested"))


def leaves(root: Any) -> list[Any]:
    return [leaf for items in inner(root) for leaf in items]


def on_one(
    find: Callable[[Any], list[Any]], pick: int, change: Callable[[Any], None]
) -> Callable[[Any], None]:
    """A change of one of what is found, the same one in a draft and its mirror."""

    def act(root: Any) -> None:
        found = find(root)
        if found:
            change(found[pick % len(found)])

    return act


def rearrange(items: Any, act: int, i: int, j: int, new: Any) -> None:
    """One change of a list, the same in both."""
    size = len(items)
    match act % 6:
        case 0:
            del items[i % (size + 1) : j % (size + 1)]
        case 1:
            items.insert(i % (size + 1), copying.deepcopy(new))
        case 2 if size:
            perdure.move(items, i % size, j % size)
        case 3:
            items.append(copying.deepcopy(new))
        case 4:
            items[i % (size + 1) : j % (size + 1)] = [copying.deepcopy(new)]
        case 5 if size:
            items.pop(i % size)


def change_leaf(leaf: Any, act: int, n: int) -> None:
    marks = get(leaf, "marks")
    match act % 6:
        case 0:
            put(leaf, "name", get(leaf, "name") + "aB"[n % 2])
        case 1:
            perdure.increment(leaf, "n", n)
        case 2:
            put(leaf, "n", n + 5)
        case 3:
            marks.append(n + 5)
        case 4 if len(marks):
            perdure.increment(marks, n % len(marks), 9)
        case 5 if len(marks):
            marks[n % len(marks)] = n + 9


small = st.integers(0, 5)
raw_leaves = st.builds(
    lambda name, n, marks: {"name": name, "low": name.lower(), "n": n, "marks": marks},
    st.sampled_from(["A", "b", "cD"]),
    st.integers(0, 6),
    st.lists(st.integers(0, 6), max_size=3),
)
raw_inner = st.lists(raw_leaves, max_size=3)
raw_rows = st.builds(lambda items: {"items": items}, raw_inner)
raw_models = st.builds(
    lambda rows, nested: {"rows": rows, "nested": nested},
    st.lists(raw_rows, min_size=2, max_size=3),
    st.lists(raw_inner, min_size=2, max_size=3),
)
of_outer = st.builds(
    lambda name, a, i, j, row, items: (
        lambda t: rearrange(get(t, name), a, i, j, row if name == "rows" else items)
    ),
    st.sampled_from(["rows", "nested"]),
    small,
    small,
    small,
    raw_rows,
    raw_inner,
)
of_inner = st.builds(
    lambda p, a, i, j, v: on_one(inner, p, lambda items: rearrange(items, a, i, j, v)),
    st.integers(0, 40),
    small,
    small,
    small,
    raw_leaves,
)


def of_leaves_in(find: Callable[[Any], list[Any]]) -> st.SearchStrategy[Any]:
    """Changes of one of the leaves that are found in something."""
    return st.one_of(
        st.builds(
            lambda p, a, i, j, n: on_one(
                find, p, lambda leaf: rearrange(get(leaf, "marks"), a, i, j, n)
            ),
            st.integers(0, 40),
            small,
            small,
            small,
            st.integers(0, 9),
        ),
        st.builds(
            lambda p, a, n: on_one(find, p, lambda leaf: change_leaf(leaf, a, n)),
            st.integers(0, 40),
            small,
            small,
        ),
    )


of_leaves = of_leaves_in(leaves)
acts = st.one_of(of_outer, of_inner, of_leaves)


def inner_of(root: Any, name: str, index: int) -> Any:
    items = get(root, name)[index]
    return get(items, "items") if name == "rows" else items


def from_inside(
    name: str, leaf: Any, front: list[Any], low: int, act: int, i: int, j: int, new: Any
) -> list[Any]:
    """A leaf of the second list is changed, then what is in front of that list, then the list."""

    def change(root: Any) -> None:
        if len(get(root, name)) > 1:
            leaf(inner_of(root, name, 1))

    def outer(root: Any) -> None:
        get(root, name)[low % 2 : 1] = copying.deepcopy(front)

    def inner(root: Any) -> None:
        at = len(front) + low % 2
        if len(get(root, name)) > at:
            rearrange(inner_of(root, name, at), act, i, j, new)

    return [change, outer, inner]


leaf_acts = of_leaves_in(list)
inwards = st.one_of(
    st.builds(
        from_inside,
        st.just("rows"),
        leaf_acts,
        st.lists(raw_rows, max_size=2),
        small,
        small,
        small,
        small,
        raw_leaves,
    ),
    st.builds(
        from_inside,
        st.just("nested"),
        leaf_acts,
        st.lists(raw_inner, max_size=2),
        small,
        small,
        small,
        small,
        raw_leaves,
    ),
)
edits = st.lists(st.one_of(inwards, st.lists(acts, min_size=2, max_size=7)), min_size=1, max_size=3)


def check(type_: Any, raw: dict[str, Any], todo: list[Any]) -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("nested", type_, initial=copying.deepcopy(raw))
        agent.checkpoint("start")
        history = [raw]
        for edit in todo:
            mirror = copying.deepcopy(history[-1])
            block = agent.edit()
            with block as draft:
                for act in edit:
                    act(draft)
                    act(mirror)
            expected = validated(mirror) if type_ in VALIDATED else mirror
            check_state(store, agent, type_, expected)
            if block.commit is not None:  # one that changes nothing in the end may be one, too
                history.append(expected)
        agent.verify()
        for expected in history[-2::-1]:
            agent.undo()
            check_state(store, agent, type_, expected)
        for expected in history[1:]:
            agent.redo()
            check_state(store, agent, type_, expected)


def check_state(store: Any, agent: Any, type_: Any, expected: Any) -> None:
    schema: perdure.Schema[Any] = perdure.Schema.of(type_)
    assert same(agent.at("main").plain, expected), "the log"
    assert same(schema.take(agent.state, aliases_refused=True), expected), "the live object"
    assert store.agent("nested", type_).state == agent.state, "rehydrated"
    assert agent.drift() == []


@pytest.mark.parametrize("type_", [None, Model, DModel, SModel, TModel])
def test_lists_in_lists_are_like_lists_in_lists(type_: Any) -> None:
    @settings(max_examples=80, deadline=None, phases=PHASES)
    @given(raw_models, edits)
    def run(raw: dict[str, Any], todo: list[Any]) -> None:
        check(type_, raw, todo)

    run()
