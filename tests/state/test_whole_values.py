"""Whole values that are saved or assigned: trees, with an order of keys; and what drift is not."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import pydantic
import pytest
from typing_extensions import TypedDict

import perdure
from perdure.errors import SharedValue


@dataclass(frozen=True)
class Label:
    text: str = ""
    notes: list[int] | None = None


@dataclass
class Book:
    label: Label = Label()  # it is frozen: one for all
    pages: list[int] = field(default_factory=list)


@dataclass
class Shelf:
    books: list[Book] = field(default_factory=list)


def test_a_whole_value_is_a_tree_too(store, steady):
    """`save` took one object at two places and made two of it, which `initial` and `edit` refuse.

    A frozen object may stand at several: a class's default does. What it holds may not.
    """
    agent = store.agent("a", Shelf)
    shared = [1]
    agent.save(Shelf([Book(), Book()]))
    with steady.refuses(agent, SharedValue, r"books\[1\]\.pages"):
        agent.save(Shelf([Book(pages=shared), Book(pages=shared)]))
    label = Label(notes=shared)
    with steady.refuses(agent, SharedValue, r"books\[1\]\.label\.notes"):
        agent.save(Shelf([Book(label), Book(label)]))
    assert agent.state == store.agent("a", Shelf).state == Shelf([Book(), Book()])


def test_the_order_of_keys_alone_is_a_change(store):
    """Keys that only came in another order were taken for no change, and the old order stayed.

    Who goes over them does things in that order, and a replay must do them in the same.
    """
    agent = store.agent("a", initial={"d": {"x": 1, "y": 2}, "l": [{"p": 1, "q": 2}]})
    with agent.edit() as draft:
        draft["d"] = {"y": 2, "x": 1}
        draft["l"][0] = {"q": 2, "p": 1}
    for state in (agent.state, store.agent("a").state):
        assert list(state["d"]) == ["y", "x"] and list(state["l"][0]) == ["q", "p"]
    again = agent.edit()
    with again as draft:
        draft["d"] = {"y": 2, "x": 1}
    assert again.commit is None
    assert agent.save({"l": [{"p": 1, "q": 2}], "d": {"x": 1, "y": 2}}) is not None
    for state in (agent.state, store.agent("a").state):
        assert list(state) == ["l", "d"] and list(state["d"]) == ["x", "y"]
    agent.undo()
    agent.verify()


def test_the_order_of_a_class_s_fields_is_no_change(store):
    agent = store.agent("a", Shelf, initial=Shelf([Book(Label("x"))]))
    agent.update(lambda draft: setattr(draft.books[0], "pages", [1]))
    edit = agent.edit()
    with edit as draft:
        draft.books[0].label = Label("x")
    assert edit.commit is None


def test_an_open_edit_is_no_drift(store):
    """`drift` inside the handle's own edit reported what that edit had changed so far."""
    agent = store.agent("a", initial={"n": 1, "l": [{"k": 1}]})
    with agent.edit() as draft:
        draft["n"] = 2
        draft["l"].append({"k": 2})
        draft["l"][0]["k"] = 5
        del draft["l"][0]["k"]
        assert agent.drift() == []
        agent.state["l"][0]["k"] = 7
        assert [one.path for one in agent.drift()] == ["state.l[0].k"]
        agent.state["l"][0]["k"] = 1
    assert agent.drift() == [] and agent.state == {"n": 2, "l": [{}, {"k": 2}]}


@dataclass
class Sets:
    due: set[dt.datetime]
    prices: set[Decimal]


def test_a_member_that_an_equal_one_takes_the_place_of(store):
    """The same instant in another zone, the same number with other digits: the log had the new
    member and the handle kept the old one, which its next `save` then wrote back."""
    here, there = (
        dt.datetime(2024, 1, 1, 12 + hours, tzinfo=dt.timezone(dt.timedelta(hours=hours)))
        for hours in (0, 2)
    )
    first = Sets({here}, {Decimal("1.0"), Decimal(7)})
    agent, other = (store.agent("sets", Sets, initial=first) for _ in range(2))
    agent.save(first)
    assert other.state == first
    with agent.edit() as draft:
        draft.due.remove(here)
        draft.due.add(there)
        draft.prices -= {Decimal("1.0")}
        draft.prices |= {Decimal("1.00")}
        draft.prices.add(Decimal(8))
        draft.prices.remove(Decimal(8))
    other.refresh()
    for handle in (agent, other, store.agent("sets", Sets)):
        assert [one.utcoffset() for one in handle.state.due] == [dt.timedelta(hours=2)]
        assert sorted(map(str, handle.state.prices)) == ["1.00", "7"]
        assert handle.drift() == []
    seq = agent.seq
    agent.save(agent.state)
    assert agent.diff(seq, "main") == []


