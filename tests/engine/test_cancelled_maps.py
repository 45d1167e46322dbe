"""`run.map` of a plain function in an asynchronous run, cancelled: what each call had come to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import replay

WAYS: dict[str, Callable[[Any, Any, int], Any]] = {
    "a step": lambda run, step, item: step(item),
    "through run.call": lambda run, step, item: run.call(step, item),
    "not recorded": lambda run, step, item: asyncio.sleep(60),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_map_is_cancelled_where_it_was_cancelled(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A plain function, `lambda text: run.call(count, text)`, is called on a thread. On replay the
    cancellation was there before the thread was through, the coroutine that it gave was thrown
    away, and the run stopped: it had recorded a step in there. Live the log said that the function
    had not awaited the map's tasks, which were cancelled with it."""
    begun = [asyncio.Event(), asyncio.Event()]
    at_once = threading.Event()
    at_once.set()

    @perdure.step
    async def long(item: int) -> None:
        begun[item].set()
        await asyncio.sleep(60)

    @perdure.step
    async def until_begun() -> None:
        for event in begun:
            await event.wait()

    def plain(run: Any, item: int) -> Any:
        if not at_once.is_set():
            time.sleep(0.3)  # the machine is busy, this time
        if way == "not recorded":
            begun[item].set()
        return WAYS[way](run, long, item)

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> str:
        async def collect() -> None:
            await run.map(lambda item: plain(run, item), range(2))

        task = asyncio.create_task(collect())
        await until_begun()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return "cancelled"

    async def live() -> str:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return str(await store.run(cancels, "a"))

    assert asyncio.run(live()) == "cancelled"
    assert "without awaiting" not in caplog.text
    at_once.clear()
    with perdure.open(tmp_path / "a.db") as store:
        kinds = [record["t"] for commit in store.agent("a").log() for record in commit.records]
        assert kinds.count("step") == (1 if way == "not recorded" else 3)
        assert replay(store, cancels).check() == "cancelled"


@perdure.step
def read(number: int) -> int:
    time.sleep(0.002)
    return number


MAPPED: dict[str, Callable[[Any], Callable[[int], Any]]] = {
    "a step": lambda run: read,
    "plain, of a step": lambda run: lambda number: read(number),
    "through run.call": lambda run: lambda number: run.call(read, number),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("ends", ["cancelled", "left"])
@pytest.mark.parametrize("mapped", MAPPED)
def test_what_a_maps_threads_came_to_is_an_event_like_others(mapped: str, ends: str) -> None:
    """A task in a map was cancelled, and the function went on. Whether a thread had come to its end
    before was decided anew on replay: one time in eight the run stopped, for good, and one time in
    twenty it waited for what waited for it."""

    @perdure.step
    async def faster() -> None:
        await asyncio.sleep(0.003)

    @perdure.step
    async def goes_on() -> str:
        return "on"

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> str:
        async def collect() -> None:
            await run.map(MAPPED[mapped](run), range(4), limit=2)

        task = asyncio.create_task(collect())
        await faster()
        if ends == "left":
            return "left"
        task.cancel()
        await asyncio.wait([task])
        return await goes_on()

    async def often() -> None:
        for _ in range(6):
            async with perdure.open_async("memory://") as store:
                said = await store.run(cancels, "a")
                for _ in range(2):
                    again = await asyncio.to_thread(lambda: replay(store._store, cancels))
                    assert again.check() == said

    asyncio.run(often())
