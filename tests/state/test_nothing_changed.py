"""An edit that changes nothing in the end commits nothing, whatever it did on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import Store
from perdure.core.draft import undone_changes
from perdure.core.draft.draft import Recording
from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import copy, same


@dataclass
class Pet:
    name: str = "Rex"
    tricks: list[str] = field(default_factory=list)


@dataclass
class S:
    n: int = 0
    s: set[str] = field(default_factory=set)
    numbers: list[int] = field(default_factory=lambda: [1, 2])
    d: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 2})
    pet: Pet = field(default_factory=Pet)
    words: list[str] = field(default_factory=lambda: ["to", "and", "to"])
    pets: dict[str, Pet] = field(default_factory=lambda: {"a": Pet("Ada")})


def both(*parts: Callable[[Any], object]) -> Callable[[Any], None]:
    def change(draft: Any) -> None:
        for part in parts:
            part(draft)

    return change


def setting(**values: Any) -> Callable[[Any], None]:
    return both(*(lambda d, k=k, v=v: setattr(d, k, v) for k, v in values.items()))


def counting_up_and_down(draft: Any) -> None:
    draft.n += 1
    perdure.increment(draft, "n")
    draft.n -= 2


NOTHING: dict[str, Callable[[Any], object]] = {
    "up and down": counting_up_and_down,
    "by nothing": lambda d: perdure.increment(d, "n", 0),
    "add, discard": both(lambda d: d.s.add("x"), lambda d: d.s.discard("x")),
    "append, pop": both(lambda d: d.numbers.append(3), lambda d: d.numbers.pop()),
    "insert, remove": both(lambda d: d.numbers.insert(0, 3), lambda d: d.numbers.remove(3)),
    "pop, insert": both(lambda d: d.numbers.pop(0), lambda d: d.numbers.insert(0, 1)),
    "reverse twice": both(lambda d: d.numbers.reverse(), lambda d: d.numbers.reverse()),
    "clear, extend": both(lambda d: d.numbers.clear(), lambda d: d.numbers.extend([1, 2])),
    "move, move": both(
        lambda d: perdure.move(d.numbers, 0, 1), lambda d: perdure.move(d.numbers, 1, 0)
    ),
    "put, delete": both(lambda d: d.d.update(c=1), lambda d: d.d.pop("c")),
    "delete the last, put": both(lambda d: d.d.pop("b"), lambda d: d.d.update(b=2)),
    "another list, the same": both(setting(numbers=[3]), setting(numbers=[1, 2])),
    "another, changed, the same": both(
        setting(numbers=[3]), lambda d: d.numbers.append(4), setting(numbers=[1, 2])
    ),
    "in two places": both(
        setting(n=4),
        lambda d: d.pet.tricks.append("sit"),
        setting(n=0),
        lambda d: d.pet.tricks.pop(),
    ),
    "another pet, the same": both(setting(pet=Pet("Ada")), setting(pet=Pet())),
    "within what is replaced by the same": both(
        lambda d: d.pet.tricks.append("sit"), lambda d: setattr(d, "pet", Pet())
    ),
    "within what comes and goes": both(
        lambda d: d.pets.update(b=Pet()),
        lambda d: d.pets["b"].tricks.append("sit"),
        lambda d: d.pets.pop("b"),
    ),
    "within what goes and comes": both(
        lambda d: d.pets["a"].tricks.append("sit"),
        lambda d: d.pets.pop("a"),
        lambda d: d.pets.update(a=Pet("Ada")),
    ),
    "the same words": lambda d: d.words.__setitem__(slice(2), ["".join("to"), "".join("and")]),
    "the same words, moved": both(
        lambda d: perdure.move(d.words, 0, 2), lambda d: perdure.move(d.words, 0, 1)
    ),
    "all of it again": both(
        lambda d: d.numbers.insert(0, 1),
        lambda d: d.numbers.__delitem__(slice(1, 3)),
        lambda d: d.numbers.append(2),
    ),
}

SOMETHING: dict[str, Callable[[Any], object]] = {
    "one of two": both(
        setting(n=4),
        lambda d: d.pet.tricks.append("sit"),
        setting(n=0),
    ),
    "the order of keys": both(lambda d: d.d.pop("a"), lambda d: d.d.update(a=1)),
    "append, take another": both(lambda d: d.numbers.append(3), lambda d: d.numbers.pop(0)),
    "within what was taken out": both(
        lambda d: d.pet.tricks.append("sit"),
        setting(pet=Pet("Ada")),
        setting(pet=Pet(tricks=["sit"])),
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_taken_back_in_the_block_is_no_commit(store: Store, name: str) -> None:
    """A block that changed something and changed it back made a commit with a delta, between two
    states that are equal. Who then undid the last change saw nothing, and had to ask again."""
    agent = store.agent("a", S)
    with agent.edit("first") as draft:
        draft.numbers.append(3)
        draft.numbers.pop()
        draft.n = 7
    with agent.edit("second") as draft:
        draft.n = 0
    seq, state = agent.seq, agent.state
    before = copy(agent._working.plain)
    edit = agent.edit("nothing")
    with edit as draft:
        NOTHING[name](draft)
    assert edit.commit is None and agent.seq == seq
    assert agent.state is state
    agent.refresh()
    assert agent.state is state, "nor is anything read anew"
    assert same(agent._working.plain, before) and agent.drift() == []
    assert store.agent("a", S).seq == seq
    agent.undo()
    assert agent.state.n == 7


@pytest.mark.parametrize("name", SOMETHING)
def test_what_is_not_taken_back_whole_is_one(store: Store, name: str) -> None:
    agent = store.agent("a", S)
    with agent.edit("first") as draft:
        draft.n = 0
    seq = agent.seq
    with agent.edit("something") as draft:
        SOMETHING[name](draft)
    assert agent.seq == seq + 1
    assert store.agent("a", S).state == agent.state


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_said_of_it_in_other_ways_either(store: Store, name: str) -> None:
    """An item was added to a list inside of an object, which was then replaced by one like it was
    before: the commit had two ops, and no difference. So had one of a list that was given the words
    that it had, and of a key that was set, changed inside, and deleted."""
    agent = store.agent("a", S)
    agent.update(setting(n=7))
    agent.update(setting(n=0))
    seq = agent.seq
    agent.update(NOTHING[name])
    assert agent.save(deepcopy(agent.state), "nothing") is None
    with agent.edit("nothing") as draft:
        NOTHING[name](draft)
        NOTHING[name](draft)
    assert agent.seq == seq == store.agent("a", S).seq


@perdure.agent(S)
def does_nothing(run: perdure.Run[S], name: str) -> int:
    with run.edit("something") as draft:
        draft.n = 7
    with run.edit("something") as draft:
        draft.n = 0
    with run.edit("nothing") as draft:
        NOTHING[name](draft)
    return run.state.n


@pytest.mark.parametrize("name", NOTHING)
def test_where_more_is_said_the_commit_has_no_ops(store: Store, name: str) -> None:
    """The edit of a run is in its record, and a key is used; but undo took the commit for one that
    had changed something, and nothing was taken back."""
    assert store.run(does_nothing, "a", name) == 0
    agent = store.agent("a", S)
    with agent.edit("with a key", key="k") as draft:
        NOTHING[name](draft)
    log = [*agent.log()]
    assert [bool(one.delta) for one in log if one.cause.what == "nothing"] == [False]
    assert [bool(one.delta) for one in log if one.cause.what == "with a key"] == [False]
    agent.undo()
    assert agent.state.n == 7
    agent.verify()


def test_an_update_and_an_async_edit_that_take_all_back(store: Store) -> None:
    agent = store.agent("a", S)
    agent.update(setting(n=1))
    seq = agent.seq
    agent.update(both(setting(n=2), setting(n=1)))
    assert agent.seq == seq

    async def editing() -> int:
        async with perdure.open_async("memory://") as other:
            mine = await other.agent("a", S)
            async with mine.edit("first") as draft:
                draft.n = 1
            async with mine.edit("nothing") as draft:
                NOTHING["append, pop"](draft)
            return mine.seq

    assert asyncio.run(editing()) == 2


def test_a_key_is_used_by_a_block_that_takes_all_back(store: Store) -> None:
    """What a key names was done: who asks again gets that commit."""
    agent = store.agent("a", S)
    agent.update(setting(n=1))
    with agent.edit("nothing", key="k") as draft:
        counting_up_and_down(draft)
    seq = agent.seq
    with agent.edit("nothing", key="k") as draft:
        counting_up_and_down(draft)
    assert agent.seq == seq == 3


# -- by chance -----------------------------------------------------------------------------

VALUES = st.sampled_from([0, 1, True, [], [1], {"a": 1}, {"b": [1]}])


@st.composite
def change(draw: st.DrawFn) -> Callable[[Any], object]:
    """One change somewhere: of the root, of its list, its dict, or of what is in these."""
    what, at, value = draw(st.integers(0, 8)), draw(st.integers(0, 2)), draw(VALUES)

    def of_list(items: Any) -> None:
        if what == 0 or not len(items):
            items.append(copy(value))
        elif what == 1:
            items.pop(at % len(items))
        elif what == 2:
            items.insert(at % len(items), copy(value))
        elif what == 3:
            items[at % len(items)] = copy(value)
        else:
            perdure.move(items, at % len(items), 0)

    def of_dict(items: Any) -> None:
        if at == 0 and "a" in items:
            del items["a"]
        else:
            items["ab"[at % 2]] = copy(value)

    def apply(draft: Any) -> None:
        if what < 5:
            of_list(draft["list"])
        elif what < 7:
            of_dict(draft["dict"])
        elif what == 7:
            draft["dict"] = copy(draft["dict"]) if at else {"a": copy(value)}
        else:
            inner = draft["list"][0] if len(draft["list"]) else None
            if isinstance(inner, list):
                inner.append(1)
            elif isinstance(inner, dict):
                of_dict(inner)

    return apply


def start() -> dict[str, Any]:
    return {"list": [{"a": 1}, [1]], "dict": {"a": 1, "b": [1]}}


@given(st.lists(change(), min_size=1, max_size=6))
def test_a_change_is_never_taken_for_none(changes: list[Callable[[Any], object]]) -> None:
    recording = Recording(Schema(dict), start())
    for one in changes:
        one(recording.draft)
    now = recording.plain
    assert recording.changed != (same(now, start()) and repr(now) == repr(start()))
    assert same(recording.rollback(), start())


def test_that_something_changed_is_seen_without_a_look_at_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To give the last of 200,000 items another value took 15 ms more than to add one: the whole
    list was compared."""

    state: dict[str, Any] = {}

    def read(_: object, container: Any) -> Any:
        assert container is not state["list"] and container is not state["dict"]
        return container

    monkeypatch.setattr(undone_changes.AsItWas, "content", read)
    acts: list[Callable[[Any], object]] = [
        lambda d: d["list"].__setitem__(-1, [2]),
        lambda d: d["list"].__setitem__(slice(1, 2), [[2]]),
        lambda d: d["list"].pop(),
        both(lambda d: d["list"].pop(0), lambda d: d["list"].append([3])),
        lambda d: d["dict"].__setitem__("b", [2]),
        lambda d: d["dict"].pop("b"),
        lambda d: d["dict"]["b"].append(2),
    ]
    for act in acts:
        state = start()
        recording = Recording(Schema(dict), state)
        act(recording.draft)
        assert recording.changed
