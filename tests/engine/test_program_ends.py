"""The program is to end, from within a task of a run: `sys.exit()`, Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
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
    ("plain", returned, SystemExit),
    ("step", groups, KeyboardInterrupt),
]


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


BROKEN_OFF = """
import asyncio, sys
from datetime import timedelta
import perdure

ends = [SystemExit("here")]

@perdure.step
async def many(name: str) -> str:
    # Its own tasks raise it again and again, each in a group of another one.
    async def inner(left: int) -> None:
        if left == 0 and ends:
            raise ends.pop()
        if left > 0:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(inner(left - 1))

    await asyncio.create_task(inner(3))
    return name

@perdure.agent(dict)
async def act(run):
    return await many("done")

async def live():
    ttl = timedelta(seconds=0.3)
    async with perdure.open_async(sys.argv[1], durability="os", lease_ttl=ttl) as store:
        return await store.run(act, "a")

try:
    asyncio.run(live())
except SystemExit as error:
    print("left by", error)
print(asyncio.run(live()))
"""


def test_what_a_loop_left_that_was_broken_off_is_given_back(tmp_path: Path) -> None:
    """An event loop that is broken off leaves its tasks as they are: nobody gave back the lease of
    a run, or closed the store, whose heartbeat went on. The run waited for the end of this
    process."""
    said = subprocess.run(  # what the loop left complains, whenever it is thrown away
        [sys.executable, "-c", BROKEN_OFF, tmp_path / "a.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.stdout.splitlines() == ["left by here", "done"], said.stderr
