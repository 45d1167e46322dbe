"""For adapters that often ask for a little of a state: handles whose typed state is not built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perdure.agents import Agent
from perdure.aio.agent import AsyncAgent
from perdure.aio.store import AsyncStore
from perdure.core.values import Plain
from perdure.model import MAIN
from perdure.state.waiting import in_own_thread
from perdure.store import Store

T = TypeVar("T")
R = TypeVar("R")


async def unread(
    store: AsyncStore, name: str, schema: type[T], *, branch: str = MAIN
) -> AsyncAgent[T]:
    """As `AsyncStore.agent`; the state is not read before it is asked for by a method."""
    return AsyncAgent(
        store._home, await store._home.call(lambda: store._store.agent(name, schema, branch=branch))
    )


async def first_peek(
    open_it: Callable[[], Store], name: str, schema: type[T], fn: Callable[[Plain], R], *,
    branch: str = MAIN,
) -> tuple[AsyncAgent[T], R]:  # fmt: skip
    """As `unread` and `peek` of a store that is opened first: all on one thread, in one go, as
    going to another thread takes longer than what is done there.

    Raises:
        As `peek`, and what `open_it` raises.
    """

    def read() -> tuple[Store, Agent[T], R]:
        store = open_it()
        agent = store.agent(name, schema, branch=branch)
        agent._working.refresh()
        return store, agent, fn(agent._working.plain)

    store, agent, found = await in_own_thread(read)
    return AsyncAgent(AsyncStore(store)._home, agent), found


async def peek(agent: AsyncAgent[T], fn: Callable[[Plain], R]) -> R:
    """What `fn` finds in the plain state as it is now, on another thread. It may neither change nor
    keep what it is given.

    Raises:
        As `AsyncAgent.refresh`.
    """
    working = agent._working

    def read() -> R:
        working.refresh()
        return fn(working.plain)

    async with agent._turn:
        found = await agent._home.call(read)
        if working.in_memory:  # a typed state moved on with it
            await agent.look()
        return found
