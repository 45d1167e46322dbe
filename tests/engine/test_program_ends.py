"""The program is to end, from within a task of a run: `sys.exit()`, Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure

ends: list[BaseException] = []
"""Raised by the first that comes to where that is done."""


@perdure.step
async def step(number: int) -> int:
    await asyncio.sleep(0.001 * number)
    if number == 1 and ends:
        raise ends.pop()
    return number


@perdure.step
def blocking(number: int) -> int:
    if number == 1 and ends:
        raise ends.pop()
    return number


async def plain(number: int) -> int:
    await asyncio.sleep(0.001 * number)
    if number == 1 and ends:
        raise ends.pop()
    return await step(number)


async def in_thread(run: Any, number: int) -> int:
    found: int = await run.call(blocking, number)
    return found


async def group(call: Callable[[int], Any]) -> list[int]:
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(call(number)) for number in range(3)]
    return [one.result() for one in found]


async def groups(call: Callable[[int], Any]) -> list[int]:
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(group(call)) for _ in range(2)]
    return [*found[0].result()]


async def gathered_groups(call: Callable[[int], Any]) -> list[int]:
    return (await asyncio.gather(group(call), group(call)))[0]


async def awaited_task(call: Callable[[int], Any]) -> list[int]:
    async def deeper() -> list[int]:
        return await asyncio.create_task(group(call))

    return await asyncio.wait_for(asyncio.shield(asyncio.create_task(deeper())), 10)


async def returned(call: Callable[[int], Any]) -> list[int]:
    found = await asyncio.gather(*(group(call) for _ in range(2)), return_exceptions=True)
    assert not isinstance(found[0], BaseException)
    return found[0]


async def swallowed(call: Callable[[int], Any]) -> list[int]:
    task = asyncio.create_task(group(call))
    try:
        return await task
    except BaseException:
        return await asyncio.create_task(group(call))


async def queued(call: Callable[[int], Any]) -> list[int]:
    queue: asyncio.Queue[list[int]] = asyncio.Queue()

    async def put() -> None:
        queue.put_nowait(await group(call))

    task = asyncio.create_task(put())
    found = await queue.get()  # nobody awaits the task
    await task
    return found


CASES = [
    *(("step", shape, SystemExit) for shape in (groups, awaited_task, returned, swallowed, queued)),
    *((where, gathered_groups, SystemExit) for where in ("step", "plain", "in thread")),
    ("plain", returned, SystemExit), ("step", groups, KeyboardInterrupt),
]  # fmt: skip


@pytest.mark.parametrize(("where", "shape", "end"), CASES)
def test_a_program_that_ends_in_a_task_leaves_its_store(
    where: str, shape: Any, end: type[BaseException], tmp_path: Path
) -> None:
    """Raised in a task, SystemExit ends the event loop at once; a group in another task raised it
    again while the loop's tasks were being ended, and so ended that. The store stayed open, and the
    run was held: whoever asked for it again waited for ever."""
    left: list[str] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[Any]) -> list[int]:
        async def here(number: int) -> int:
            return await in_thread(run, number)

        calls: dict[str, Any] = {"step": step, "plain": plain, "in thread": here}
        found: list[int] = await shape(calls[where])
        return found

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            try:
                return await store.run(act, "a")
            finally:
                left.append("run")

    ends[:] = [end("here")]
    with pytest.raises(end, match="here"):
        asyncio.run(live())
    assert left == ["run"] and not ends
    assert asyncio.run(live()) == [0, 1, 2]


def test_a_task_that_is_cancelled_before_it_begins_is_no_news(tmp_path: Path) -> None:
    """asyncio tells of coroutines that nobody awaited: tests treat that as an error."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[Any]) -> int:
        task = asyncio.create_task(step(5))
        assert "step" in repr(task.get_coro())
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        gc.collect()
        return await step(2)

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    assert asyncio.run(live()) == 2
