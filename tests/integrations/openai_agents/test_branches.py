"""Branches of a conversation, its log, and its compaction."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, Runner
from agents.memory import OpenAIResponsesCompactionSession

import perdure
from perdure.integrations.openai_agents import PerdureSession
from tests.integrations.openai_agents.speaking import QUIET, Scripted, says, texts, user


def test_a_branch_shares_the_past_and_goes_its_own_way(make):
    async def main():
        async with make() as session:
            await session.add_items([user("1")])
            before = (await session.agent()).seq
            await session.add_items([user("2")])
            async with await session.fork("what-if", at=before) as other:
                await other.add_items([user("another 2")])
                assert texts(await other.get_items()) == ["1", "another 2"]
                assert [branch.name for branch in await other.branches()] == ["main", "what-if"]
            with pytest.raises(perdure.Conflict):
                await session.fork("what-if")
            assert texts(await session.get_items()) == ["1", "2"]
        async with make(branch="what-if") as again:
            assert texts(await again.get_items()) == ["1", "another 2"]
        async with make(branch="nowhere") as lost:
            with pytest.raises(perdure.NotFound, match="what-if"):
                await lost.get_items()

    asyncio.run(main())


def test_what_was_cleared_can_be_brought_back_and_the_log_tells_what_happened(make):
    async def main():
        async with make() as session:
            await session.add_items([user("1"), {"type": "function_call", "name": "refund"}])
            await session.clear_session()
            agent = await session.agent()
            await agent.undo()
            assert len(await session.get_items()) == 2
            await session.pop_item()
            whats = [commit.cause.what async for commit in agent.log()]
            assert whats[1:3] == ["add user message, function_call refund", "clear"]
            assert whats[-1] == "pop an item"
            assert (await agent.verify()).commits == len(whats)

    asyncio.run(main())


def test_an_append_to_a_long_conversation_writes_as_much_as_to_a_short_one(make):
    """I9: the cost of a commit depends on the change."""
    item = user("x" * 100)

    async def main():
        async with make() as session:
            await session.add_items([item])
            await session.add_items([item])
            agent = await session.agent()
            short = (await agent.commit("main")).size
            await session.add_items([item] * 5_000)
            for _ in range(3):
                await session.add_items([item])
                assert (await agent.commit("main")).size <= short + 16
            assert len(await session.get_items(limit=10)) == 10
            await session.pop_item()
            assert (await agent.commit("main")).size <= short + 16
            await session.clear_session()
            assert (await agent.commit("main")).size <= short + 16

    asyncio.run(main())


class Compacting:
    """Stands for the client: makes one item of all."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.responses = SimpleNamespace(compact=self._compact)
        self._meanwhile = meanwhile

    async def _compact(self, **request: Any) -> Any:
        if self._meanwhile is not None:
            await self._meanwhile()
        output = [{"type": "compaction", "encrypted_content": "all of it"}]
        return SimpleNamespace(output=output, usage=None)


def compacting(session: PerdureSession, **more: Any) -> OpenAIResponsesCompactionSession:
    return OpenAIResponsesCompactionSession(
        session.session_id,
        session,
        client=Compacting(**more),  # type: ignore[arg-type]
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
        compaction_mode="input",
    )


def test_the_sdks_compaction_is_one_commit(make):
    """Cleared and then filled, a conversation would be empty after a crash in between."""
    agent = Agent("talker", model=Scripted([says("1")], [says("2")], [says("3")]))

    async def main():
        async with make() as session:
            for text in ("a", "b"):
                await Runner.run(agent, text, session=compacting(session), run_config=QUIET)
            assert [item["type"] for item in await session.get_items()] == ["compaction"]
            commits = [commit async for commit in (await session.agent()).log(newest_first=True)]
            assert commits[0].cause.what == "compact 4 items to compaction"
            assert len((await (await session.agent()).at(commits[1].seq)).state.items) == 4
            await Runner.run(agent, "c", session=session, run_config=QUIET)
            assert len(await session.get_items()) == 3

    asyncio.run(main())


def test_a_forced_compaction_is_one_commit(make):
    async def main():
        async with make() as session:
            await session.add_items([user("a"), user("b")])
            agent = await session.agent()
            before = agent.seq
            await compacting(session).run_compaction({"force": True})
            assert [item["type"] for item in await session.get_items()] == ["compaction"]
            assert agent.seq == before + 1

    asyncio.run(main())


class Shouting(PerdureSession):
    """A subclass that changes what it is given."""

    async def add_items(self, items: list[Any]) -> None:
        loud: list[Any] = [{**item, "loud": True} for item in items]
        await super().add_items(loud)


def test_a_subclass_sees_what_compaction_writes():
    async def main():
        async with Shouting("c-1", url="memory://") as session:
            await session.add_items([user("a"), user("b")])
            await compacting(session).run_compaction({"force": True})
            assert [item.get("loud") for item in await session.get_items()] == [True]

    asyncio.run(main())


def test_what_was_added_while_it_was_compacted_is_kept(make):
    agent = Agent("talker", model=Scripted([says("1")], [says("2")]))

    async def main():
        async with make() as session, make() as other:

            async def write() -> None:
                await other.add_items([user("meanwhile")])

            await Runner.run(agent, "a", session=session, run_config=QUIET)
            wrapped = compacting(session, meanwhile=write)
            await Runner.run(agent, "b", session=wrapped, run_config=QUIET)
            found = await session.get_items()
            assert len(found) == 5 and found[-1] == user("meanwhile")

    asyncio.run(main())


def test_a_branch_of_a_session_in_memory_is_in_that_memory() -> None:
    """It was a session on a memory of its own, empty: "has no commits yet"."""

    async def main() -> None:
        async with (
            PerdureSession("a", "memory://") as one,
            PerdureSession("a", "memory://") as other,
        ):
            await one.add_items([{"role": "user", "content": "one"}])
            async with await one.fork("side") as side:
                assert await side.get_items() == await one.get_items()
            assert await one.get_items() and not await other.get_items()

    asyncio.run(main())
