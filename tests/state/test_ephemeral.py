"""Ephemeral fields of a living handle stay, whatever becomes of the stored ones."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import perdure
from perdure import Ephemeral
from tests.engine.working import BOUND_S, working


@dataclass
class Part:
    n: int = 0
    handle: Ephemeral[object | None] = None


@dataclass
class Session:
    n: int = 0
    notes: list[str] = field(default_factory=list)
    part: Part = field(default_factory=Part)
    by_key: dict[str, Part] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    client: Ephemeral[object | None] = None


CLIENT, HANDLE = object(), object()


class Excluding(BaseModel):
    n: int = 0
    handle: Any = Field(None, exclude=True)


KEPT = (1, 2, 3)
MOVES: dict[str, Any] = {
    "taken out": lambda draft, kind: draft.pop(0),
    "put in": lambda draft, kind: draft.insert(0, kind(n=9)),
    "turned": lambda draft, kind: draft.reverse(),
    "moved": lambda draft, kind: perdure.move(draft, 0, 2),
    "put elsewhere": lambda draft, kind: draft.append(draft.pop(0)),
    "deleted and put back": lambda draft, kind: put_back(draft),
    "slices": lambda draft, kind: draft.__setitem__(slice(0, 2), [draft[1], kind(n=8), draft[0]]),
    "sorted": lambda draft, kind: draft.sort(key=lambda one: -one.n),
    "replaced": lambda draft, kind: draft.__setitem__(0, kind(n=9)),
}


def put_back(draft: Any) -> None:
    first = draft[0]
    del draft[0]
    draft.append(first)


def connected(store: Any, kind: Any) -> Any:
    """Returns an agent with three items, and of each a handle that says whose it is."""
    agent: Any = store.agent("c", list[kind], initial=[kind(n=n) for n in KEPT])
    connect(agent)
    return agent


@pytest.fixture
def mine(store):
    agent = store.agent("a", Session, initial=Session(by_key={"k": Part()}, parts=[Part(), Part()]))
    with agent.edit("first") as draft:
        draft.client = CLIENT
        draft.part.handle = draft.by_key["k"].handle = draft.parts[1].handle = HANDLE
        draft.n = 1
    return agent


@pytest.fixture
def theirs(store, mine):
    return store.agent("a", Session)


def held(state: Any) -> bool:
    return (
        state.client is CLIENT
        and state.part.handle is state.by_key["k"].handle is HANDLE
        and state.parts[-1].handle is HANDLE
    )


def test_when_somebody_else_commits(mine, theirs):
    """A client vanished from a living handle when another one committed.

    The live object was built anew from the log at the next refresh or edit: inside the handle's
    own edit the client was gone.
    """
    theirs.update(lambda draft: draft.parts.pop(0))
    assert mine.refresh().parts == [Part(handle=HANDLE)] and held(mine.state)
    theirs.update(lambda draft: perdure.increment(draft, "n"))
    with mine.edit() as draft:
        assert draft.client is CLIENT and draft.parts[0].handle is HANDLE
        draft.notes.append("x")
    assert held(mine.state) and mine.state.n == 2
    theirs.refresh()
    assert theirs.state.client is None and theirs.state.parts[0].handle is None


def test_at_a_save_and_an_undo(mine):
    changed = Session(5, ["x"], Part(), {"k": Part(7)}, [Part(), Part()])
    mine.save(changed)
    assert held(mine.state) and mine.state.by_key["k"].n == 7
    mine.state.notes.append("y")  # the live one, changed and saved as a whole
    mine.state.parts.pop()
    mine.save(mine.state)
    assert mine.state.client is CLIENT and mine.state.part.handle is HANDLE
    mine.undo()
    assert mine.state.notes == ["x"] and mine.state.client is CLIENT


def test_at_a_rollback_and_an_adoption(mine):
    mine.checkpoint("point")
    mine.update(lambda draft: setattr(draft, "n", 9))
    mine.rollback("point")
    assert mine.state.n == 1 and mine.state.client is CLIENT
    assert mine.state.part.handle is mine.state.by_key["k"].handle is HANDLE
    other = mine.fork("other")
    other.update(lambda draft: setattr(draft, "n", 3))
    assert other.state.client is None, "another handle has an object of its own"
    mine.adopt("other")
    assert mine.state.n == 3 and mine.state.client is CLIENT


def test_not_through_lists_where_the_state_is_read_anew(mine):
    """Nothing says which item was which: none gets what may be another's."""
    mine.rollback(mine.seq)
    assert mine.state.client is CLIENT and [one.handle for one in mine.state.parts] == [None, None]


