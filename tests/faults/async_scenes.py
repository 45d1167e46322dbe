"""The asynchronous face: each call on an event loop of its own, with an exception in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncAgent, AsyncStore
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.scenes import SCENES, Call, begun, grow


def async_scene(
    prepare: Callable[[Agent[State]], object] = lambda agent: None,
) -> Callable[[Callable[[AsyncAgent[State]], Awaitable[object]]], Any]:
    """Of a coroutine function on an asynchronous handle."""

    def decorate(body: Callable[[AsyncAgent[State]], Awaitable[object]]) -> Any:
        def made(store: Store, name: str) -> tuple[Agent[State], Call]:
            agent = begun(store, name)
            prepare(agent)

            async def main() -> None:
                await body(await AsyncStore(store).agent(name, State))

            return agent, lambda: asyncio.run(main())

        SCENES[body.__name__] = made
        return body

    return decorate


@async_scene()
async def async_edit(agent: AsyncAgent[State]) -> None:
    async with agent.edit("grow") as draft:
        grow(draft)


@async_scene()
async def async_update(agent: AsyncAgent[State]) -> None:
    await asyncio.gather(agent.update(grow), agent.refresh())


@async_scene()
async def async_save(agent: AsyncAgent[State]) -> None:
    await agent.save(State(n=9, items=["a", "item 2"], facts={"z": 1}), "whole")


@async_scene()
async def async_undo(agent: AsyncAgent[State]) -> None:
    await agent.undo()


@async_scene(lambda agent: agent.undo())
async def async_redo(agent: AsyncAgent[State]) -> None:
    await agent.redo()


@async_scene()
async def async_checkpoint(agent: AsyncAgent[State]) -> None:
    await agent.checkpoint("point")


@async_scene()
async def async_fork(agent: AsyncAgent[State]) -> None:
    await agent.fork("side")


@async_scene()
async def async_rollback(agent: AsyncAgent[State]) -> None:
    await agent.rollback(2)


@async_scene(lambda agent: agent.fork("side", at=2).update(grow))
async def async_adopt(agent: AsyncAgent[State]) -> None:
    await agent.adopt("side")


@async_scene()
async def async_trim(agent: AsyncAgent[State]) -> None:
    await agent.trim(2)


def async_moving(move: str) -> None:
    """Another handle has gone on meanwhile."""

    def made(store: Store, name: str) -> tuple[Agent[State], Call]:
        agent = begun(store, name)

        async def main() -> None:
            one = await AsyncStore(store).agent(name, State)
            store.agent(name, State).update(grow, key="others")
            await getattr(one, move)()
            assert one.state.n == store.agent(name, State).state.n

        return agent, lambda: asyncio.run(main())

    SCENES[f"async_{move}"] = made


async_moving("refresh")
async_moving("follow")


def async_open(store: Store, name: str) -> tuple[Agent[State], Call]:
    from tests.faults.store_scenes import _again

    agent, url = begun(store, name), _again(store)

    async def main() -> None:
        async with perdure.open_async(url, durability="os") as other:
            await (await other.agent(name, State)).update(grow, key="k")

    return agent, lambda: asyncio.run(main())


SCENES["async_open"] = async_open
