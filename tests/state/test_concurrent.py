"""Several handles, stores, threads and processes on one agent."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, NotFound


def add(draft: Any) -> None:
    draft["n"] = draft.get("n", 0) + 1


def in_threads(*functions: Any) -> None:
    errors: list[BaseException] = []

    def guard(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_moved_head_is_a_conflict(store):
    one, two = store.agent("a", initial={"n": 0}), store.agent("a")
    one.update(add)
    assert two.state == {"n": 1}
    with (
        pytest.raises(Conflict, match="expected the head at commit 2, but it is at 3"),
        two.edit() as draft,
    ):
        draft["n"] = 99
        one.update(add)
    assert two.state == {"n": 1} and two.drift() == [] and one.seq == 3
    with two.edit() as draft:
        assert draft["n"] == 2
        draft["n"] = 3
    assert one.refresh() == {"n": 3}


def test_a_move_of_another_branch_is_no_conflict(store):
    main = store.agent("a", initial={"n": 0})
    side = main.fork("side")
    with main.edit() as draft:
        draft["n"] = 1
        side.update(add)
        side.update(add)
    assert main.state == {"n": 1} and main.commit("main").parent == 1
    main.verify()


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_updates_of_many_threads_are_all_there(store, shared):
    handle = store.agent("a", initial={"n": 0})

    def work() -> None:
        agent = handle if shared else store.agent("a", initial={"n": 0})
        for _ in range(20):
            agent.update(add)

    in_threads(*[work] * 8)
    assert store.agent("a").state == {"n": 160}
    assert handle.refresh() == {"n": 160} and handle.drift() == []
    assert handle.verify().commits == 161


def test_two_stores_at_one_place(place):
    stores = [place.open(), place.open()]

    def work(store: Any) -> None:
        agent = store.agent("a", initial={"n": 0})
        for _ in range(20):
            agent.update(add)

    in_threads(*[lambda store=store: work(store) for store in stores])
    assert [store.agent("a").state for store in stores] == [{"n": 40}] * 2
    stores[0].agent("a").verify()


def test_a_creation_race_makes_one_agent(place):
    """Its threads open the store at once, too: a memory of one name once was several then."""
    for round_ in range(10):
        name = f"agent-{round_}"
        barrier = threading.Barrier(4)

        def work(name: str = name, barrier: threading.Barrier = barrier) -> None:
            agent = place.open().agent(name, initial={"n": 0})
            barrier.wait()
            agent.update(add)

        in_threads(*[work] * 4)
        agent = place.open().agent(name)
        assert agent.state == {"n": 4}
        assert [c.cause.kind for c in agent.log()].count("create") == 1
        place.close()


def test_the_loser_of_a_creation_race_hears_of_it(store):
    one, two = store.agent("a", initial={"n": 1}), store.agent("a", initial={"n": 2})
    assert two.state == {"n": 2}
    one.update(add)
    with pytest.raises(Conflict, match="created in the meantime"):
        two.save({"n": 9})
    assert store.agent("a").state == {"n": 2} and store.agent("a").seq == 2
    assert two.refresh() == {"n": 2}
    two.save({"n": 9})
    assert one.refresh() == {"n": 9}


def _process(url: str, count: int) -> None:
    with perdure.open(url, durability="os") as store:
        agent = store.agent("a", initial={"n": 0})
        for _ in range(count):
            agent.update(add)


def test_two_processes(tmp_path):
    url = str(tmp_path / "store.db")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_process, args=(url, 25)) for _ in range(2)]
    for worker in workers:
        worker.start()
    _process(url, 25)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    with perdure.open(url) as store:
        assert store.agent("a").state == {"n": 75}
        store.agent("a").verify()


# -- deleting agents -------------------------------------------------------------------------


def test_what_the_dead_hold_stands_in_nobodys_way(store):
    """Story: a worker was killed just after it took the lease of a run that was done. Nobody could
    delete another branch of that agent any more: the lease that was taken from the dead was that of
    the branch to be deleted."""
    agent = store.agent("a", initial={"n": 0})
    agent.update(add)
    for name in ("side", "other"):
        agent.fork(name)
    no, backend = agent._working.reader.no, store._context.backend
    for branch in ("main", "side", "other"):
        backend.lease(no, branch, "killed")
    agent.delete_branch("side")
    assert {one.name: one.epoch for one in backend.refs(no)} == {"main": 2, "side": 2, "other": 1}
    for branch in ("main", "other"):
        backend.lease(no, branch, "living")
    backend.heartbeat("living", 60_000)
    with pytest.raises(Conflict, match="executor living is running on it"):
        agent.delete_branch("other")
    backend.heartbeat("living", None)
    agent.update(add)
    agent.delete_branch("other")
    assert agent.state == {"n": 2}
    agent.verify()


def test_one_that_waited_behind_another_takes_from_the_dead_too(store):
    """Story: a writer that had queued behind another one's commit, and then found a dead process's
    lease, was told of a lock that it never took, though its commit was in; and those that came into
    its batch hung for ever."""
    for name in "ab":
        store.agent(name).save({"n": 1})
    backend: Any = store._context.backend
    backend.lease(backend.agent("a").no, "main", "killed")
    append, queued, go_on = backend.append, threading.Event(), threading.Event()
    left = [1]

    def slow(batch: Any) -> Any:
        if left:
            left.clear()
            queued.set()
            assert go_on.wait(60)
        return append(batch)

    backend.append = slow

    def second() -> None:
        assert queued.wait(60)
        store.agent("a").update(add)

    def third() -> None:
        _until(lambda: store._context.committer._queue)
        go_on.set()

    in_threads(lambda: store.agent("b").update(add), second, third)
    assert [store.agent(name).state for name in "ab"] == [{"n": 2}] * 2


def _until(true: Any) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_what_the_dead_hold_stands_in_no_coroutines_way(place):
    async def main() -> None:
        async with perdure.open_async(place.url) as store:
            agent = await store.agent("a", initial={"n": 0})
            await agent.update(add)
            await agent.fork("side")
            no, backend = agent._working.reader.no, store._store._context.backend
            for branch in ("main", "side"):
                backend.lease(no, branch, "killed")
            await agent.delete_branch("side")
            await agent.verify()

    asyncio.run(main())


def test_a_deleted_agent_is_gone_and_its_name_free(store, place):
    agent = store.agent("a", initial={"n": 5})
    agent.update(add)
    agent.fork("side")
    store.delete("a")
    assert store.agents() == []
    info = store.find("a")
    assert info is not None and info.deleted
    with pytest.raises(NotFound):
        store.delete("a")
    fresh = place.open().agent("a", initial={"n": 0})
    assert fresh.state == {"n": 0} and not fresh.exists
    fresh.update(add)
    assert fresh.state == {"n": 1} and fresh.commit(1).incarnation == 2
    assert [branch.name for branch in fresh.branches()] == ["main"]
    fresh.verify()


def test_a_late_write_cannot_resurrect(store):
    agent = store.agent("a", initial={"n": 5})
    agent.update(add)
    side = agent.fork("side")
    calls = [
        lambda: agent.save({"n": 77}),
        lambda: agent.update(add),
        lambda: agent.checkpoint("cp"),
        lambda: agent.fork("x"),
        lambda: agent.rollback(1),
        lambda: agent.undo(),
        lambda: side.save({"n": 78}),
        lambda: side.delete_branch("main"),
        lambda: agent.adopt("side"),
    ]
    store.delete("a")
    for incarnation in (1, 2):
        for call in calls:
            with pytest.raises(NotFound):
                call()
        info = store.find("a")
        assert info is not None and info.incarnation == incarnation
        if incarnation == 1:
            store.agent("a", initial={"fresh": True}).checkpoint("cp")
    fresh = store.agent("a")
    assert fresh.state == {"fresh": True} and fresh.seq == 2
    fresh.verify()


def test_an_edit_that_is_open_while_its_agent_is_deleted(store):
    agent = store.agent("a", initial={"n": 0})
    agent.update(add)
    with pytest.raises(NotFound, match="deleted"), agent.edit() as draft:
        draft["n"] = 9
        store.delete("a")
        store.agent("a", initial={"n": 100}).update(add)
    assert store.agent("a").state == {"n": 101}


def test_keys_and_checkpoints_of_the_old_incarnation_do_not_count(store):
    old = store.agent("a", initial={"n": 0})
    old.update(add, key="k")
    old.checkpoint("cp")
    store.delete("a")
    new = store.agent("a", initial={"n": 0})
    new.update(add, key="k")
    assert new.state == {"n": 1}
    with pytest.raises(NotFound):
        new.at("cp")
    new.checkpoint("cp")
    for _ in range(3):
        store.delete("a")
        store.agent("a").checkpoint("cp")
    info = store.find("a")
    assert info is not None and info.incarnation == 5


def test_any_agent_can_be_deleted(store):
    """Deleting looked at the state under the schema of the last commit of all: it failed for an
    agent with a branch of a newer version, and for one whose state is no dict."""
    one = store.agent("a", perdure.Schema(dict, id="s", version=1), initial={"x": 1})
    one.save({"x": 2})
    one.fork("side")
    migrated = perdure.Schema(dict, id="s", version=2, migrations={1: lambda state: state})
    store.agent("a", migrated, branch="side").save({"y": 1})
    items = store.agent("items", list[int], initial=[1])
    items.save([1, 2])
    for info in store.agents():
        assert store.agent_of(info).state in ({"x": 2}, [1, 2])
        store.delete(info.name)
    assert store.agents() == []


# -- durability ------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "group", "os"])
def test_what_was_written_is_there_at_every_durability(place, durability):
    store = place.open(durability=durability)
    agent = store.agent("a", initial={"n": 0})
    for _ in range(5):
        agent.update(add)
    assert place.open(durability=durability).agent("a").state == {"n": 5}
    place.close()
    if place.durable:
        assert place.open().agent("a").state == {"n": 5}


def test_an_unknown_durability_is_refused(place):
    with pytest.raises(ValueError, match="durability"):
        place.open(durability="never")


def test_a_closed_store_says_so_and_nothing_is_lost(place):
    store = place.open()
    agent = store.agent("a", initial={"n": 0})
    agent.update(add)
    if not place.durable:
        return
    store.close()
    with pytest.raises(perdure.StoreUnavailable):
        agent.update(add)
    assert agent.state == {"n": 1}
    assert place.open().agent("a").state == {"n": 1}


def test_a_block_may_wait_for_threads_that_look_at_the_state(store):
    """Story: a block of edit handed work to a pool whose functions looked at `agent.state`: they
    waited for the block, and the block for them, without an end."""
    agent = store.agent("a", initial={"pages": ["a", "bb"], "sizes": []})
    agent.checkpoint("made")
    with ThreadPoolExecutor(2) as pool, agent.edit("sizes") as draft:
        draft["sizes"] = list(pool.map(lambda at: len(agent.state["pages"][at]), range(2)))
        assert pool.submit(lambda: agent.state["sizes"]).result() == []
    assert agent.state["sizes"] == [1, 2]
