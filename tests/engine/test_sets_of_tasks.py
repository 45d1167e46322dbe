"""A `TaskGroup` of which one task failed cancelled the others in the order of a set, and that is
one of addresses: the function that noted who gave up noted another order on replay, and the run
needed attention. `asyncio.wait` gives sets, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.execution.run_tasks import Task
from perdure.testing import replay
from tests.faults.injecting import count

MANY = 12
"""By their addresses, as many come in this very order once in 500 million times."""


@perdure.step
async def fail() -> None:
    raise ValueError("no")


@perdure.step
async def report(what: list[int]) -> list[int]:
    return what


async def in_a_group(nap: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in range(MANY):
                group.create_task(nap(number))
            group.create_task(fail())


async def by_those_that_are_late(nap: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(nap(number)) for number in range(MANY)]
    _, late = await asyncio.wait(tasks, timeout=0.001)
    for task in late:
        task.cancel()
    await asyncio.wait(late)


@pytest.mark.parametrize("way", [in_a_group, by_those_that_are_late])
def test_tasks_of_a_run_are_cancelled_in_the_order_in_which_they_were_made(
    tmp_path: Path, way: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    @perdure.agent(dict)
    async def watch(run: perdure.AsyncRun[dict]) -> list[int]:
        gave_up: list[int] = []

        async def nap(number: int) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                gave_up.append(number)
                raise

        await way(nap)
        return await report(gave_up)

    assert _gone_over_again(watch, tmp_path) == [*range(MANY)]


def test_those_that_are_done_come_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    @perdure.agent(dict)
    async def gather(run: perdure.AsyncRun[dict]) -> list[int]:
        async def think(number: int) -> int:
            return number

        tasks = {asyncio.create_task(think(number)) for number in range(MANY)}
        done, _ = await asyncio.wait(tasks)
        return await report([task.result() for task in done])

    assert _gone_over_again(gather, tmp_path) == [*range(MANY)]


def test_the_tasks_of_many_runs_are_found_as_fast_as_those_of_one() -> None:
    """asyncio has all tasks in one set. Were those of each run numbered from 1, a thousand runs of
    a worker would have a thousand first tasks in the same place of it."""

    @perdure.agent(dict)
    async def numbers(run: perdure.AsyncRun[dict]) -> list[int]:
        async def think() -> int:
            return hash(asyncio.current_task())

        return [await asyncio.create_task(think()) for _ in range(3)]

    async def live() -> list[list[int]]:
        async with perdure.open_async("memory://") as store:
            return [await store.run(numbers, f"a{n}") for n in range(20)]

    of_each = asyncio.run(live())
    assert len({number for run in of_each for number in run}) == 60
    assert all(b - a == 1 for run in of_each for a, b in pairwise(run))


def _gone_over_again(function: Any, folder: Path) -> Any:
    async def live() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            return await store.run(function, "a")

    result = asyncio.run(live())
    with perdure.open(folder / "a.db") as store:
        assert replay(store, function).check() == result
    return result


def test_nothing_can_be_interrupted_where_a_set_asks_for_a_task() -> None:
    """Where a group drops a task that has ended, asyncio asks for its hash. That was a function of
    Python, and an exception came in it: the group waited for ever for the task that it had not
    dropped, and with it the run, and the end of its event loop."""

    async def looked_at() -> int:
        task = Task(asyncio.sleep(0), 4711, loop=asyncio.get_running_loop())
        found = count(lambda: task in {task})
        assert hash(task) == 4711
        await task
        return found

    assert asyncio.run(looked_at()) == 0
