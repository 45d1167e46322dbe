"""A step or tool raises `CancelledError` by itself, and nobody cancelled the task that it is in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure


@perdure.step
async def fetch(number: int) -> int:
    if number == 1:
        connection = asyncio.get_running_loop().create_future()
        connection.cancel()  # a client does so whose connection is closed
        await connection
    return number


@perdure.tool
def pay(number: int) -> int:
    if number == 1:
        raise asyncio.CancelledError("closed")
    return number


async def _fetches(run: Any) -> Any:
    return await asyncio.gather(*[fetch(n) for n in range(3)], return_exceptions=True)


async def _pays(run: Any) -> Any:
    return await asyncio.gather(*[run.call(pay, n) for n in range(3)], return_exceptions=True)


async def _one(run: Any) -> Any:
    try:
        return [await run.call(fetch, 1)]
    except asyncio.CancelledError as error:
        return [error]


@pytest.mark.parametrize("calls", [_fetches, _pays, _one])
def test_what_a_call_raises_itself_is_its_outcome(calls: Any, tmp_path: Path) -> None:
    """A call awaited what was cancelled inside of it. It was recorded as one whose task was
    cancelled; each replay waited a minute for somebody to do that again, and the run stopped: its
    code had changed."""
    seen = []

    @perdure.agent(dict)
    async def main(run: Any) -> list[str]:
        seen.append([repr(one) for one in await calls(run)])
        await run.wait_for("go")
        return seen[-1]

    async def go() -> Any:
        async with perdure.open_async(tmp_path / "store.db") as store:
            first = asyncio.create_task(store.run(main, "x"))
            handle = await _waiting(store)
            await handle.signal("go", 1)
            return await first

    async def _waiting(store: Any) -> Any:
        while not seen:
            await asyncio.sleep(0.01)
        handle = await store.handle("x/main/main")
        while await handle.status() != "waiting":
            await asyncio.sleep(0.01)
        return handle

    got = asyncio.run(asyncio.wait_for(go(), 30))
    assert len(seen) == 2  # it was unloaded, and gone through again
    assert seen[0] == seen[1] == got
    assert sum("CancelledError" in one for one in got) == 1
