"""Examples of docs/reference/openai-agents.md; see tests/docs/reference.py."""

import asyncio
import tempfile
from typing import Any

from agents import Agent, Model, RunContextWrapper, Runner, RunState, function_tool

import perdure
from perdure.integrations.openai_agents import (
    ContextCodec,
    Conversation,
    PerdureRunStates,
    PerdureSession,
    RecordedModel,
    RunSession,
)

url = f"{tempfile.mkdtemp()}/sessions.db"


# %% PerdureSession PerdureSession.add_items PerdureSession.get_items PerdureSession.pop_item
async def talk() -> None:
    async with PerdureSession("conversation-1", url) as session:  # for Runner.run(…, session=…)
        await session.add_items([{"role": "user", "content": "Where is my money?"}])
        await session.add_items([{"role": "assistant", "content": "Which order?"}])
        assert len(await session.get_items(limit=1)) == 1  # the newest
        assert await session.pop_item() == {"role": "assistant", "content": "Which order?"}


asyncio.run(talk())


# %% PerdureSession.agent PerdureSession.clear_session PerdureSession.close
async def undo() -> None:
    session = PerdureSession("conversation-1", url)
    await session.clear_session()
    agent = await session.agent()
    await agent.undo()  # what was cleared is in the log
    assert len(agent.state.items) == 1
    await session.close()


asyncio.run(undo())


# %% PerdureSession.fork PerdureSession.branches
async def fork() -> None:
    async with PerdureSession("conversation-1", url) as session:
        async with await session.fork("what-if") as branch:  # copies nothing
            await branch.add_items([{"role": "user", "content": "another way"}])
        assert len(await session.get_items()) == 1
        assert [branch.name for branch in await session.branches()] == ["main", "what-if"]


asyncio.run(fork())


# %% PerdureRunStates PerdureRunStates.save PerdureRunStates.load PerdureRunStates.take
@function_tool(needs_approval=True)
def refund(order: int) -> str:
    return f"refunded {order}"


support: Agent[Any] = Agent("support", tools=[refund])


async def keep() -> None:
    async with PerdureRunStates(url) as states:
        # In most programs: (await Runner.run(support, "Refund it", session=session)).to_state()
        waiting: RunState[Any, Agent[Any]] = RunState(RunContextWrapper({}), "Refund", support, 3)
        await states.save("conversation-1", waiting)
        assert await states.load("conversation-1", support) is not None  # only looks
        taken = await states.take("conversation-1", support)  # of several who ask, one gets it
        assert taken.get_interruptions() == []  # approve or reject each, then Runner.run
        try:
            await states.take("conversation-1", support)
        except perdure.Conflict as error:
            print(error)


asyncio.run(keep())


# %% PerdureRunStates.clear PerdureRunStates.close
async def forget() -> None:
    states = PerdureRunStates(url)
    await states.clear("conversation-1")
    assert await states.load("conversation-1", support) is None
    await states.close()


asyncio.run(forget())


# %% ContextCodec
class Context:
    def __init__(self, customer: str) -> None:
        self.customer = customer


codec = ContextCodec(
    serialize=lambda context: {"customer": context.customer},
    deserialize=lambda data: Context(data["customer"]),
)
states = PerdureRunStates(url, context=codec)


# %% RunSession RecordedModel Conversation
@perdure.tool(on_crash="ask")
async def pay(order: int) -> str:
    """Pay an order back."""
    return f"paid {order}"


@perdure.agent(Conversation)
async def answer(run: perdure.AsyncRun[Conversation], text: str) -> str:
    model: Model = RecordedModel(run, "gpt-4.1-mini")
    assistant: Agent[Any] = Agent("support", tools=[function_tool(pay)], model=model)
    result = await Runner.run(assistant, text, session=RunSession(run))
    return str(result.final_output)


async def remember() -> None:
    async with perdure.open_async(url) as store:
        # await store.options(key="message-17").run(answer, "conversation-5", "Where is it?")
        conversation = await store.agent("conversation-1", Conversation)
        assert len(conversation.state.items) == 1


asyncio.run(remember())


# %% SavedRun
async def look() -> None:
    async with perdure.open_async(url) as store:
        conversation = await store.agent("conversation-1", Conversation)
        assert conversation.state.run_state is None  # a SavedRun, while one waits


asyncio.run(look())