class Pair(NamedTuple):
    numbers: list[int]
    text: str


WHOLE = {
    "tuple": (tuple[int, str], (1, "a"), (2, "b")),
    "named tuple": (Pair, Pair([1], "a"), Pair([1, 2], "b")),
    "number": (int, 1, 2),
    "frozenset": (frozenset[int], frozenset({1}), frozenset({2})),
    "nothing yet": (Book | None, None, Book(pages=[1])),
}


@pytest.mark.parametrize("what", WHOLE)
def test_a_state_that_is_saved_whole_is_so_from_the_first(store, what):
    """The commit that creates the agent looked at its state as at something with parts: `save`
    was refused with the hint to use `save`."""
    kind, first, second = WHOLE[what]
    schema = perdure.Schema(kind, id="whole", invariants=[lambda old, new: new != 5])
    agent = store.agent("a", schema, initial=first)
    with pytest.raises(perdure.SchemaError, match=r"agent\.save"), agent.edit():
        pass
    agent.save(second)
    assert agent.state == store.agent("a", schema).state == second
    agent.undo()
    assert agent.state == first
    store.agent("b", schema, initial=first).checkpoint("begun")
    assert store.agent("b", schema).state == first
    for one in ("a", "b"):
        store.agent(one, schema).verify()


@pytest.mark.parametrize("way", ["remove", "discard", "-=", "^="])
def test_a_member_taken_out_by_an_equal_one_comes_back_as_it_was(store, way):
    """A block took Decimal("1.0") out as 1, and raised. What was put back was the 1: the handle
    called it drift, a refresh showed a state that was never committed, and a save was dropped."""
    agent = store.agent("a", initial={"d": {Decimal("1.0"), True, "x"}})
    agent.save({"d": {Decimal("1.0"), "x"}})

    def take_out(draft):
        if way in ("remove", "discard"):
            getattr(draft["d"], way)(1)
        elif way == "-=":
            draft["d"] -= {1.0, "x"}
        else:
            draft["d"] ^= {1, "x", 5}

    with pytest.raises(ZeroDivisionError), agent.edit() as draft:
        take_out(draft)
        assert not any(one == 1 for one in draft["d"])
        _ = 1 / 0
    assert sorted(map(repr, agent.state["d"])) == ["'x'", "Decimal('1.0')"]
    assert agent.drift() == []
    with agent.edit() as draft:
        take_out(draft)
    agent.undo()
    for handle in (agent, store.agent("a")):
        assert sorted(map(repr, handle.state["d"])) == ["'x'", "Decimal('1.0')"]
    agent.save({"d": {1, "x"}})
    assert sorted(map(repr, store.agent("a").state["d"])) == ["'x'", "1"]


@pytest.mark.parametrize("way", ["pop", "del", "pop and put", "clear"])
def test_a_key_taken_out_by_an_equal_one_comes_back_as_it_was(store, way):
    """The same of a dict's keys: what came back was the key that the block had named, in the handle
    of a block that raised, and for everybody by an undo."""
    agent = store.agent("a", initial={"d": {"x": 2, Decimal("1.0"): "one"}})
    agent.checkpoint("made")

    def take_out(draft):
        if way == "del":
            del draft["d"][1]
        elif way == "clear":
            draft["d"].clear()
        else:
            draft["d"].pop(1 if way == "pop" else 1.0)
        if way == "pop and put":
            draft["d"][1] = "int"

    def keys(handle):
        return sorted(map(repr, handle.state["d"]))

    with pytest.raises(ZeroDivisionError), agent.edit() as draft:
        take_out(draft)
        _ = 1 / 0
    assert keys(agent) == ["'x'", "Decimal('1.0')"] and agent.drift() == []
    assert agent.save({"d": {"x": 2, Decimal("1.0"): "one"}}) is None
    with agent.edit() as draft:
        take_out(draft)
    assert keys(agent) == keys(store.agent("a"))
    agent.undo()
    for handle in (agent, store.agent("a")):
        assert handle.state["d"] == {"x": 2, 1: "one"}
        assert keys(handle) == ["'x'", "Decimal('1.0')"]
    agent.verify()


