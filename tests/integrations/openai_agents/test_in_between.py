"""Another process acts on a session between two calls of the store that one call of it makes."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Conflict, NotFound
from perdure.integrations.openai_agents import PerdureSession
from tests.between.moments import Moments
from tests.between.picture import picture
from tests.between.worlds import SIDES, Copies, World

Act = Callable[[PerdureSession], Awaitable[Any]]


def said(text: str) -> Any:
    return {"role": "user", "content": text}


async def add(session: PerdureSession) -> None:
    await session.add_items([said("first"), said("second")])


async def pop(session: PerdureSession) -> Any:
    return await session.pop_item()


async def clear(session: PerdureSession) -> None:
    await session.clear_session()


async def replace(session: PerdureSession) -> Any:
    return await session._atomic_replace_items([said("all in short")])


async def compact(session: PerdureSession) -> Any:
    """Again, where others were faster: nothing was changed then."""
    for _ in range(2):
        tail = await session._get_compaction_snapshot(2)
        if tail is not None and await tail.replace_suffix(0, [said("the last in short")]):
            return True
    return False


async def fork(session: PerdureSession) -> None:
    await session.fork("side")


async def look(session: PerdureSession) -> Any:
    return await session.get_items(2)


ACTS: list[Act] = [add, pop, clear, replace, compact, fork, look]
BEGUN = [("memory", 3), ("sqlite", 3), ("memory", 0)]
"""Kinds of stores, and numbers of items that are there; 0: no session."""


def done(world: World, who: str, act: Act, *, knows: bool = False) -> Any:
    """What it returns, or with what it is refused; by a session on a store of its own. Where it is
    said that the same call may succeed, it is made again."""

    async def do() -> Any:
        async with PerdureSession("c-1", store=world.store("here", who)) as session:
            if knows:
                await session.get_items()
            for again in (True, False):
                try:
                    return await act(session)
                except (Conflict, NotFound) as error:
                    if not (again and error.retry):
                        return type(error)

    return asyncio.run(do())


def seen(world: World) -> Any:
    """The items of each branch; the logs are whole. A fork of what was there a moment ago may have
    its commit behind what came since."""
    store = world.store("here", "look")
    picture(store, {})
    info = store.find("c-1")
    if info is None:
        return None
    agent = store.agent_of(info)
    return {one.name: agent.branch(one.name).state["items"] for one in agent.branches()}


def fill(count: int) -> Callable[[World], None]:
    def filled(world: World) -> None:
        world.store("here", "base")
        if count:
            items = [said(str(n)) for n in range(count)]
            done(world, "base", lambda session: session.add_items(items))

    return filled


@pytest.fixture(params=BEGUN, ids=str)
def copies(request: Any, tmp_path: Path) -> Iterator[Copies]:
    kind, count = request.param
    made = Copies(tmp_path, {**dict.fromkeys(SIDES, "memory"), "here": kind}, fill(count))
    yield made
    made.remove()


def _into(found: list[Any], act: Callable[[], Any]) -> None:
    """On a thread of its own: that of the first may be the one of its event loop."""
    with ThreadPoolExecutor(1) as thread:
        found.append(thread.submit(act).result())


def in_between(copies: Copies, first: Act, second: Act, *, knows: bool) -> Iterator[Any]:
    """Yields the results of both and what is there then, for each call of a backend that the first
    makes."""
    for number in itertools.count(1):
        with copies.copied() as world:
            beside: list[Any] = []
            act = functools.partial(done, world, "2", second)
            moments = Moments(number, functools.partial(_into, beside, act), everywhere=True)
            with moments.counted():
                result = done(world, "1", first, knows=knows)
            if not moments.acted:
                return
            yield [result, *beside], seen(world)


@pytest.mark.parametrize("first", ACTS)
def test_two_calls_come_one_after_the_other(copies: Copies, first: Act) -> None:
    with copies.copied() as world:
        begun = world.store("here", "look").find("c-1") is not None
    acts = ACTS if begun else [act for act in ACTS if act is not fork]
    for second in acts if first in acts else ():  # one that makes a session makes two commits
        right = []
        for turned in (1, -1):
            with copies.copied() as world:
                results = [done(world, "1", act) for act in (first, second)[::turned]]
                right.append((results[::turned], seen(world)))
        for knows in (False, True):
            for number, found in enumerate(in_between(copies, first, second, knows=knows), 1):
                assert found in right, f"{second.__name__}, before call {number}, knows={knows}"