def test_dropping_drift_keeps_them(mine):
    mine.state.n = 5
    assert mine.refresh().n == 1 and mine.state.client is CLIENT


@pytest.mark.parametrize("kind", [Part, Excluding])
@pytest.mark.parametrize("change", MOVES.values(), ids=MOVES)
def test_inside_an_edit_each_object_shows_its_own(store, kind, change):
    """After `draft.items.pop(0)` the first item showed the client of the removed one: a message
    went out as a customer who was just taken off the list. So it was behind any item that was put
    in, moved, sorted or replaced."""
    agent = connected(store, kind)
    with agent.edit("changed") as draft:
        change(draft, kind)
        assert [one.handle for one in draft] == [
            f"of {one.n}" if one.n in KEPT else None for one in draft
        ]
        inside = [one.handle for one in draft]
    assert own(agent) == inside


def test_they_go_along_with_what_an_edit_moves(store):
    """Who sorted a list, or took an object out of it and put it elsewhere, found the client of that
    object to be None after the edit."""
    initial = Session(parts=[Part(1), Part(2)], by_key={"k": Part(3)})
    agent = store.agent("m", Session, initial=initial)
    with agent.edit() as draft:
        for part in [*draft.parts, draft.part, *draft.by_key.values()]:
            part.handle = f"of {part.n}"
    with agent.edit() as draft:
        draft.parts.reverse()
        draft.part = draft.parts.pop(0)
        draft.by_key["z"] = draft.by_key.pop("k")
        draft.by_key["y"] = taken = draft.parts.pop()
        taken.handle = "a whole object is data"
    state = agent.state
    assert state.part.handle == "of 2"
    assert {key: one.handle for key, one in state.by_key.items()} == {"z": "of 3", "y": "of 1"}


def test_what_was_set_in_the_same_block_goes_along_too(mine):
    with mine.edit() as draft:
        draft.parts[1].handle = CLIENT
        draft.parts.insert(0, draft.parts.pop())
        assert draft.parts[0].handle is CLIENT
        draft.parts[1:1] = [draft.parts.pop(0)]
    assert mine.state.parts[1].handle is CLIENT and mine.state.parts[0].handle is None


def test_a_copy_is_another_object(mine):
    with mine.edit() as draft:
        draft.parts.append(copy.deepcopy(draft.parts[1]))
        draft.by_key["l"] = copy.deepcopy(draft.parts[1])
        draft.by_key["m"] = again = draft.by_key.pop("k")
        draft.by_key["n"] = again
        draft.by_key["o"] = dataclasses.replace(again, n=5)
        assert draft.by_key["m"].handle is HANDLE and draft.by_key["n"].handle is None
    assert [one.handle for one in mine.state.parts] == [None, HANDLE, None]
    held = {key: one.handle for key, one in mine.state.by_key.items()}
    assert held == {"l": None, "m": HANDLE, "n": None, "o": None}


def own(agent: Any) -> list[Any]:
    assert all(one.handle in (None, f"of {one.n}") for one in agent.state)
    return [one.handle for one in agent.state]


def connect(agent: Any) -> None:
    with agent.edit("connected") as draft:
        for one in draft:
            one.handle = f"of {one.n}"


@pytest.mark.parametrize("kind", [Part, Excluding])
@pytest.mark.parametrize("to", [(2, 3, 1), (2, 3, 4), (7, 8, 9), (1, 5, 3)])
def test_at_a_save_no_item_gets_anothers(store, kind, to):
    """A save of a list in another order gave the client of the first customer to the second: the
    items are compared place by place, and a changed one was taken for the same one. So did the
    save of another handle, and the undo of it."""
    agent = connected(store, kind)
    other: Any = store.agent("c", list[kind])  # type: ignore[valid-type]
    connect(other)
    agent.save([kind(n=n) for n in to])
    saved = own(agent)
    assert [one is None for one in saved] == [n != was for n, was in zip(to, KEPT, strict=True)]
    other.refresh()
    assert own(other) == saved
    connect(agent)
    connect(other)
    agent.undo()
    assert own(agent) == saved
    other.refresh()
    assert own(other) == saved
    agent.redo()
    own(agent)


