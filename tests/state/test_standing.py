"""Undo and redo behind others: what stands then, and what of it is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Store
from perdure.errors import Conflict


@pytest.fixture
def agent(store: Store) -> Agent[Any]:
    return store.agent("a", initial={"a": 1, "b": 1, "c": 1})


def put(agent: Agent[Any], group: str | None = None, **values: Any) -> None:
    with agent.edit("put", group=group) as draft:
        draft.update(values)


@pytest.mark.parametrize("also", [{}, {"b": 5}], ids=["another key", "and what the first put"])
def test_a_group_of_which_a_part_was_undone_and_redone_goes_as_one(agent, store, also):
    """A group's first edit was undone and, behind its second one, redone. The group could never be
    undone again: the undo and the redo of its own part counted as later commits, in its way."""
    put(agent, group="g", a=2)
    agent.undo()
    put(agent, group="g", b=2)
    put(agent, group="g", **also, other=1)
    agent.redo()
    both = dict(agent.state)
    assert (both["a"], both["other"]) == (2, 1)
    for _ in range(3):
        moved = agent.undo()
        assert moved.commit.cause.refers == (2, 4, 5)
        assert agent.state == {"a": 1, "b": 1, "c": 1}
        agent.redo()
        assert agent.state == store.agent("a").state == both
    agent.verify()


def test_a_group_of_which_a_part_was_redone_gives_keys_back_in_their_order(agent, store):
    with agent.edit(group="g") as draft:
        del draft["a"]
    agent.undo()
    put(agent, group="g", d=2)
    agent.redo()
    agent.undo()
    assert [*agent.state] == [*store.agent("a").state] == ["a", "b", "c"]


def test_what_a_group_lay_around_is_undone_behind_it(agent):
    """Somebody's edit stood between a group's. With the group undone, it was refused to undo that
    edit, whose key was touched by the group: by what was undone, and by its undo."""
    put(agent, group="g", b=2)
    put(agent, a=2)
    put(agent, group="g", a=3)
    agent.undo()
    agent.undo()
    assert (agent.state["a"], agent.state["b"]) == (1, 1)
    agent.redo()
    agent.redo()
    assert (agent.state["a"], agent.state["b"]) == (3, 2)


def test_a_group_goes_around_another_that_was_undone(agent):
    """Its key had been set once more by a group that lies across it, and was undone as a whole."""
    put(agent, group="g", a=2)
    put(agent, group="h", a=3)
    put(agent, group="g", b=2)
    put(agent, group="h", n=1)
    agent.undo()
    assert agent.undo().commit.cause.refers == (2, 4)
    assert (agent.state["a"], agent.state["b"]) == (1, 1)


def test_the_place_of_an_item_is_that_of_the_time(store, steady):
    """While another group's item stood in front somebody changed item 1, which was item 0 before
    and is again. The undo of a group that had changed item 0 wrote over that, and said nothing."""
    agent = store.agent("a", initial={"items": [{"k": 0}, {"k": 1}], "n": 0})
    for group, change in (
        ("g", lambda draft: draft["items"][0].update(k=9)),
        ("h", lambda draft: draft["items"].insert(0, {"k": "new"})),
        (None, lambda draft: draft["items"][1].update(k=5)),
        ("h", lambda draft: draft.update(n=1)),
    ):
        with agent.edit(group=group) as draft:
            change(draft)
    agent.undo()
    put(agent, group="g", n=2)
    with steady.refuses(agent, Conflict, "items"):
        agent.undo()
    assert agent.state["items"] == [{"k": 5}, {"k": 1}]


def test_the_place_of_an_item_is_that_of_the_time_when_it_is_redone(store, steady):
    """An insertion in front and a deletion behind were undone; somebody changed the item that had
    come back, at its place without the insertion. To redo both took it away with the change."""
    agent = store.agent("a", initial={"items": [{"k": 0}, {"k": 1}]})
    with agent.edit() as draft:
        draft["items"].insert(0, {"k": "new"})
    with agent.edit() as draft:
        del draft["items"][2]
    agent.undo()
    agent.undo()
    with agent.edit() as draft:
        draft["items"][1]["k"] = 5
    agent.redo()
    with steady.refuses(agent, Conflict, "items"):
        agent.redo()
    assert agent.state["items"] == [{"k": "new"}, {"k": 0}, {"k": 5}]


def test_an_undo_that_put_keys_in_order_is_redone_behind_changes_of_those(agent, store):
    """The undo of a deletion had put the keys behind in their order, which set them anew. One of
    them was changed, and the deletion could not be redone: it would have taken that back."""
    agent.update(lambda draft: (draft.pop("a"), draft.__setitem__("b", 2)))
    agent.undo()
    put(agent, c=2)
    agent.redo()
    assert agent.state == store.agent("a").state == {"b": 2, "c": 2}
