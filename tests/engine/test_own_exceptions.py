"""A task ends with a `BaseException` of somebody's own, which is no outcome and no end of the
program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import perdure
from tests.engine.conftest import Async

AT_ONCE_S = 5.0
LONG_S = 3 * AT_ONCE_S

Calls = list[Callable[[], Awaitable[Any]]]


class Stop(BaseException):
    """As frameworks have it, whose `except Exception` must not catch it."""


@pytest.fixture
def ends() -> list[BaseException]:
    return [Stop("here")]


async def mapped(run: Any, calls: Calls) -> Any:
    return await run.map(lambda call: call(), calls)


async def gathered(run: Any, calls: Calls) -> Any:
    return await asyncio.gather(*(call() for call in calls), return_exceptions=True)


async def waited_for(run: Any, calls: Calls) -> Any:
    tasks = [asyncio.ensure_future(call()) for call in calls]
    await asyncio.wait(tasks)
    return [await task for task in tasks]


async def queued(run: Any, calls: Calls) -> Any:
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def put(call: Any) -> None:
        queue.put_nowait(await call())

    tasks = [asyncio.create_task(put(call)) for call in calls]
    found = [await queue.get() for _ in calls]
    await asyncio.gather(*tasks)
    return found


@pytest.mark.parametrize("shape", [mapped, gathered, waited_for, queued])
@pytest.mark.parametrize("first", [True, False])
def test_it_ends_the_run_at_once(
    runs: Async, ends: list[BaseException], shape: Any, first: bool
) -> None:
    """The other calls were waited for, twenty seconds long, by a function that nobody had told.
    `sys.exit()` in the same place had ended it at once."""

    @perdure.step
    async def slow() -> str:
        await asyncio.sleep(LONG_S if ends else 0)
        return "slow"

    @perdure.step
    async def begin() -> str:
        return "begun"

    async def left() -> str:
        await begin()
        if ends:
            raise ends[0]
        return "left"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        return await shape(run, [left, slow] if first else [slow, left])

    since = time.monotonic()
    with pytest.raises(Stop, match="here"):
        runs.run(act)
    assert time.monotonic() - since < AT_ONCE_S
    ends.clear()
    assert sorted(runs.run(act)) == ["left", "slow"]


def test_it_counts_whatever_other_items_raised(runs: Async, ends: list[BaseException]) -> None:
    """An item before it had failed: the run's caller heard that the function had gone on."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def one(number: int) -> int:
            if number == 0:
                raise ValueError("no such thing")
            if ends:
                raise ends.pop()
            return number

        return await run.map(one, range(2))

    with pytest.raises(Stop, match="here"):
        runs.run(act)
    with pytest.raises(ValueError, match="no such thing"):
        runs.run(act)


def test_who_cleans_up_behind_it_has_the_time_for_that(
    runs: Async, ends: list[BaseException]
) -> None:
    cleaned_up: list[str] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        async def left() -> None:
            raise ends[0]

        try:
            await asyncio.create_task(left())
        finally:
            await asyncio.sleep(0.3)
            cleaned_up.append("it")

    with pytest.raises(Stop, match="here"):
        runs.run(act)
    assert cleaned_up == ["it"]
