"""Cancelled, closed, forked, or slow: what becomes of commits that coroutines asked for."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.log.committer import Committer
from perdure.storage.log.proposals import Proposal


def add(draft: Any) -> None:
    draft["n"] = draft.get("n", 0) + 1


def run(place: Any, main: Callable[[perdure.AsyncStore], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            await main(store)

    asyncio.run(opened())


class Disk:
    """A backend whose appends stop where a test wants them to."""

    def __init__(self, store: perdure.AsyncStore) -> None:
        self.backend = store._store._context.backend
        self.committer = store._store._context.committer
        self.gate = threading.Event()
        self.under_way = threading.Event()
        self.batches: list[int] = []

    @contextmanager
    def slow(self) -> Iterator[None]:
        append = self.backend.append

        def slowly(batch: Any) -> Any:
            self.batches.append(len(batch))
            self.under_way.set()
            assert self.gate.wait(60)
            return append(batch)

        self.backend.append = slowly  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.gate.set()
            self.backend.append = append  # type: ignore[method-assign]

    async def begun(self) -> None:
        while not self.under_way.is_set():
            await asyncio.sleep(0.001)

    async def queued(self, count: int) -> None:
        while len(self.committer._queue) < count:
            await asyncio.sleep(0.001)


def test_the_loop_goes_on_while_a_commit_is_under_way(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        disk = Disk(store)
        with disk.slow():
            task = asyncio.create_task(agent.update(add))
            await disk.begun()
            for _ in range(100):  # would hang here if the loop waited for the disk
                await asyncio.sleep(0)
            assert not task.done()
            disk.gate.set()
            assert (await task).seq == 3

    run(place, main)


def test_a_queued_commit_is_withdrawn(place):
    async def main(store):
        one, two = await store.agent("a", initial={"n": 0}), await store.agent("b", initial={})
        await asyncio.gather(one.update(add), two.update(add))
        disk = Disk(store)
        with disk.slow():
            leading = asyncio.create_task(one.update(add))
            await disk.begun()
            queued = asyncio.create_task(two.update(add))
            await disk.queued(1)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued  # at once: the disk still stands
            assert not leading.done() and two.seq == 2 and two.state == {"n": 1}
            disk.gate.set()
            await leading
        assert await two.refresh() == {"n": 1} and await two.drift() == []
        await two.update(add)
        assert two.state == {"n": 2} and disk.batches == [1]
        await two.verify()

    run(place, main)


def test_a_commit_under_way_is_awaited(place):
    """Given up at once, a commit would land behind the back of who was told it did not."""

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        disk = Disk(store)
        with disk.slow():
            task = asyncio.create_task(agent.update(add))
            await disk.begun()
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.001)
            assert not task.done()
            disk.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert agent.seq == 3 and agent.state == {"n": 2}  # it is done, and the handle says so
        assert await agent.refresh() == {"n": 2}
        await agent.update(add)
        await agent.verify()

    run(place, main)


def test_cancelled_between_two_commits_it_stops(place):
    """The first edit of an agent makes two commits: create, and its own."""

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        disk = Disk(store)
        with disk.slow():
            task = asyncio.create_task(agent.update(add))
            await disk.begun()
            task.cancel()
            await asyncio.sleep(0.001)
            disk.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert agent.exists and agent.seq == 1 and agent.state == {"n": 0}
        await agent.update(add)
        assert agent.state == {"n": 1} and (await agent.verify()).commits == 2

    run(place, main)


def test_cancelled_at_every_moment(place):
    """Whenever it comes, the handle agrees with the log, and goes on."""

    async def main(store):
        done = 0
        for steps in range(40):
            agent = await store.agent("a", initial={"n": 0})

            async def change(agent: Any = agent) -> None:
                async with agent.edit() as draft:
                    await asyncio.sleep(0)
                    add(draft)

            task = asyncio.create_task(change())
            for _ in range(steps):
                await asyncio.sleep(0 if steps % 2 else 0.0003)
            task.cancel()
            try:
                await task
                done += 1
            except asyncio.CancelledError:
                pass
            seen = (agent.seq, dict(agent.state))
            await agent.refresh()
            assert seen[0] <= agent.seq and await agent.drift() == []
            if seen[0] == agent.seq:
                assert seen[1] == agent.state
            await agent.update(add)
            await agent.verify()
        assert done

    run(place, main)


@pytest.mark.parametrize("move", ["rollback", "adopt"])
def test_a_move_that_is_cancelled_behind_its_commit_is_shown(place, move):
    """A timeout came when a rollback was committed, and its state was to be read. The handle went
    on to show the state from before, which its agent then acted on."""

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.fork("side")
        await agent.update(add)
        working = agent._working
        forget = working.forget

        def cancelled() -> None:
            forget()
            task.cancel()

        working.forget = cancelled
        task = asyncio.create_task(agent.rollback(1) if move == "rollback" else agent.adopt("side"))
        with pytest.raises(asyncio.CancelledError):
            await task
        working.forget = forget
        assert agent.seq == 4 and agent.state == {"n": 0}

    run(place, main)


def test_a_timeout_is_one(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        disk = Disk(store)
        with disk.slow():
            loop = asyncio.get_running_loop()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    begun = asyncio.ensure_future(disk.begun())
                    begun.add_done_callback(lambda _: limit.reschedule(loop.time()))
                    begun.add_done_callback(lambda _: loop.call_later(0.1, disk.gate.set))
                    await agent.update(add)
        assert agent.seq == 3

    run(place, main)


def test_cancelled_while_waiting_for_its_turn(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        async with agent.edit() as draft:
            other = asyncio.create_task(agent.update(add))
            await asyncio.sleep(0.001)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            draft["n"] = 5
        await agent.update(add)
        assert agent.state == {"n": 6}

    run(place, main)


def test_a_cancelled_verification_stops(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        for _ in range(5):
            await agent.update(add)
        backend = store._store._context.backend
        read, reading, gate = backend.read, threading.Event(), threading.Event()

        def slowly(*args: Any, **more: Any) -> Any:
            reading.set()
            assert gate.wait(60)
            return read(*args, **more)

        backend.read = slowly
        task = asyncio.create_task(agent.verify())
        while not reading.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.001)
        assert not task.done()  # a thread that reads is not left alone with the store
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        backend.read = read
        await agent.verify()

    run(place, main)


def test_cancelled_while_opening(place, monkeypatch):
    """Nobody would have closed the store that came a moment later."""
    opened: list[Any] = []
    began, gate = threading.Event(), threading.Event()

    def slowly(*args: Any, **more: Any) -> Any:
        began.set()
        assert gate.wait(60)
        opened.append(perdure.open(*args, **more))
        return opened[-1]

    monkeypatch.setattr("perdure.aio.store.open", slowly)

    async def main():
        task = asyncio.ensure_future(perdure.open_async(place.url)._open())
        while not began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.001)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert opened[0]._context._closed

    asyncio.run(main())


# -- interrupts of threads, errors of the disk -------------------------------------------------


def test_errors_reach_each_of_a_batch(place):
    async def main(store):
        agents = [await store.agent(f"a{n}", initial={"n": 0}) for n in range(8)]
        await asyncio.gather(*[agent.update(add) for agent in agents])
        backend = store._store._context.backend
        append = backend.append

        def broken(batch: Any) -> Any:
            raise StoreUnavailable("the disk is gone", outcome="not_done")

        backend.append = broken
        results = await asyncio.gather(
            *[agent.update(add) for agent in agents], return_exceptions=True
        )
        assert all(isinstance(result, StoreUnavailable) for result in results)
        backend.append = append
        assert [agent.state for agent in agents] == [{"n": 1}] * 8
        await asyncio.gather(*[agent.update(add) for agent in agents])
        assert [agent.state for agent in agents] == [{"n": 2}] * 8

    run(place, main)


def test_a_thread_that_waits_anyway_leads_for_coroutines(place):
    """And its interruption leaves nobody behind: who queued behind it is led by another."""

    async def main(store):
        agents = [await store.agent(name, initial={"n": 0}) for name in "abc"]
        await asyncio.gather(*[agent.update(add) for agent in agents])
        sync = store._store.agent("d", initial={"n": 0})
        sync.update(add)
        disk = Disk(store)
        leaders: list[str] = []
        lead = disk.committer._lead_on

        def noted() -> None:
            leaders.append(threading.current_thread().name)
            lead()

        disk.committer._lead_on = noted  # type: ignore[method-assign]
        with disk.slow():
            tasks = [asyncio.create_task(agents[0].update(add))]
            await disk.begun()
            tasks += [asyncio.create_task(agent.update(add)) for agent in agents[1:]]
            await disk.queued(2)
            thread = threading.Thread(target=sync.update, args=(add,), name="a user's")
            thread.start()
            await disk.queued(3)
            disk.gate.set()
            await asyncio.gather(*tasks)
            await asyncio.to_thread(thread.join)
        assert leaders == ["perdure-committer", "a user's"] and disk.batches == [1, 3]
        assert {agent.state["n"] for agent in [*agents, sync]} == {2}

    run(place, main)


def test_a_leader_to_be_that_withdraws_leaves_the_lead_to_coroutines(place):
    """The one that was woken to lead was interrupted: those behind it waited for ever."""

    async def main(store):
        one, two = await store.agent("a", initial={"n": 0}), await store.agent("b", initial={})
        await asyncio.gather(one.update(add), two.update(add))
        sync = store._store.agent("c", initial={"n": 0})
        sync.update(add)
        disk = Disk(store)
        outcome: list[BaseException] = []

        def interrupted(proposal: Any, seconds: float) -> None:
            proposal._gate.acquire()
            raise KeyboardInterrupt

        def work() -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Proposal, "wait", interrupted)
                try:
                    sync.update(add)
                except BaseException as error:
                    outcome.append(error)

        with disk.slow():
            leading = asyncio.create_task(one.update(add))
            await disk.begun()
            thread = threading.Thread(target=work)
            thread.start()
            await disk.queued(1)
            behind = asyncio.create_task(two.update(add))
            await disk.queued(2)
            disk.gate.set()
            await asyncio.gather(leading, behind)
            await asyncio.to_thread(thread.join)
        assert isinstance(outcome[0], KeyboardInterrupt) and two.state == {"n": 2}
        assert sync.refresh() == {"n": 1}

    run(place, main)


def test_one_that_is_submitted_anew_at_once_is_woken_again(place, monkeypatch):
    """A coroutine met the lease of a dead process, took it from it and submitted its commit once
    more, all while the thread that had told it of the lease was about to note that it had told:
    nobody was told of the second try, and the coroutine waited for ever, one time in twenty."""
    noted, once_more = Proposal.call_when_settled, threading.Event()
    tries: list[Proposal] = []

    def call_when_settled(proposal: Proposal, done: Callable[[], None]) -> None:
        tries.append(proposal)
        if len(tries) > 1:
            noted(proposal, done)
            once_more.set()
            return

        def tell_and_rest() -> None:
            done()
            once_more.wait(60)

        noted(proposal, tell_and_rest)

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        await agent.fork("side")
        store._store._context.backend.lease(agent._working.reader.no, "side", "killed")
        monkeypatch.setattr(Proposal, "call_when_settled", call_when_settled)
        await agent.delete_branch("side")
        assert tries[0] is tries[1]
        assert [branch.deleted for branch in await agent.branches()] == [False, True]

    run(place, main)


def test_the_committers_thread_ends_with_it(store):
    """A store that is forgotten, not closed, left a thread behind."""
    committer = Committer(store._context.backend)
    committer._summon()
    (thread,) = [one.thread for one in committer._servants._begun]
    del committer
    while thread.is_alive():
        gc.collect()
        thread.join(0.01)


# -- closing -----------------------------------------------------------------------------------


def test_closed_with_work_under_way(place):
    """What was queued is committed, what comes later is refused, and nothing hangs."""

    async def main():
        store = await perdure.open_async(place.url, durability="os")
        agents = [await store.agent(f"a{n}", initial={"n": 0}) for n in range(6)]
        await asyncio.gather(*[agent.update(add) for agent in agents])
        disk = Disk(store)
        with disk.slow():
            tasks = [asyncio.create_task(agent.update(add)) for agent in agents]
            await disk.begun()
            await disk.queued(6 - disk.batches[0])
            closing = asyncio.create_task(store.close())
            while not disk.committer._closed:
                await asyncio.sleep(0.001)
            disk.gate.set()
            done = await asyncio.gather(*tasks)
            await closing
        assert [commit.seq if commit else 0 for commit in done] == [3] * 6
        with pytest.raises(StoreUnavailable, match="closed"):
            await agents[0].update(add)
        servants = disk.committer._servants
        assert servants.any_begun and not servants.any_lives

    asyncio.run(main())
    with perdure.open(place.url) as store:
        assert {store.agent(f"a{n}").state["n"] for n in range(6)} == {2}


def test_many_tasks_while_it_closes(place):
    async def main():
        for _ in range(5):
            store = await perdure.open_async(place.url, durability="os")
            agents = [await store.agent(f"a{n}", initial={"n": 0}) for n in range(8)]

            async def work(agent: Any) -> int:
                for done in range(1000):
                    try:
                        await agent.update(add)
                    except StoreUnavailable:
                        return done
                raise AssertionError("it was never closed")

            tasks = [asyncio.create_task(work(agent)) for agent in agents]
            before = [agent.state["n"] for agent in agents]
            await asyncio.sleep(0.02)
            await store.close()
            done = await asyncio.gather(*tasks)
            async with perdure.open_async(place.url, durability="os") as again:
                for agent, was, more in zip(agents, before, done, strict=True):
                    assert (await again.agent(agent.id, initial={"n": 0})).state["n"] == was + more

    if place.durable:
        asyncio.run(main())


# -- forks -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on(place):
    """Its committer's thread and the threads that read are not there; their locks might be held."""
    if not place.durable:
        return
    store = place.open()

    async def change(open_store: Any) -> int:
        both = perdure.AsyncStore(open_store)
        agent = await both.agent("a", initial={"n": 0})
        await agent.update(add)
        return int(agent.state["n"])

    assert asyncio.run(change(store)) == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if asyncio.run(change(store)) == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(change(store)) == 3
