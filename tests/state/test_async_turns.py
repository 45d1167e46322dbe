"""Edits of several tasks on one asynchronous handle: one after the other, whoever is cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncAgent, loops


@dataclass
class Notes:
    count: int = 0
    texts: list[str] = field(default_factory=list)


async def note(agent: AsyncAgent[Notes], text: str, begun: list[str] | None = None) -> None:
    async with agent.edit(text) as draft:
        if begun is not None:
            begun.append(text)
        draft.count += 1
        draft.texts.append(text)


def test_a_block_waits_until_the_commit_of_the_one_before_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block was taken for over as soon as its `__aexit__` was called: the next one began while
    the commit was on its way."""

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent = await store.agent("a", Notes)
            await agent.checkpoint("begun")
            context, begun = agent._working.context, list[str]()
            submit, on_its_way, gate = context.submit_async, asyncio.Event(), asyncio.Event()

            async def held(proposal: Any) -> Any:
                on_its_way.set()
                await gate.wait()
                return await submit(proposal)

            monkeypatch.setattr(context, "submit_async", held)
            tasks = [asyncio.create_task(note(agent, "one", begun))]
            await on_its_way.wait()
            tasks.append(asyncio.create_task(note(agent, "two", begun)))
            await asyncio.wait(tasks, timeout=0.05)
            assert begun == ["one"]
            gate.set()
            await asyncio.gather(*tasks)
            assert agent.state == Notes(2, ["one", "two"])
            assert await agent.drift() == []

    asyncio.run(main())


def test_a_block_that_is_cancelled_as_it_commits_lets_the_next_one_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent = await store.agent("a", Notes)
            await agent.checkpoint("begun")
            context = agent._working.context
            submit, on_its_way = context.submit_async, asyncio.Event()

            async def held(proposal: Any) -> Any:
                on_its_way.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(context, "submit_async", held)
            task = asyncio.create_task(note(agent, "one"))
            await on_its_way.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.setattr(context, "submit_async", submit)
            await note(agent, "two")
            assert agent.state == Notes(1, ["two"])
            assert await agent.drift() == []

    asyncio.run(main())


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_i3_timeouts_around_edits_leave_handle_and_log_in_step(
    tmp_path: Path, durability: Any
) -> None:
    """Tasks edited one handle under timeouts, as handlers of a web server do. Edits of others were
    "changed outside edit", the handle showed what was in no log, and the next edit through it
    wrote ops that did not fit: the agent was `Corrupt` for everybody."""

    async def some(agent: AsyncAgent[Notes], number: int, done: list[str]) -> None:
        for round_ in range(12):
            text = f"{number}-{round_}"
            try:
                await asyncio.wait_for(note(agent, text), (round_ * number % 7) * 0.0007 or None)
                done.append(text)
            except TimeoutError:
                pass

    async def main() -> None:
        async with perdure.open_async(f"{tmp_path / 'a.db'}", durability=durability) as store:
            agent = await store.agent("a", Notes)
            await agent.checkpoint("begun")
            done: list[str] = []
            await asyncio.gather(*(some(agent, number, done) for number in range(1, 7)))
            assert await agent.drift() == []
            fresh = await store.agent("a", Notes)
            assert agent.state == fresh.state and fresh.state.count == len(fresh.state.texts)
            assert set(done) <= set(fresh.state.texts)
            await agent.verify()

    asyncio.run(main())


def test_tasks_get_their_turns_in_the_order_in_which_they_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that waited looked each second whether the block before it was over, and was last in
    the line again. Where others came all the time, its edit was a `Conflict` after a minute."""
    monkeypatch.setattr(loops, "LOOK_S", 0.001)

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent, begun = await store.agent("a", Notes), list[str]()
            names = [str(number) for number in range(7)]
            looks = list[None]()
            drop = agent._turn._drop_those_over

            def look() -> None:
                looks.append(None)
                drop()

            monkeypatch.setattr(agent._turn, "_drop_those_over", look)
            async with agent.edit("first") as draft:
                draft.count += 1
                tasks = [asyncio.create_task(note(agent, name, begun)) for name in names]
                while len(looks) < 10 * len(names):
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            assert begun == names

    asyncio.run(main())


def test_a_task_that_comes_as_the_turn_changes_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task asked for its turn just when the one before had given it to another. It waited without
    a limit; where the other's block waited for that very task, both did so for ever."""

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent, over = await store.agent("a", Notes), asyncio.Event()

            async def other() -> None:
                async with agent.edit("two"):
                    await over.wait()

            async with agent.edit("one") as draft:
                draft.count += 1
                task = asyncio.create_task(other())
                while not agent._turn._waiting:
                    await asyncio.sleep(0)
            monkeypatch.setattr(loops, "LOCK_MAX_S", 0.01)
            with pytest.raises(perdure.Conflict, match="another task has an edit"):
                await note(agent, "three")
            over.set()
            await task
            await note(agent, "four")
            assert agent.state == Notes(2, ["four"])

    asyncio.run(main())


def test_a_task_that_is_cancelled_as_it_gets_its_turn_passes_it_on() -> None:
    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent = await store.agent("a", Notes)
            async with agent.edit("one") as draft:
                draft.count += 1
                tasks = [asyncio.create_task(note(agent, name)) for name in "ab"]
                while len(agent._turn._waiting) < 2:
                    await asyncio.sleep(0)
            assert agent._turn._owner is tasks[0]
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            await tasks[1]
            assert agent.state == Notes(2, ["b"])

    asyncio.run(main())
