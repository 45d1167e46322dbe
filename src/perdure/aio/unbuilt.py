"""Handles whose typed state is not built, for adapters that often need a little of a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from perdure.agents import Agent
from perdure.aio.agent import AsyncAgent
from perdure.aio.store import AsyncStore
from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import Plain
from perdure.model import MAIN
from perdure.state.branch_state import BranchState
from perdure.state.event_loop.loop_waits import in_own_thread as in_own_thread
from perdure.state.list_ends import end_of
from perdure.store import Store

T = TypeVar("T")
R = TypeVar("R")


async def unread(
    store: AsyncStore, name: str, schema: type[T] | Schema[T], *, branch: str = MAIN
) -> AsyncAgent[T]:
    """See `AsyncStore.agent`; the state is not read before a method asks for it."""
    return AsyncAgent(
        store._home, await store._home.call(lambda: store._store.agent(name, schema, branch=branch))
    )


class LastItems(NamedTuple):
    """The last items of a list of a state: `items` of the list at `key`."""

    key: str
    items: int


async def first_peek(
    open_it: Callable[[], Store],
    name: str,
    schema: type[T] | Schema[T],
    fn: Callable[[Plain], R],
    *,
    branch: str = MAIN,
    end: LastItems | None = None,
) -> tuple[AsyncAgent[T], R]:
    """Opens a store, gets an agent like `unread`, and calls `peek`: all on one thread, in one go,
    because going to another thread takes longer than the work itself.

    Raises:
        as `peek`, and what `open_it` raises.
    """

    def read() -> tuple[Store, Agent[T], R]:
        store = open_it()
        agent = store.agent(name, schema, branch=branch)
        return store, agent, _look(agent._working, fn, end)

    store, agent, found = await in_own_thread(read)
    return AsyncAgent(AsyncStore(store)._home, agent), found


async def peek(
    agent: AsyncAgent[T], fn: Callable[[Plain], R], *, end: LastItems | None = None
) -> R:
    """Returns what `fn` finds in the plain state as it is now, on another thread. `fn` may neither
    change nor keep the state.

    Args:
        end: the only part that `fn` looks at. If it can be read without the rest, `fn` gets a state
            of nothing else; then no state is in memory afterwards.

    Raises:
        as `AsyncAgent.refresh`.
    """
    working = agent._working
    async with agent._turn.hold():
        found = await agent._home.call(lambda: _look(working, fn, end))
        if working.in_memory:  # a typed state moved on with it
            await agent.look()
        return found


def _look(working: BranchState[T], fn: Callable[[Plain], R], end: LastItems | None) -> R:
    items = end_of(working, end.key, end.items) if end is not None else None
    if end is not None and items is not None:
        return fn({end.key: items})
    working.refresh()
    return fn(working.plain)
