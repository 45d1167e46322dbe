"""For adapters that often ask for a little of a state: handles whose typed state is not built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perdure.aio.agent import AsyncAgent
from perdure.aio.store import AsyncStore
from perdure.core.values import Plain
from perdure.model import MAIN

T = TypeVar("T")
R = TypeVar("R")


async def unread(
    store: AsyncStore, name: str, schema: type[T], *, branch: str = MAIN
) -> AsyncAgent[T]:
    """As `AsyncStore.agent`; the state is not read before it is asked for by a method."""
    return AsyncAgent(
        store._home, await store._home.call(lambda: store._store.agent(name, schema, branch=branch))
    )


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
