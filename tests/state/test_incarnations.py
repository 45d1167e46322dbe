"""A handle is about one incarnation of its agent, and no write of it comes into another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, NotFound
from tests.state.conftest import Place


def add(draft: Any) -> None:
    draft["n"] = draft.get("n", 0) + 1


def made_and_deleted(store: perdure.Store) -> None:
    store.agent("a", initial={"n": 0}).update(add)
    store.delete("a")


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("write", ["edit", "update", "save", "checkpoint", "fork", "state"])
def test_a_handle_from_before_a_deletion_brings_nothing_back(store, write, looked):
    """A handle was opened, not read, and kept. Somebody else made the agent and deleted it. The
    late write looked for the first time then, took the deletion for "not created yet", and made
    incarnation 2 with the initial value that this handle had been given."""
    late = store.agent("a", initial={"old": True})
    if looked:
        assert late.state == {"old": True} and not late.exists
    made_and_deleted(store)
    # A value is saved over the state that was read; that there was none is what it compares.
    said = "created in the meantime" if write == "save" and looked else "was deleted"
    with pytest.raises((NotFound, Conflict), match=said) as refused:
        if write == "edit":
            with late.edit() as draft:
                draft["late"] = True
        elif write == "update":
            late.update(add)
        elif write == "save":
            late.save({"late": True})
        elif write == "state":
            late.refresh()
        else:
            getattr(late, write)("late")
    assert "agent 'a'" in refused.value.target and refused.value.hint
    info = store.find("a")
    assert (info.incarnation, info.deleted) == (1, True)


def test_one_that_opened_it_alive_and_did_not_look_does_not_either(store):
    """The same where the agent was there, and alive, when the handle was opened."""
    store.agent("a", initial={"n": 0}).update(add)
    late = store.agent("a", initial={"old": True})
    store.delete("a")
    with pytest.raises(NotFound, match="was deleted"):
        late.update(add)
    assert store.find("a").deleted


def test_a_handle_from_before_a_deletion_does_not_see_the_next_incarnation(store):
    late = store.agent("a", initial={"old": True})
    made_and_deleted(store)
    new = store.agent("a", initial={"n": 10})
    new.update(add)
    with pytest.raises(NotFound, match="was deleted"):
        late.update(add)
    assert (new.refresh(), store.find("a").incarnation) == ({"n": 11}, 2)


def test_one_that_was_opened_after_the_deletion_makes_the_next(store):
    made_and_deleted(store)
    one, two = store.agent("a", initial={"n": 5}), store.agent("a", initial={"n": 5})
    one.update(add)
    two.update(add)
    assert (one.refresh(), store.find("a").incarnation) == ({"n": 7}, 2)


def test_an_agent_that_comes_from_another_store_is_met_by_a_waiting_handle(store):
    """Its incarnation is the one it had there, which is not the one that would come next here."""
    with perdure.open("memory://") as elsewhere:
        made_and_deleted(elsewhere)
        elsewhere.agent("a", initial={"n": 5}).update(add)
        waiting = store.agent("a")
        (there,) = elsewhere.agents()
        store.import_log(list(elsewhere.export_log(there)))
    waiting.update(add)
    assert (waiting.state, store.find("a").incarnation) == ({"n": 7}, 2)


def test_a_deleted_agent_does_not_exist(store):
    """An old handle of a deleted agent went on to say that it exists."""
    agent = store.agent("a", initial={"n": 0})
    agent.update(add)
    store.delete("a")
    assert not agent.exists
    store.agent("a", initial={"n": 0}).update(add)
    assert not agent.exists  # that is another one


def test_nor_on_the_async_face_once_an_operation_heard_of_it(place: Place):
    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            agent = await store.agent("a", initial={"n": 0})
            late = await store.agent("a", initial={"old": True})
            await agent.update(add)
            await store.delete("a")
            for handle in (agent, late):
                with pytest.raises(NotFound, match="was deleted"):
                    await handle.update(add)
                assert not handle.exists
                with pytest.raises(NotFound, match="was deleted"):
                    await handle.refresh()
                assert not handle.exists
            info = await store.find("a")
            assert info is not None and (info.incarnation, info.deleted) == (1, True)

    asyncio.run(main())
