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
