"""Coroutines that begin edits at the same time share the look at their branches' heads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, NotFound, PerdureError, StoreUnavailable
from perdure.storage.appending import Ref
from perdure.storage.shortcuts import Head
from tests.state.test_async_trouble import add, run

MANY = 20


class Looking:
    """A backend whose looks at heads stop where a test wants them to; none is at hand."""

    def __init__(self, store: perdure.AsyncStore) -> None:
        self.context = store._store._context
        self.backend: Any = self.context.backend
        self.gate = threading.Event()
        self.gate.set()
        self.under_way = threading.Event()
        self.batches: list[int] = []
        self.problem: BaseException | None = None
        self.only: int | None = None
        self.context.heads._at_hand = None
        self.context.heads._many = self

    def heads(self, places: Sequence[tuple[int, str]]) -> Sequence[Head]:
        self.batches.append(len(places))
        self.under_way.set()
        assert self.gate.wait(60)
        if self.problem is not None and self.only is None:
            raise self.problem
        return [self.answer(no, name) for no, name in places]

    def answer(self, no: int, name: str) -> Head:
        if no == self.only and isinstance(self.problem, PerdureError):
            return self.problem
        ref: Ref | None = self.backend.ref(no, name)
        assert ref is not None
        return ref.seq

    async def begun(self) -> None:
        while not self.under_way.is_set():
            await asyncio.sleep(0.001)

    async def queued(self, count: int) -> None:
        while len(self.context.heads._queue) < count:
            await asyncio.sleep(0.001)


async def opened(store: perdure.AsyncStore, count: int) -> list[perdure.AsyncAgent[Any]]:
    agents = [await store.agent(f"a{number}", initial={"n": 0}) for number in range(count)]
    await asyncio.gather(*(agent.update(add) for agent in agents))
    return agents


async def edit(agent: perdure.AsyncAgent[Any]) -> None:
    async with agent.edit("one more") as draft:
        add(draft)


def test_edits_that_begin_while_others_look_share_the_next_look(place):
    async def main(store):
        agents = await opened(store, MANY)
        looking = Looking(store)
        looking.gate.clear()
        tasks = [asyncio.create_task(edit(agents[0]))]
        await looking.begun()
        tasks += [asyncio.create_task(edit(agent)) for agent in agents[1:]]
        await looking.queued(MANY - 1)
        looking.gate.set()
        await asyncio.gather(*tasks)
        assert looking.batches == [1, MANY - 1]
        assert [agent.state["n"] for agent in agents] == [2] * MANY
        assert [agent.seq for agent in agents] == [3] * MANY

    run(place, main)


def test_an_edit_begins_at_the_head_that_somebody_else_moved(place):
    async def main(store):
        (agent,), other = await opened(store, 1), await store.agent("a0")
        await edit(other)
        async with agent.edit("after the other's") as draft:
            assert (draft["n"], agent.seq, agent.state) == (2, 3, {"n": 2})
            add(draft)
        assert (agent.seq, agent.state) == (4, {"n": 3})
        with pytest.raises(Conflict):
            async with agent.edit("the loser") as draft:
                await edit(other)
                add(draft)
        assert agent.state == {"n": 3}
        assert await agent.refresh() == {"n": 4}

    run(place, main)


def test_an_edit_that_is_cancelled_while_it_looks_has_not_begun(place):
    async def main(store):
        agents = await opened(store, 3)
        looking = Looking(store)
        looking.gate.clear()
        tasks = [asyncio.create_task(edit(agents[0]))]
        await looking.begun()
        tasks += [asyncio.create_task(edit(agent)) for agent in agents[1:]]
        await looking.queued(2)
        tasks[1].cancel()  # it is withdrawn
        tasks[0].cancel()  # its look is awaited
        await asyncio.wait([tasks[1]])
        assert not tasks[0].done()
        looking.gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results[:2]] == [asyncio.CancelledError] * 2
        assert looking.batches == [1, 1]
        assert [agent.state["n"] for agent in agents] == [1, 1, 2]
        for agent in agents:
            await edit(agent)
        assert [agent.state["n"] for agent in agents] == [2, 2, 3]

    run(place, main)


def test_a_look_that_fails_fails_for_whom_it_was(place):
    async def main(store):
        agents = await opened(store, 3)
        looking = Looking(store)
        looking.problem = StoreUnavailable("it is away")
        for only in (None, agents[1]._agent._working.reader.no):
            looking.only = only
            results = await asyncio.gather(*map(edit, agents), return_exceptions=True)
            failed = [number for number, result in enumerate(results) if result is not None]
            assert failed == ([1] if only else [0, 1, 2])
            assert {type(results[number]) for number in failed} == {StoreUnavailable}
        looking.problem, looking.only = None, None
        await asyncio.gather(*map(edit, agents))
        assert [agent.state["n"] for agent in agents] == [3, 2, 3]

    run(place, main)


def test_an_edit_of_what_was_deleted_is_not_found(place):
    async def main(store):
        agent, other = *(await opened(store, 1)), await store.agent("a0")
        await store.delete("a0")
        for handle in (agent, other):
            with pytest.raises(NotFound):
                await edit(handle)
            assert not handle.exists

    run(place, main)


def test_who_waits_for_a_look_that_never_begins_hears_that_the_store_is_closed(place):
    async def main(store):
        (agent,) = await opened(store, 1)
        looking = Looking(store)
        threads = looking.context._own_threads()
        gate = threading.Event()
        busy = [asyncio.create_task(threads.call(gate.wait, 60)) for _ in range(8)]
        await asyncio.sleep(0.05)
        late = asyncio.create_task(edit(agent))
        await asyncio.sleep(0.05)
        closing = threading.Thread(target=threads.close)
        closing.start()
        with pytest.raises(StoreUnavailable, match="closed"):
            await late
        gate.set()
        await asyncio.gather(*busy)
        closing.join()
        with pytest.raises(StoreUnavailable, match="closed"):
            await edit(agent)
        assert looking.batches == []

    run(place, main)


def test_a_head_at_hand_needs_no_thread(tmp_path):
    async def main(store):
        (agent,), other = await opened(store, 1), await store.agent("a0")
        looking = Looking(store)
        looking.context.heads._at_hand = looking.backend
        for _ in range(MANY):
            await edit(agent)
            await edit(other)
        assert looking.batches == []
        async with perdure.open_async(place.url) as elsewhere:
            await edit(await elsewhere.agent("a0"))
        async with agent.edit("what another connection wrote is seen") as draft:
            assert draft["n"] == 2 * MANY + 2
        assert looking.batches == []

    place = SimpleNamespace(url=f"sqlite:///{tmp_path}/a.db")
    run(place, main)


def test_a_loop_waits_for_nobody_who_writes(tmp_path):
    """The connection that has the head at hand was busy, and the whole loop stood still."""

    async def main(store):
        (agent,) = await opened(store, 1)
        looking = Looking(store)
        looking.context.heads._at_hand = looking.backend
        busy, gate = threading.Event(), threading.Event()

        def write() -> None:
            with looking.backend._writer.lock:
                busy.set()
                assert gate.wait(60)

        writing = threading.Thread(target=write)
        writing.start()
        assert busy.wait(60)
        task = asyncio.create_task(edit(agent))
        await looking.begun()  # on a thread, while this loop goes on
        gate.set()
        await task
        writing.join()
        assert looking.batches == [1]
        assert agent.state["n"] == 2

    run(SimpleNamespace(url=f"sqlite:///{tmp_path}/a.db"), main)
