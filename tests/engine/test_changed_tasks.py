"""A task whose code changed under the run stops it, also where the function deals with errors."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention, PerdureError, UnknownZone
from tests.engine.conftest import CrashError, Crashes, Place

PAID: list[int] = []
bug: list[BaseException] = []
dying: list[int] = []
submitted = threading.Event()
"""All threads are asked for: who dies does so when nobody but the function can hear of it."""


@pytest.fixture(autouse=True)
def _anew() -> None:
    PAID.clear()
    bug.clear()
    dying.clear()
    submitted.clear()


@perdure.tool(on_crash="ask")
async def pay(n: int) -> str:
    PAID.append(n)
    if n in dying:
        raise CrashError
    return f"paid {n}"


@perdure.tool(on_crash="ask")
def pay_here(n: int) -> str:
    PAID.append(n)
    if n in dying:
        assert submitted.wait(60)
        raise CrashError
    return f"paid {n}"


async def one(n: int) -> str:
    if bug and n == 1:
        raise bug[0]
    return await pay(n)


def one_here(n: int) -> str:
    if bug and n == 1:
        raise bug[0]
    return pay_here(n)


async def gathered() -> list[Any]:
    return list(await asyncio.gather(*map(one, range(3)), return_exceptions=True))


async def waited() -> list[Any]:
    tasks = [asyncio.ensure_future(one(n)) for n in range(3)]
    await asyncio.wait(tasks)
    return [task.exception() or task.result() for task in tasks]


async def grouped() -> list[Any]:
    found: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(n)) for n in range(3)]
        found += [task.result() for task in tasks]
    except* NameError as several:
        found += several.exceptions
    return found


def mapped_here(run: perdure.Run[dict]) -> list[Any]:
    with run.executor() as threads:
        futures = [threads.submit(one_here, n) for n in range(3)]
        submitted.set()
    return [future.exception() or future.result() for future in futures]


def agent_of(way: Any, crash: Crashes) -> Any:
    @perdure.agent(dict, name="f")
    async def f(run: perdure.AsyncRun[dict]) -> list[str]:
        found = await way()
        crash("paid")
        return [str(one) for one in found]

    @perdure.agent(dict, name="f")
    def f_here(run: perdure.Run[dict]) -> list[str]:
        found = way(run)
        crash("paid")
        return [str(one) for one in found]

    return f_here if way is mapped_here else f


def way_is_async(function: Any) -> bool:
    return asyncio.iscoroutinefunction(function)


def run(place: Place, function: Any) -> Any:
    async def go() -> Any:
        async with perdure.open_async(place.url) as store:
            return await store.run(function, "a")

    store = place.open()  # a store in memory lasts
    return asyncio.run(go()) if way_is_async(function) else store.run(function, "a")


@pytest.mark.parametrize("way", [gathered, waited, grouped, mapped_here])
def test_i8_a_task_that_fails_before_what_it_had_recorded_stops_the_run(
    place: Place, crash: Crashes, way: Any
) -> None:
    """A bad deploy: a task of three raised a NameError before its recorded payment. The function
    dealt with that, and the run ended as done: with a payment less than had been made."""
    function = agent_of(way, crash)
    crash.arm("paid")
    with pytest.raises(CrashError):
        run(place, function)
    bug.append(NameError("a bad deploy"))
    with pytest.raises(NeedsAttention, match=r"one.*#2 raised NameError: a bad deploy, where it"):
        run(place, function)
    bug.clear()
    assert run(place, function) == ["paid 0", "paid 1", "paid 2"]
    assert sorted(PAID) == [0, 1, 2]


@pytest.mark.parametrize("way", [gathered, mapped_here])
def test_i5_what_is_in_doubt_in_a_task_that_fails_before_it_is_not_dropped(
    place: Place, crash: Crashes, way: Any
) -> None:
    """The run was done, and nobody asked what became of the payment."""
    function = agent_of(way, crash)
    dying.append(1)
    with pytest.raises(CrashError if way is gathered else PerdureError) as left:
        run(place, function)
    assert way is gathered or "CrashError left a tool without an outcome" in str(left.value)
    dying.clear()
    bug.append(NameError("a bad deploy"))
    with pytest.raises(NeedsAttention, match=r"one.*#2 raised NameError"):
        run(place, function)
    bug.clear()
    with pytest.raises(NeedsAttention, match=r"in doubt|settle"):
        run(place, function)


@pytest.mark.parametrize(
    "error", [NeedsAttention("the bank is closed"), UnknownZone("knows no zone 'Mars/Tharsis'")]
)
def test_a_task_that_says_what_it_needs_is_not_said_to_have_changed(
    place: Place, crash: Crashes, error: Any
) -> None:
    function = agent_of(gathered, crash)
    crash.arm("paid")
    with pytest.raises(CrashError):
        run(place, function)
    bug.append(error)
    with pytest.raises(NeedsAttention, match=re.escape(error.problem)) as stopped:
        run(place, function)
    assert "code changed" not in str(stopped.value)
    bug.clear()
    assert run(place, function) == ["paid 0", "paid 1", "paid 2"]
