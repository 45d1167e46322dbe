"""One id, begun in two places at the same moment: by a call and a fork, by two forks, or by two
runs that start it as their child. One of them makes the run, and the other one finds it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, Place
from tests.engine.waits import go, just_before, records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.step
def look(number: int) -> int:
    return number


@perdure.agent(dict)
def acts(run: perdure.Run[dict]) -> Any:
    found = look(1) + look(2)
    with run.edit("found") as draft:
        draft["found"] = found
    return run.agent, found


def forked(store: Store, branch: str = "what-if", key: str | None = "k") -> perdure.RunHandle[Any]:
    return store.handle("a/acts/main").fork("look#2", branch=branch, key=key)


# -- calls and forks -------------------------------------------------------------------------------


def test_a_call_finds_the_fork_that_was_made_at_the_same_moment(place: Place) -> None:
    """Both were in the log, and the row was the fork's. The call had begun its run on main, where
    nobody could find it any more."""
    store, other = place.open(), place.open()
    store.run(acts, "a")
    done = just_before(store, "a/acts/k", lambda: forked(other))
    assert store.options(key="k").run(acts, "a") == ("a", 3)
    assert done and store.handle("a/acts/k").info.branch == "what-if"
    assert [one["run"] for one in records(store, "a", "run-started")] == ["a/acts/main"]


def test_a_fork_into_an_id_that_a_call_begins_at_the_same_moment_is_refused(place: Place) -> None:
    store, other = place.open(), place.open()
    store.run(acts, "a")
    done = just_before(store, "a/acts/k", lambda: other.options(key="k").run(acts, "a"))
    with pytest.raises(Conflict, match="there is such a run"):
        forked(store)
    assert done and store.handle("a/acts/k").info.branch == "main"
    assert "what-if" not in [one.name for one in store.agent("a").branches()]


def test_a_fork_into_an_id_that_is_asked_for_at_the_same_moment_is_refused(place: Place) -> None:
    store, other = place.open(), place.open()
    store.run(acts, "a")
    just_before(store, "a/acts/k", lambda: other.options(key="k").start(acts, "a"))
    with pytest.raises(Conflict, match="such a run"):
        forked(store)
    assert go(store, acts, key="k") == ("a", 3)


def test_of_two_forks_into_one_id_the_second_is_refused(place: Place) -> None:
    """Each had a branch, and both of them one run."""
    store, other = place.open(), place.open()
    store.run(acts, "a")
    just_before(store, "a/acts/k", lambda: forked(other, "first"))
    with pytest.raises(Conflict, match="there is such a run"):
        forked(store, "second")
    assert store.handle("a/acts/k").info.branch == "first"
    assert sorted(one.name for one in store.agent("a").branches()) == ["first", "main"]


def test_a_cancellation_of_what_is_asked_for_leaves_the_run_that_began_meanwhile(
    place: Place,
) -> None:
    store, other = place.open(), place.open()
    store.run(acts, "a")
    handle = store.options(key="k").start(acts, "a")
    just_before(store, "a/acts/k", lambda: other.options(key="k").run(acts, "a"))
    with pytest.raises(Conflict):
        handle.cancel("no use")
    assert handle.result() == ("a", 3)


# -- children --------------------------------------------------------------------------------------


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> Any:
    look(1)
    try:
        return run.options(key="k").start(child, "kid").result()
    except Conflict as error:
        return error.problem


@perdure.tool(on_crash="fail")
async def pay(name: str) -> str:
    return f"paid {name}"


@perdure.agent(dict)
async def gathering(run: perdure.AsyncRun[dict]) -> Any:
    async def kid() -> Any:
        handle = await run.options(key="k").start(child, "kid")
        return await handle.result()

    paid = asyncio.create_task(pay("Ada"))
    try:
        return await kid()
    except Conflict as error:
        return [error.problem, await paid]


STARTED = "was started by run other/parent/main already"


def test_a_child_that_another_run_starts_at_the_same_moment_is_found(place: Place) -> None:
    """Its own request was left out, as there was one. It waited for a child that told only the
    other one of its end."""
    store, other = place.open(), place.open()
    done = just_before(store, "kid/child/k", lambda: go(other, parent, "other"))
    assert go(store, parent, "p") == STARTED
    assert done
    go(store, child, "kid", key="k")
    store.handle("kid/child/k").signal("go", 7)
    assert go(store, child, "kid", key="k") == 7
    assert go(other, parent, "other") == 7
    (start,) = [one for one in records(store, "p", "step") if one["place"] == "start:child#1"]
    assert "child" not in start and STARTED in start["error"]["text"]


def test_a_child_that_a_fork_starts_at_the_same_moment_is_shared(place: Place) -> None:
    """A run and its fork come to the start of a keyed child. Of 30 such pairs six to ten needed a
    person: the second has the child of the first, as it has if it comes later."""
    store, other = place.open(), place.open()

    @perdure.agent(dict, name="parent")
    def waiting(run: perdure.Run[dict]) -> Any:
        look(1)
        run.wait_for("start")
        return run.options(key="k").start(child, "kid").result()

    original = run_until_waiting(store, waiting, "p")
    fork = original.fork("look#1", branch="what-if")
    go(other, waiting, "p", key=fork.info.key)
    for one in (original, fork):
        one.signal("start")
    done = just_before(store, "kid/child/k", lambda: go(other, waiting, "p", key=fork.info.key))
    go(store, waiting, "p")
    assert done and original.status == fork.status == "waiting"
    go(store, child, "kid", key="k")
    store.handle("kid/child/k").signal("go", 7)
    assert go(store, child, "kid", key="k") == 7
    assert go(store, waiting, "p") == 7
    assert go(store, waiting, "p", key=fork.info.key) == 7


def test_runs_that_start_one_child_at_once_all_come_to_an_end(place: Place) -> None:
    stores = [place.open() for _ in range(3)]
    gate = threading.Barrier(3)
    threads = [
        threading.Thread(target=lambda n=n: (gate.wait(), go(stores[n], parent, f"p{n}")))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    store = stores[0]
    go(store, child, "kid", key="k")
    store.handle("kid/child/k").signal("go", 7)
    go(store, child, "kid", key="k")
    results = [go(store, parent, f"p{number}") for number in range(3)]
    assert results.count(7) == 1
    assert all(one == 7 or str(one).endswith("already") for one in results)


def test_what_is_recorded_beside_a_start_that_is_refused_is_recorded(
    place: Place, runs: Async, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of a payment shared the commit of the start."""
    other = place.open()
    opened: list[Any] = []
    real = perdure.store.Store.__init__

    def opening(self: Store, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        opened.append(just_before(self, "kid/child/k", lambda: go(other, parent, "other")))

    monkeypatch.setattr(perdure.store.Store, "__init__", opening)
    assert runs.run(gathering) == [STARTED, "paid Ada"]
    assert any(opened)
    (outcome,) = records(runs.store, "a", "outcome")
    assert outcome["value"] == "paid Ada"
    assert [one.state for one in runs.store.handle("a/gathering/main").effects()] == ["done"]


def test_two_tasks_that_start_one_child_have_the_same_one(runs: Async) -> None:
    @perdure.agent(dict)
    async def twice(run: perdure.AsyncRun[dict]) -> Any:
        options = run.options(key="k")
        one, two = await asyncio.gather(options.start(child, "kid"), options.start(child, "kid"))
        return [one.id, two.id]

    assert runs.run(twice) == ["kid/child/k"] * 2
