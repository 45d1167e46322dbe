"""More of them: runs, coroutines, and a saver of LangGraph's."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.scenes import Call, begun, grow, scene


@perdure.step
def double(n: int) -> int:
    return 2 * n


@perdure.tool(on_crash="retry")
def pay(n: int) -> str:
    return f"paid {n}"


@perdure.step
async def add(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@perdure.agent(State)
def stepping(run: perdure.Run[State]) -> int:
    n = double(run.state.n)
    with run.edit("doubled") as draft:
        draft.n = n
    return n


@perdure.agent(State)
def paying(run: perdure.Run[State]) -> str:
    return pay(3)


@perdure.agent(State)
def asking(run: perdure.Run[State]) -> bool:
    return bool(run.ask("Go on?", timeout=timedelta(milliseconds=1), default=True))


@perdure.agent(State)
def hearing(run: perdure.Run[State]) -> Any:
    return run.wait_for("word")


@perdure.agent(State)
async def gathering(run: perdure.AsyncRun[State]) -> int:
    found = await asyncio.gather(*(add(n) for n in range(3)))
    async with run.edit("gathered") as draft:
        draft.n = sum(found)
    return sum(found)


def _run(store: Store, function: Any, agent: Agent[State], result: object) -> Call:
    def call() -> None:
        found = store.run(function, agent.id)
        assert found == result, f"{found!r} is not {result!r}"

    return call


@scene
def run_step(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, stepping, agent, 4)


@scene
def run_tool(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, paying, agent, "paid 3")


@scene
def run_ask(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, asking, agent, True)


@scene
def run_signal(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.start(hearing, name).signal("word", 7)
    return agent, _run(store, hearing, agent, 7)


@scene
def run_gather(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        found = await AsyncStore(store).run(gathering, name)
        assert found == 6, found

    return agent, lambda: asyncio.run(main())


@scene
def start_and_signal(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        handle = store.start(hearing, name)
        handle.signal("word", 7)
        handle.cancel()

    return agent, call


@scene
def async_edit(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        other = await AsyncStore(store).agent(name, State)
        async with other.edit("grow") as draft:
            grow(draft)

    return agent, lambda: asyncio.run(main())


@scene
def async_update(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        other = await AsyncStore(store).agent(name, State)
        await asyncio.gather(other.update(grow), other.refresh())

    return agent, lambda: asyncio.run(main())


@scene
def saver_put(store: Store, name: str) -> tuple[Agent[State], Call]:
    from langgraph.checkpoint.base import empty_checkpoint

    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)  # what is asked of the store is asked of it
    saver = PerdureSaver(store)
    config: Any = {"configurable": {"thread_id": f"{name}-thread", "checkpoint_ns": ""}}
    values = {"messages": ["one"], "n": 1}
    versions: Any = {"messages": "1", "n": "1"}

    def call() -> None:
        made: Any = {**empty_checkpoint(), "id": "1f0-a", "channel_values": values}
        made["channel_versions"] = versions
        at = saver.put(config, made, {"step": 1}, versions)
        saver.put_writes(at, [("messages", "two")], "task")
        found = saver.get_tuple(config)
        assert found is not None and found.checkpoint["channel_values"] == values

    return agent, call
