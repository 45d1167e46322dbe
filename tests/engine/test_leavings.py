"""What a call leaves in memory goes with its last reference: it waits for no collector.

Calls that hold a lock name it by their frame, and some kept their own frame in a variable: a
circle. With each frame went all who had called it, and what those had in their hands: 40 objects
of each edit and 50 of each tool call, which the collector had to find, a twelfth of a step's work.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import AsyncRun, Run
from perdure.store import Store
from tests.engine.conftest import Place

FEW, MANY, TRIES = 10, 150, 5
CIRCLE = 2
"""Objects that a circle has at least. A task's counter of its calls is one, and goes with its
run."""

keys = map(str, itertools.count())


@perdure.step
def add(number: int) -> int:
    return number + 1


@perdure.tool(on_crash="fail")
def act(number: int) -> int:
    return number + 1


@perdure.step
async def add_soon(number: int) -> int:
    return number + 1


@perdure.agent(dict)
def adding(run: Run[dict[str, int]], times: int) -> int:
    return sum(add(number) for number in range(times))


@perdure.agent(dict)
def acting(run: Run[dict[str, int]], times: int) -> int:
    return sum(act(number) for number in range(times))


@perdure.agent(dict)
def editing(run: Run[dict[str, int]], times: int) -> None:
    for number in range(times):
        with run.edit() as draft:
            draft["number"] = number


@perdure.agent(dict)
async def adding_soon(run: AsyncRun[dict[str, int]], times: int) -> int:
    return sum([await add_soon(number) for number in range(times)])


@perdure.agent(dict)
async def side_by_side(run: AsyncRun[dict[str, int]], times: int) -> int:
    return sum(await asyncio.gather(*map(add_soon, range(times))))


def edit(store: Store, times: int) -> None:
    agent = store.agent("edited")
    for _ in range(times):
        with agent.edit() as draft:
            draft["number"] = draft.get("number", 0) + 1


def update(store: Store, times: int) -> None:
    agent = store.agent("updated")
    for _ in range(times):
        agent.update(lambda draft: draft.update(number=draft.get("number", 0) + 1))


def save(store: Store, times: int) -> None:
    agent = store.agent("saved")
    for _ in range(times):
        agent.save({"number": agent.seq})


def fork(store: Store, times: int) -> None:
    agent = store.agent("forked", initial={"number": 0})
    agent.checkpoint(f"made {agent.seq}")
    for number in range(times):
        agent.fork(f"side-{agent.seq}-{times}-{number}")


def left_by(work: Callable[[], object]) -> int:
    """How many objects only the collector can free."""
    gc.collect()
    gc.disable()
    try:
        work()
        return gc.collect()
    finally:
        gc.enable()


def check(work: Callable[[int], object]) -> None:
    """What is left by the call as a whole does not matter, but by each operation of it nothing.

    What happens now and then leaves something, too (a connection more, a thread that ends); what
    each operation leaves is there at every try.
    """
    work(FEW)  # the first time makes what is kept
    tries = [(left_by(partial(work, FEW)), left_by(partial(work, MANY)))]
    while tries[-1][1] - tries[-1][0] >= CIRCLE * (MANY - FEW):
        assert len(tries) < TRIES, tries
        tries.append((left_by(partial(work, FEW)), left_by(partial(work, MANY))))


@pytest.mark.parametrize("work", [edit, update, save, fork])
def test_a_change_leaves_no_circle(store: Store, work: Callable[..., Any]) -> None:
    check(partial(work, store))


@pytest.mark.parametrize("function", [adding, acting, editing])
def test_a_run_leaves_no_circle_for_each_of_its_calls(
    store: Store, function: Callable[..., Any]
) -> None:
    check(lambda times: store.options(key=next(keys)).run(function, "a", times))


@pytest.mark.parametrize("function", [adding_soon, side_by_side])
def test_an_async_run_leaves_no_circle_for_each_of_its_calls(
    place: Place, function: Callable[..., Any]
) -> None:
    kept = place.open()  # a memory store lives as long as it is open

    async def main(times: int) -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            await store.options(key=next(keys)).run(function, "a", times)

    check(lambda times: asyncio.run(main(times)))
    assert kept.agent("a").seq