class Loose(TypedDict, total=False):
    a: int
    b: int
    c: int


def test_a_typed_dicts_keys_have_the_order_of_the_log(store):
    """A key that was taken out and put back in one edit kept its place in the handle, where the
    log, and every other handle, has it last."""
    agent = store.agent("a", Loose, initial={"a": 1, "b": 2, "c": 3})
    other = store.agent("a", Loose)
    with agent.edit() as draft:
        draft["a"] = draft.pop("a") + 1
        draft.pop("b")
        draft["b"] = 5
        del draft["b"]
    with agent.edit() as draft:
        del draft["a"]
        draft["b"] = 7
        draft["a"] = 8
    for handle in (agent, other, store.agent("a", Loose)):
        assert list(handle.refresh().items()) == [("c", 3), ("b", 7), ("a", 8)]
    agent.undo()
    agent.undo()
    for handle in (agent, other, store.agent("a", Loose)):
        assert list(handle.refresh().items()) == [("a", 1), ("b", 2), ("c", 3)]


@dataclass
class Prices:
    by: dict[Decimal, int] = field(default_factory=dict)


@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
@pytest.mark.parametrize("again", ["1.0", "2.00"], ids=["in another order", "by an equal one"])
def test_a_key_that_was_put_back_outside_an_edit_is_drift(store, typed, again):
    """The order of a dict's keys is part of the state: changed in memory only, it was no drift, a
    refresh did not drop it, and the next `save` of the state was a change that nobody had made."""
    first = {"by": {Decimal("1.0"): 1, Decimal("2"): 2}}
    made = {"schema": Prices, "initial": Prices(**first)} if typed else {"initial": first}
    agent = store.agent("a", **made)
    agent.checkpoint("made")

    def live():
        return agent.state.by if typed else agent.state["by"]

    live()[Decimal(again)] = live().pop(Decimal(again))
    (drift,) = agent.drift()
    assert drift.path == "state.by" and "in memory only" in drift.reason
    assert [*map(str, drift.in_log)] == ["1.0", "2"]
    assert [*map(str, drift.in_memory)] == [*map(str, live())] != ["1.0", "2"]
    agent.refresh()
    assert [*map(str, live())] == ["1.0", "2"] and agent.drift() == []
    assert agent.save(agent.state) is None


class Model(pydantic.BaseModel):
    loose: Loose = {}
    items: list[Loose] = []
    one: Loose | None = None


def test_a_typed_dict_in_a_pydantic_class_keeps_its_order(store):
    """Pydantic builds one as it is declared: a handle that committed had another order than all
    others, and a state that was saved as it had been read was a change."""
    agent = store.agent("a", Model)
    with agent.edit() as draft:
        draft.loose = {"c": 1, "a": 2}
        draft.items.append({"b": 1, "a": 2})
        draft.one = {"c": 3, "b": 4, "a": 5}
    with agent.edit() as draft:
        draft.one["c"] = draft.one.pop("c")
    for handle in (agent, store.agent("a", Model)):
        state = handle.state
        assert [*state.loose] == ["c", "a"] and [*state.items[0]] == ["b", "a"]
        assert [*state.one] == ["b", "a", "c"]
        assert handle.save(state.model_copy(deep=True)) is None and handle.drift() == []
    agent.undo()
    assert [*agent.state.one] == ["c", "b", "a"]
    agent.state.one["c"] = agent.state.one.pop("c")
    assert [(drift.path, drift.in_log) for drift in agent.drift()] == [
        ("state.one", ["c", "b", "a"])
    ]
    assert [*agent.refresh().one] == ["c", "b", "a"]
