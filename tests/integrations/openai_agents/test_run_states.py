"""Runs that wait for approval: saved here, gone on with elsewhere, by one only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from agents import Runner, UserError

import perdure
from perdure.integrations.openai_agents import ContextCodec, PerdureRunStates, PerdureSession
from tests.integrations.openai_agents import processes
from tests.integrations.openai_agents.speaking import (
    QUIET,
    calls,
    refunded,
    says,
    support,
    texts,
    user,
)


@dataclass
class Customer:
    name: str


CUSTOMER = ContextCodec(lambda c: {"name": c.name}, lambda plain: Customer(**plain))


async def interrupted(session: Any = None, context: Any = None) -> Any:
    agent = support([calls("refund", order=7)])
    result = await Runner.run(agent, "Refund 7", session=session, context=context, run_config=QUIET)
    assert result.interruptions
    return result.to_state()


def test_another_process_goes_on_after_approval(url, tmp_path):
    async def ask():
        async with PerdureSession("c-1", url=url) as session, PerdureRunStates(url) as states:
            await states.save("c-1", await interrupted(session))
            await session.add_items([])

    asyncio.run(ask())
    other = processes.start(processes.approve_and_resume, url, str(tmp_path / "out"))
    other.join()
    assert (other.exitcode, (tmp_path / "out").read_text()) == (0, "done [7]")

    async def look():
        async with PerdureSession("c-1", url=url) as session:
            kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
            assert kinds == ["user", "function_call", "function_call_output", "message"]
            whats = [commit.cause.what async for commit in (await session.agent()).log()]
            assert 'run waits for approval: refund {"order": 7}' in whats

    asyncio.run(look())


def test_of_many_who_take_it_one_gets_it(url):
    async def main():
        async with PerdureRunStates(url) as states:
            await states.save("c-1", await interrupted())
            agent = support()
            taken = await asyncio.gather(
                *(states.take("c-1", agent) for _ in range(8)), return_exceptions=True
            )
            errors = [one for one in taken if isinstance(one, perdure.Conflict)]
            assert len(errors) == 7 and "again=True" in errors[0].hint
            assert await states.load("c-1", agent) is None
            again = await states.take("c-1", agent, again=True)
            assert len(again.get_interruptions()) == 1
            await states.clear("c-1")
            with pytest.raises(perdure.NotFound):
                await states.take("c-1", agent)

    asyncio.run(main())


def test_looking_and_deciding_before_going_on(url):
    refunded.clear()

    async def main():
        async with PerdureRunStates(url) as states:
            assert await states.load("c-1", support()) is None
            await states.clear("c-1")
            await states.save("c-1", await interrupted())
            state = await states.load("c-1", support())
            assert state is not None
            state.reject(state.get_interruptions()[0])
            await states.save("c-1", state)
            agent = support([says("sorry")])
            result = await Runner.run(agent, await states.take("c-1", agent), run_config=QUIET)
            assert (result.final_output, refunded) == ("sorry", [])

    asyncio.run(main())


def test_it_lies_beside_the_items_and_in_each_branch(url):
    async def main():
        async with PerdureSession("c-1", url=url) as session, PerdureRunStates(url) as states:
            await session.add_items([user("hi")])
            await states.save("c-1", await interrupted())
            await session.add_items([user("still there?")])
            await session.clear_session()
            assert await states.load("c-1", support()) is not None
            await session.add_items([user("and on")])
            assert texts(await session.get_items()) == ["and on"]
            fork = await session.fork("what-if")
            state = (await fork.agent()).state
            assert state.run_state is not None
            assert state.run_state.waiting_for == ['refund {"order": 7}']
            async with PerdureRunStates(url, branch="what-if") as there:
                await there.take("c-1", support())
            assert await states.load("c-1", support()) is not None
            await fork.close()

    asyncio.run(main())


def test_contexts(url):
    async def main():
        async with PerdureRunStates(url) as states:
            await states.save("mapping", await interrupted(context={"name": "ann"}))
            state: Any = await states.take("mapping", support())
            assert state._context.context == {"name": "ann"}
            with pytest.raises(UserError):
                await states.save("object", await interrupted(context=Customer("ann")))
            assert await states.load("object", support()) is None
        async with PerdureRunStates(url, context=CUSTOMER) as states:
            await states.save("object", await interrupted(context=Customer("ann")))
            state = await states.take("object", support())
            assert state._context.context == Customer("ann")

    asyncio.run(main())


def test_an_agent_that_does_not_fit_leaves_it_untaken(url):
    async def main():
        async with PerdureRunStates(url) as states:
            await states.save("c-1", await interrupted())
            other = support()
            other.name = "another"
            with pytest.raises(UserError):
                await states.take("c-1", other)
            assert len((await states.take("c-1", support())).get_interruptions()) == 1

    asyncio.run(main())
