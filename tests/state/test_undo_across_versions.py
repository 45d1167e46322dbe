"""What was done under an older major version of the schema is not taken back from a migrated state.

Its inverse holds values as they were then: no migration went over them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure import Agent, Schema, Store
from perdure.errors import Conflict, NotFound
from tests.state.conftest import Place, Steady


@dataclass
class Price1:
    euros: int = 0


@dataclass
class Cart1:
    by: dict[str, Price1] = field(default_factory=dict)
    price: int | None = None


@dataclass
class Price2:
    cents: int = 0


@dataclass
class Cart2:
    by: dict[str, Price2] = field(default_factory=dict)
    price: int | None = None


def to_cents(old: dict[str, Any]) -> dict[str, Any]:
    by = {key: {"cents": price["euros"] * 100} for key, price in old["by"].items()}
    return {"by": by, "price": None if old["price"] is None else old["price"] * 100}


ONE = Schema(Cart1, id="cart", version=1)
TWO = Schema(Cart2, id="cart", version=2, migrations={1: to_cents})
CROSSES = "is of version 1 of the schema 'cart', and the state is of version 2"

EDITS = {
    "one is popped": lambda draft: draft.by.pop("x"),
    "all are cleared": lambda draft: draft.by.clear(),
    "a field is set": lambda draft: setattr(draft, "price", None),
    "one is put there": lambda draft: draft.by.update(y=Price1(7)),
    "a number grows": lambda draft: perdure.increment(draft, "price", 3),
}


def cart(store: Store) -> Agent[Cart1]:
    return store.agent("a", ONE, initial=Cart1({"x": Price1(5)}, 5))


def on(draft: Any) -> None:
    draft.by["z"] = Price2(1)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("back", [(), ("undo", "redo"), ("undo", "redo", "undo", "redo")])
@pytest.mark.parametrize("what", EDITS)
def test_undo_goes_not_behind_a_migration(
    store: Store, steady: Steady, what: str, back: tuple[str, ...], committed: bool
) -> None:
    """Version 1 popped an item of 5 euros; undo by version 2 brought back `{'euros': 5}` among
    cents, which was read as 0 cents, and a price of 5 where it had been 500. The migration had
    touched nothing that was not there. Behind an undo and redo of version 1 it was not looked at:
    an increment was taken back 1 to 100, or the log was called corrupt."""
    old = cart(store)
    old.update(EDITS[what])
    for step in back:
        getattr(old, step)()
    new = store.agent("a", TWO)
    if committed:
        new.update(on)
        new.undo()
    for agent in (new, store.agent("a", TWO)):
        with steady.refuses(agent, Conflict, f"cannot undo commit 2: it {CROSSES}"):
            agent.undo()
    before = new.state
    with pytest.raises(Conflict) as caught:
        new.undo()
    assert "`perdure rollback a 1`, or `perdure fork a before-2 --at 1`" in caught.value.hint
    new.fork("before-2", at=1)
    new.rollback(1)
    assert new.state == Cart2({"x": Price2(500)}, 500)
    assert store.agent("a", TWO, branch="before-2").state == new.state != before


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("what", EDITS)
def test_redo_goes_not_behind_a_migration(
    store: Store, steady: Steady, what: str, committed: bool
) -> None:
    """Redo by version 2 of what version 1 had undone put `{'euros': 7}` among cents; before the
    migration was committed it said that there was nothing to redo."""
    old = cart(store)
    old.update(EDITS[what])
    old.undo()
    new = store.agent("a", TWO)
    if committed:
        new.update(on)
        new.undo()
        new.redo()  # its own
        new.undo()
        new.redo()
    with steady.refuses(new, Conflict, f"cannot redo commit 3: it {CROSSES}"):
        new.redo()
    new.rollback(2)
    assert new.state == TWO.build(to_cents(old.at(2).plain))


def test_within_one_major_version_all_stays_as_it_is(store: Store, steady: Steady) -> None:
    """A migration takes the way back only to what is before it: what came after it, and what is of
    a version that only added fields, is undone and redone as ever."""
    cart(store).update(EDITS["one is popped"])
    new = store.agent("a", TWO)
    new.update(on)
    newer = store.agent("a", Schema(Cart2, id="cart", version=(2, 1)))
    newer.update(lambda draft: setattr(draft, "price", 7))
    assert [commit.cause.kind for commit in new.log()][2:4] == ["migrate", "edit"]
    for _ in range(3):
        newer.undo()
        newer.undo()
        assert newer.state == Cart2({}, 500)
        with steady.refuses(newer, Conflict, "version 1"):
            newer.undo()
        newer.redo()
        newer.redo()
        assert newer.state == Cart2({"z": Price2(1)}, 7)
        with steady.refuses(newer, NotFound, "nothing to redo"):
            newer.redo()
    newer.verify()


def test_a_group_goes_not_behind_a_migration(store: Store, steady: Steady) -> None:
    """One of its commits was of version 1: of such a group none is undone, and never a part."""
    old = cart(store)
    old.update(EDITS["one is popped"], group="g")
    new = store.agent("a", TWO)
    new.update(on, group="g")
    with steady.refuses(new, Conflict, "cannot undo commit 4: commit 2, of the same group, is of"):
        new.undo()


def test_the_way_back_by_rollback_leads_into_the_old_version(store: Store) -> None:
    """Behind a rollback to before the migration the state is of version 1 again: a program of that
    version undoes what it did, and for one of version 2 the migration is due once more."""
    cart(store).update(EDITS["one is popped"])
    new = store.agent("a", TWO)
    new.update(on)
    new.rollback(2)
    with pytest.raises(Conflict, match="version 1"):
        new.undo()
    old = cart(store)
    old.undo()
    assert old.state == Cart1({"x": Price1(5)}, 5)
    assert new.refresh() == Cart2({"x": Price2(500)}, 500)
    with pytest.raises(NotFound, match="nothing to undo"):
        new.undo()
    with pytest.raises(Conflict, match="cannot redo commit 6"):
        new.redo()


def test_the_way_back_names_the_branch_and_only_states_that_are_there(store: Store) -> None:
    """Retention had removed the state before it: only an edit by hand is left."""
    old = cart(store)
    for price in range(5):
        old.save(Cart1({}, price))
    old.fork("side")
    side = store.agent("a", TWO, branch="side")
    with pytest.raises(Conflict) as caught:
        side.undo()
    assert "`perdure rollback a 5 --branch side`" in caught.value.hint
    old.trim(7)
    with pytest.raises(Conflict) as caught:
        store.agent("a", TWO).undo()
    assert caught.value.hint == "make the change by hand in an edit"


def test_an_asynchronous_handle_says_the_same(place: Place) -> None:
    """Both faces go back by one implementation."""
    cart(place.open()).update(EDITS["one is popped"])

    async def go_back() -> None:
        async with perdure.open_async(place.url) as store:
            agent = await store.agent("a", TWO)
            with pytest.raises(Conflict, match=f"cannot undo commit 2: it {CROSSES}"):
                await agent.undo()
            assert agent.state == Cart2({}, 500)
            await agent.rollback(1)
            assert agent.state.by["x"].cents == 500

    asyncio.run(go_back())