@pytest.mark.parametrize("kind", [Part, Excluding])
def test_an_undo_of_an_edit_keeps_those_of_what_it_changed(store, kind):
    agent = connected(store, kind)
    with agent.edit() as draft:
        draft[1].n = 20
    connect(agent)
    agent.state[1].handle = "mine"
    agent.undo()
    agent.redo()
    agent.undo()
    assert [one.handle for one in agent.state] == ["of 1", "mine", "of 3"]


class Private(BaseModel):
    n: int = 0
    within: list[Part] = []
    _client: Ephemeral[Any] = None


def test_nor_what_is_inside_of_it_or_private(store):
    agent: Any = store.agent("p", list[Private], initial=[Private(n=1), Private(n=2)])
    with agent.edit() as draft:
        draft[0].within.append(Part(5))
        draft[0].within[0].handle = "of 5"
    agent.state[0]._client = "of 1"
    assert agent.state[0].within[0].handle == "of 5" and agent.state[0]._client == "of 1"
    agent.save([Private(n=2, within=[Part(5)]), Private(n=2)])
    assert agent.state[0].within[0].handle is None and agent.state[0]._client is None


def test_set_alone_they_take_effect_and_nothing_is_committed(mine):
    """An edit that set nothing else was dropped as one that changes nothing, and the client with
    it; with any other change beside it the client was there."""
    seq, other = mine.seq, object()
    with mine.edit() as draft:
        draft.client = draft.parts[0].handle = other
    assert mine.state.client is mine.state.parts[0].handle is other
    mine.update(lambda draft: setattr(draft.part, "handle", other))
    with mine.edit() as draft:
        draft.n += 1
        draft.n -= 1
        draft.by_key["k"] = Part()  # as it is
        draft.by_key["k"].handle = other
    assert mine.state.part.handle is mine.state.by_key["k"].handle is other
    with pytest.raises(ValueError, match="no"), mine.edit() as draft:
        draft.client = CLIENT
        raise ValueError("no")
    assert mine.state.client is other
    assert mine.seq == seq


def test_they_are_no_drift(mine):
    """`assert not agent.drift()` was not for those who have a client: there is nothing that a
    refresh would drop, or an edit could store."""
    mine.state.client = mine.state.parts[0].handle = object()
    assert mine.drift() == []
    mine.state.n = 7
    assert [one.path for one in mine.drift()] == ["state.n"]


class Model(BaseModel):
    n: int = 0
    client: Ephemeral[Any] = None
    _cache: Ephemeral[dict[str, int]] = {}
    _kept: int = 0


def test_nor_are_private_attributes_that_say_so(store):
    agent = store.agent("m", Model, initial=Model())
    agent.checkpoint("made")
    agent.state._cache["a"] = 1
    agent.state.client = CLIENT
    assert agent.drift() == []
    agent.state._kept = 1
    assert [one.path for one in agent.drift()] == ["state._kept"]


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_runs_edit_sets_is_set_on_replay_too(store, is_async, more):
    """The block ran again on a draft of which nothing remains, and the client that it made was
    there the first time only."""

    def connected(draft: Any) -> None:
        draft.client = draft.part.handle = CLIENT
        draft.n += more

    def at_once(run: perdure.Run[Session]) -> str:
        with run.edit("connected") as draft:
            connected(draft)
        seen = run.state.client is run.state.part.handle is CLIENT
        run.wait_for("go")
        return f"{seen} {run.state.client is CLIENT} {run.state.n}"

    async def later(run: perdure.AsyncRun[Session]) -> str:
        async with run.edit("connected") as draft:
            connected(draft)
        seen = run.state.client is run.state.part.handle is CLIENT
        await run.wait_for("go")
        return f"{seen} {run.state.client is CLIENT} {run.state.n}"

    function: Any = perdure.agent(Session)(later if is_async else at_once)
    handle = store.start(function, "r")
    with working(store, function) as events:
        events.wait_for("waiting", handle.id)
    handle.signal("go")
    with working(store, function):
        assert handle.result(BOUND_S) == f"True True {more}"


class Inner(TypedDict):
    part: Part


class Outer(TypedDict):
    inner: NotRequired[Inner]
    k: int


def test_a_key_with_one_inside_may_go(store):
    """Where a rollback took out an optional key with an Ephemeral field inside, each later read,
    refresh and edit on that handle was a bare AttributeError."""
    agent = store.agent("t", Outer, initial={"k": 1})
    agent.checkpoint("begin")
    with agent.edit("added") as draft:
        draft["inner"] = {"part": Part(1)}
    agent.rollback("begin")
    assert agent.state == {"k": 1}
