"""Two decide at a time what becomes of a store: one of them is told so, and no agent is open at two
places (I4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Conflict
from perdure.replication import ClosedError, DoneBeforeError, Migration
from perdure.storage.locate import _named_memories
from perdure.storage.standing import read_why
from perdure.transfer.follower import Follower
from perdure.transfer.promotion import promote
from perdure.transfer.restoring import restore
from tests.postgres.server import kinds, shared
from tests.state.copies import backend_of

_names = itertools.count()


class Enough(Exception):
    """Whoever moved them was killed here."""


class Stores:
    """New stores of one kind, each by its number."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._opened: list[perdure.Store] = []
        self._kind, self._folder = kind, folder

    def new(self) -> perdure.Store:
        name = f"moves-{next(_names)}"
        url = f"memory://{name}" if self._kind == "memory" else str(self._folder / f"{name}.db")
        url = shared().new_url() if self._kind == "postgres" else url
        self._opened.append(perdure.open(url))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()
            _named_memories.pop(store.url.removeprefix("memory://"), None)


@pytest.fixture(params=kinds(["memory", "sqlite"], listed=True))
def stores(request: Any, tmp_path: Path) -> Iterator[Stores]:
    made = Stores(request.param, tmp_path)
    yield made
    made.close()


def filled(stores: Stores) -> perdure.Store:
    store = stores.new()
    for name in ("a", "b", "c"):
        store.agent(name).save({"n": 1}, "put")
    return store


def follower_of(source: perdure.Store, target: perdure.Store) -> Follower:
    follower = Follower(backend_of(source), backend_of(target))
    follower.begin()
    follower.drain()
    return follower


def move_one(source: perdure.Store, target: perdure.Store) -> None:
    def enough(_: Any) -> None:
        raise Enough

    with pytest.raises(Enough):
        Migration(backend_of(source), backend_of(target)).run(enough)


def homes(*stores: perdure.Store) -> list[int]:
    """In how many of the stores each agent can be written to."""
    found = []
    for name in ("a", "b", "c"):
        found.append(0)
        for store in stores:
            if store.find(name) is None:
                continue
            try:
                store.agent(name).update(lambda draft: draft.update(n=next(_names)))
                found[-1] += 1
            except ClosedError:
                continue
    return found


def test_agents_on_their_way_to_one_store_are_not_moved_to_another(stores: Stores) -> None:
    """A move had brought one agent of three, and was ended; the next one was given another target.
    It took all three: one of them could be written to at both."""
    source, first, second = filled(stores), stores.new(), stores.new()
    move_one(source, first)
    with pytest.raises(Conflict, match="its agents are being moved to") as refused:
        Migration(backend_of(source), backend_of(second)).run()
    assert "migrate" in refused.value.hint and first.url in refused.value.hint
    assert not second.agents() and backend_of(second).standing() is None
    assert homes(source, first, second) == [1, 1, 1]
    Migration(backend_of(source), backend_of(first)).run()
    assert homes(source, first, second) == [1, 1, 1]
    assert homes(first) == [1, 1, 1]


def test_a_copy_is_not_promoted_beside_agents_on_their_way(stores: Stores) -> None:
    """Nor by its promotion: the follower had a copy of the one that had moved."""
    source, first, second = filled(stores), stores.new(), stores.new()
    follower_of(source, second)
    move_one(source, first)
    with pytest.raises(Conflict, match="its agents are being moved to"):
        promote(backend_of(second), backend_of(source))
    assert homes(source, first, second) == [1, 1, 1]


def test_who_comes_in_between_is_told(stores: Stores) -> None:
    """Both had looked how the source stood before either began."""
    source, first, second = filled(stores), stores.new(), stores.new()
    here = backend_of(source)
    looked = Migration(here, backend_of(second))
    standing = here.standing()

    def other() -> None:
        move_one(source, first)

    before, look = [other], here.standing
    # It has looked when the other one begins.
    here.standing = lambda no=0: (standing, before.pop()())[0] if before else look(no)  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        looked.run()
    del here.standing
    assert not second.agents() and backend_of(second).standing() is None
    assert homes(source, first, second) == [1, 1, 1]


def test_an_agent_that_arrived_long_ago_does_not_stay_open(stores: Stores) -> None:
    """Two processes did the same move. The slower one said of an agent that it had arrived when the
    other one was through: so it stood in the target for good, and stayed open when that handed over
    to a follower of its own. What was written there was lost."""
    source, target, third = filled(stores), stores.new(), stores.new()
    there = backend_of(target)
    stand, slow = there.stand, Migration(backend_of(source), there)

    def late(standing: Any, no: int = 0, **more: Any) -> None:
        why = read_why(standing)
        if why is not None and why.kind == "here":
            there.stand = stand  # type: ignore[method-assign]
            Migration(backend_of(source), there).run()
        stand(standing, no, **more)

    there.stand = late  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="does not follow this source any more"):
        slow.run()
    with pytest.raises(DoneBeforeError):
        Migration(backend_of(source), there).run()
    assert all(there.standing(info.no) is None for info in target.agents())
    follower_of(target, third)
    promote(backend_of(third), there)
    assert homes(source, target, third) == [1, 1, 1]


@pytest.mark.parametrize("how", ["promoted", "moved"])
def test_a_store_does_not_follow_one_whose_place_it_took(stores: Stores, how: str) -> None:
    """After a hand-over, the service that had copied the old store into the new one came up again,
    with --resync: the new one followed the old one, that was closed, and nobody took a write."""
    source, target = filled(stores), stores.new()
    here, there = backend_of(source), backend_of(target)
    if how == "moved":
        Migration(here, there).run()
    else:
        follower_of(source, target)
        promote(there, here)
    with pytest.raises(Conflict, match="the store that takes the writes"):
        Follower(here, there).begin(resync=True)
    assert homes(target) == [1, 1, 1]
    Follower(there, here).begin(resync=True)


def test_a_restore_that_retention_overtook_says_what_helps(stores: Stores) -> None:
    """It had looked, and retention then removed a part of what it was to bring. What it said would
    help was refused as well: a part of that agent was in the target by then."""
    source, target = stores.new(), stores.new()
    agent = source.agent("a")
    for n in range(6):
        agent.save({"n": n}, "put")
    until = agent.commit(3).at_micros
    here, begin = backend_of(source), Follower.begin

    class Overtaken(Follower):
        def begin(self, *, resync: bool = False) -> None:
            agent.trim(6)
            begin(self, resync=resync)

    restoring = Overtaken(here, backend_of(target), kind="restoring", until=until)
    with pytest.raises(Conflict, match="while it was restored") as refused:
        restore(restoring)
    assert "delete that, and restore into a new store" in refused.value.hint
    again = Follower(here, backend_of(stores.new()), kind="restoring", until=until)
    with pytest.raises(Conflict, match="retention removed what was before"):
        restore(again)
    assert restore(again, take_incomplete=True)[2][0].agent == "a"
