"""The async face: the same operations, awaited, on every backend."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, Drifted, NotFound, SchemaError, StoreUnavailable


@dataclass
class Ticket:
    customer: str = ""
    cents: int = 0
    messages: list[str] = field(default_factory=list)


@dataclass
class Needy:
    customer: str


def add(draft: Any) -> None:
    draft["n"] = draft.get("n", 0) + 1


def run(place: Any, main: Callable[[perdure.AsyncStore], Awaitable[None]], **more: Any) -> None:
    """Run a coroutine with the store open."""

    async def opened() -> None:
        async with perdure.open_async(place.url, durability="os", **more) as store:
            await main(store)

    asyncio.run(opened())


def test_state_alone(place):
    async def main(store):
        agent = await store.agent("ticket-42", Ticket, initial=Ticket("c-7"))
        assert (agent.state, agent.seq, agent.exists) == (Ticket("c-7"), 0, False)
        async with (edit := agent.edit("question", tags=["chat"])) as draft:
            draft.messages.append("Where is my money?")
        assert edit.commit.cause.what == "question" and edit.commit.seq == 2
        assert (agent.seq, agent.exists) == (2, True)
        await agent.save(Ticket("c-7", 500, ["Where is my money?"]), "framework step")
        point = await agent.checkpoint("before refund", config={"model": "m-1"})
        assert point.seq == 4 and await agent.checkpoints() == [point]
        made = await agent.update(lambda draft: perdure.increment(draft, "cents", 1), "one more")
        assert made.seq == 5 and agent.state.cents == 501
        past = await agent.at("before refund", config={"model": "m-2"})
        assert past.state.cents == 500 and past.commit.seq == 4
        assert [mismatch.what for mismatch in past.mismatches] == ["configuration"]
        side = await agent.fork("side", at=2)
        assert side.state == Ticket("c-7", 0, ["Where is my money?"]) and side.branch_name == "side"
        assert [branch.name for branch in await agent.branches()] == ["main", "side"]
        assert (await agent.branch("side")).state == side.state
        assert [str(c.path) for c in await agent.diff("side", "main")] == ["state.cents"]
        assert (await agent.undo()).commit.cause.kind == "undo" and agent.state.cents == 500
        await agent.redo()
        assert agent.state.cents == 501
        await agent.rollback("before refund")
        assert agent.state.cents == 500
        await agent.adopt("side")
        assert agent.state.cents == 0 and agent.state == side.state
        await agent.delete_branch("side")
        assert (await agent.commit(2)).seq == 2 and await agent.drift() == []
        seen = []
        assert (await agent.verify(progress=lambda *got: seen.append(got))).commits == agent.seq
        await asyncio.sleep(0)
        assert seen[-1] == (agent.seq, agent.seq)

    run(place, main)
    with perdure.open(place.url) as store:
        assert store.agent("ticket-42", Ticket).verify().commits == 11


def test_the_store(place):
    async def main(store):
        for name in "abc":
            await (await store.agent(name, initial={"n": 0})).update(add)
        assert [info.name for info in await store.agents()] == ["a", "b", "c"]
        info = await store.find("a")
        assert (await store.agent_of(info)).state == {"n": 1}
        entries = [entry async for entry in store.export_log(info)]
        assert len(entries) == 2
        await store.delete("a")
        with pytest.raises(NotFound):
            await store.delete("a")
        assert await store.runs() == []
        assert (await store.sizes("b")).commits == 2
        async with (await store.agent("gone")).edit("begin") as draft:
            draft["n"] = 1
        await store.delete("gone", purge=True)
        assert [info.name for info in (await store.purge()).agents] == ["gone"]
        await store.shrink()
        await store.check_pages()
        await store.flush()
        async with perdure.open_async("memory://", durability="os") as other:
            got: list[tuple[int, int]] = []
            await other.import_log(entries, progress=lambda *at: got.append(at), total=2)
            await asyncio.sleep(0)
            assert got == [(1, 2), (2, 2)]
            assert (await other.agent("a")).state == {"n": 1}

    run(place, main)


def test_a_log_is_read_in_pages(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        assert [commit async for commit in agent.log()] == []
        for _ in range(120):
            await agent.update(add)
        assert [commit.seq async for commit in agent.log()] == list(range(1, 122))
        newest = [commit.seq async for commit in agent.log(newest_first=True, all_branches=True)]
        assert newest == list(range(121, 0, -1))
        async for commit in agent.log():  # left early
            assert commit.seq == 1
            break

    run(place, main)


def test_awaited_opening_and_closing(place):
    async def main():
        store = await perdure.open_async(place.url, durability="os")
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await agent.update(add)
        with pytest.raises(StoreUnavailable, match="closed"):
            async with agent.edit() as draft:
                draft["n"] = 5
        assert agent.state == {"n": 1}  # as last read
        async with await perdure.open_async(place.url, durability="os") as again:
            assert (await again.agent("a")).state == {"n": 1}

    asyncio.run(main())


def test_a_store_that_cannot_be_opened(tmp_path):
    async def main():
        with pytest.raises(NotFound):
            async with perdure.open_async(tmp_path / "no.db", create=False):
                pass

    asyncio.run(main())


def test_what_cannot_be_read_is_said_when_it_is_used(place):
    """Opening a handle reads the state at once; a handle whose state cannot be read must go on
    being good for the rest, as the sync one is."""

    async def main(store):
        agent = await store.agent("a", Needy)
        assert not agent.exists
        with pytest.raises(SchemaError, match="cannot be made without values"):
            agent.state
        await (await store.agent("a", Needy, initial=Needy("c-7"))).save(Needy("c-8"))
        await agent.refresh()
        assert agent.exists and agent.state == Needy("c-8")
        other = await store.agent("a", branch="nowhere")
        with pytest.raises(NotFound, match="nowhere"):
            other.state

    run(place, main)


# -- errors are those of the sync face -------------------------------------------------------


def test_a_moved_head_is_a_conflict(place):
    async def main(store):
        one, two = await store.agent("a", initial={"n": 0}), await store.agent("a")
        await one.update(add)
        with pytest.raises(Conflict, match="expected the head at commit 2, but it is at 3"):
            async with two.edit() as draft:
                draft["n"] = 99
                await one.update(add)
        assert one.seq == 3 and await two.drift() == []
        assert await two.refresh() == {"n": 2}
        async with two.edit() as draft:
            draft["n"] += 1
        assert two.state == {"n": 3}

    run(place, main)


def test_a_block_that_raises_does_nothing(place):
    async def main(store):
        agent = await store.agent("a", Ticket, initial=Ticket("c"))
        await agent.update(lambda draft: draft.messages.append("x"))
        with pytest.raises(ZeroDivisionError):
            async with agent.edit() as draft:
                draft.messages.append("y")
                1 / 0
        with pytest.raises(SchemaError, match=r"state\.cents"):
            async with agent.edit() as draft:
                draft.cents = "many"
        assert agent.state == Ticket("c", 0, ["x"]) and agent.seq == 2
        agent.state.cents = 7
        assert [drift.path for drift in await agent.drift()] == ["state.cents"]
        with pytest.raises(Drifted):
            await agent.update(lambda draft: perdure.increment(draft, "cents"))
        await agent.refresh()
        assert agent.state.cents == 0

    run(place, main)


def test_a_lost_lease_fences(place):
    """I4: the same refusal, by the same append, whoever waits for it."""

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        context = store._store._context
        no = agent._working.reader.no
        lease = context.take_lease(no, "main")
        agent._working.epoch = lease.epoch
        await agent.update(add)
        context.backend.lease(no, "main", None, over=lease.epoch)
        context.backend.lease(no, "main", "somebody")
        with pytest.raises(perdure.Fenced):
            await agent.update(add)
        agent._working.epoch = None
        assert await agent.refresh() == {"n": 2}

    run(place, main)


def test_keys(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        called = []

        async def fn(draft):
            called.append(1)
            await asyncio.sleep(0)
            add(draft)

        first = await agent.update(fn, "count", key="k")
        again = await agent.update(fn, "count", key="k")
        assert first == again and called == [1]
        async with (edit := agent.edit("count", key="k")) as draft:
            add(draft)
        assert edit.commit == first and agent.state == {"n": 1}
        with pytest.raises(Conflict, match="something else"):
            await agent.update(fn, "another", key="k")

    run(place, main)


# -- whose turn it is ------------------------------------------------------------------------


def test_edits_of_two_tasks_on_one_handle_come_one_after_the_other(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})

        async def work():
            for _ in range(10):
                async with agent.edit() as draft:
                    before = draft["n"]
                    await asyncio.sleep(0)
                    draft["n"] = before + 1

        await asyncio.gather(*[work() for _ in range(8)])
        assert agent.state == {"n": 80} and (await agent.verify()).commits == 81

    run(place, main)


def test_what_tears_an_open_edit_loose_is_refused_in_its_task(place):
    """asyncio's lock waits for itself for ever."""

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        await agent.update(add)
        calls: list[Callable[[], Awaitable[Any]]] = [
            agent.refresh,
            agent.undo,
            lambda: agent.update(add),
            lambda: agent.save({"n": 9}),
            lambda: agent.checkpoint("x"),
            lambda: agent.fork("x"),
            lambda: agent.rollback(1),
            agent.edit().__aenter__,
        ]
        async with agent.edit() as draft:
            for call in calls:
                with pytest.raises(Conflict, match="not inside an open edit"):
                    await call()
            draft["n"] = 5
            assert await agent.drift() is not None
            assert [commit.seq async for commit in agent.log()] == [1, 2]
            assert agent.state == {"n": 1}
        assert agent.state == {"n": 5} and agent.seq == 3

    run(place, main)


