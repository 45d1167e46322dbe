"""Undo and redo where retention has removed what came before: by what the headers still say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure import Agent, Store
from perdure.errors import NotFound
from tests.state.conftest import Steady


def put(agent: Agent[Any], group: str | None = None, **values: Any) -> None:
    with agent.edit("put", group=group) as draft:
        draft.update(values)


def trimmed(store: Store, groups: Mapping[int, str] | None = None) -> Agent[Any]:
    """Ten edits, in groups by their numbers, of which retention removed what commits 2 to 6 hold:
    the state at 7 stays."""
    agent = store.agent("a")
    for number in range(10):
        put(agent, (groups or {}).get(number), n=number)
    assert agent.trim(8).removed == 5
    return agent


def test_a_group_is_undone_after_a_trim(store: Store) -> None:
    """Once anything had been trimmed no edit with `group=` could be undone any more, on any branch:
    the search for others of its group met a commit whose payload was gone. The headers stay, and
    say that none of those is of the group."""
    agent = trimmed(store, {1: "other", 2: "other"})
    put(agent, "g", m=1)
    put(agent, n=99)
    put(agent, "g", k=1)
    fork = agent.fork("side")
    for one in (agent, fork):
        moved = one.undo()
        assert len(moved.commit.cause.refers) == 2
        assert one.state == {"n": 99}
        one.redo()
        assert one.state == {"n": 99, "m": 1, "k": 1}
    agent.verify()


def test_a_group_behind_the_horizon_is_not_undone_in_part(store: Store, steady: Steady) -> None:
    """Of a group whose first edits are gone, none is undone; the message told of a commit that
    nobody had asked for."""
    agent = trimmed(store, {1: "other", 3: "g", 9: "g"})
    with steady.refuses(
        agent, NotFound, "cannot undo commit 11: commit 5, of the same group, was removed by reten"
    ):
        agent.undo()
    put(agent, "other", m=1)
    with steady.refuses(agent, NotFound, "cannot undo commit 13: commit 3, of the same group"):
        agent.undo()


def test_what_was_undone_before_the_horizon_is_of_no_group(store: Store) -> None:
    """An edit of the group was taken back, and then trimmed: as its undo's header says, it is not
    to be undone again."""
    agent = store.agent("a")
    put(agent, n=1)
    put(agent, "g", n=2)
    agent.undo()
    for number in range(8):
        put(agent, n=number)
    agent.trim(agent.seq)
    assert agent.commit(3).trimmed and agent.commit(4).trimmed
    put(agent, "g", k=1)
    assert len(agent.undo().commit.cause.refers) == 1
    assert agent.state == {"n": 7}


def test_single_edits_are_undone_down_to_the_horizon(store: Store, steady: Steady) -> None:
    """And redone; where the state before one is gone, that is what is said."""
    agent = trimmed(store)
    for number in (8, 7, 6, 5):
        agent.undo()
        assert agent.state == {"n": number}
    with steady.refuses(agent, NotFound, "cannot undo what came behind commit 6: its state was re"):
        agent.undo()
    for number in (6, 7, 8, 9):
        agent.redo()
        assert agent.state == {"n": number}
    with steady.refuses(agent, NotFound, "nothing to redo"):
        agent.redo()
    agent.trim(agent.seq)
    with steady.refuses(agent, NotFound, "cannot undo commit 11: what it changed was removed by"):
        agent.undo()
