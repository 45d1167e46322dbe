"""Ephemeral fields of a living handle stay, whatever becomes of the stored ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure import Ephemeral


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