def test_a_task_that_waits_for_its_own_parent_hears_of_it(place, monkeypatch):
    monkeypatch.setattr("perdure.aio.loops.LOCK_MAX_S", 0.05)

    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        async with agent.edit() as draft:
            with pytest.raises(Conflict, match="another task has an edit"):
                await asyncio.create_task(agent.update(add))
            draft["n"] = 5
        await agent.update(add)
        assert agent.state == {"n": 6}

    run(place, main)


def test_another_loop_is_refused(place):
    async def main(store):
        agent = await store.agent("a", initial={"n": 0})
        problems: list[str] = []

        def elsewhere() -> None:
            calls: list[Callable[[], Any]] = [
                agent.refresh,
                lambda: agent.update(add),
                lambda: store.agent("b"),
                store.agents,
            ]
            for call in calls:
                with pytest.raises(Conflict, match="another event loop") as caught:
                    asyncio.run(call())
                problems.append(caught.value.hint)

        await asyncio.to_thread(elsewhere)
        assert len(problems) == 4
        await agent.update(add)

    run(place, main)


# -- with others -----------------------------------------------------------------------------


def test_coroutines_and_threads_on_one_store(place):
    """Each kind of caller leads, and is led by the other."""

    async def main(store):
        sync = store._store

        async def work(name):
            agent = await store.agent(name, initial={"n": 0})
            for _ in range(15):
                await agent.update(add)

        def in_thread(name):
            agent = sync.agent(name, initial={"n": 0})
            for _ in range(15):
                agent.update(add)

        names = ["shared", "a", "shared", "b"]
        await asyncio.gather(
            *[work(name) for name in names],
            *[asyncio.to_thread(in_thread, name) for name in [*names, "c", "shared"]],
        )
        states = {name: (await store.agent(name)).state["n"] for name in ("shared", "a", "b", "c")}
        assert states == {"shared": 75, "a": 30, "b": 30, "c": 15}
        for name in states:
            await (await store.agent(name)).verify()

    run(place, main)


def test_many_coroutines_share_transactions(place):
    async def main(store):
        agents = [await store.agent(f"a{n}", initial={"n": 0}) for n in range(64)]
        await asyncio.gather(*[agent.update(add) for agent in agents])
        backend = store._store._context.backend
        append, sizes = backend.append, []
        gate = threading.Event()

        def counted(batch):
            sizes.append(len(batch))
            gate.wait(60)  # as a slow disk: until all have come
            return append(batch)

        backend.append = counted
        tasks = [asyncio.create_task(agent.update(add)) for agent in agents]
        committer = store._store._context.committer
        while sum(sizes) + len(committer._queue) < 64:
            await asyncio.sleep(0.001)
        gate.set()
        await asyncio.gather(*tasks)
        assert sum(sizes) == 64 and len(sizes) <= 2
        assert {agent.state["n"] for agent in agents} == {2}

    run(place, main)


def test_importing_perdure_does_not_import_asyncio():
    """It costs as much as all the rest."""
    code = "import sys, perdure; assert 'asyncio' not in sys.modules; perdure.open_async; "
    code += "assert 'asyncio' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
