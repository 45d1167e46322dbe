"""Tasks that still work when their function returns are cancelled by that, in the order in which
they were made, and hear of it as of anything else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.testing import kill_at_every_boundary, replay

PAGES = 3


@perdure.step
async def read(page: int) -> int:
    for _ in range(page + 1):  # they are at different points when the function returns
        await asyncio.sleep(0)
    return page


@perdure.step
async def look_for_ever(page: int) -> int:
    await asyncio.Event().wait()
    return page


@perdure.step
async def note(text: str) -> str:
    return text


async def reads(page: int, left: list[int]) -> None:
    try:
        while True:
            await read(page)
    finally:
        left.append(page)
        await note(f"left {page}, as number {len(left)}")


async def reads_and_looks(page: int, left: list[int]) -> None:
    """One of two is at a call that has not ended, the other's outcome is being committed."""
    try:
        while True:
            await (look_for_ever(page) if page % 2 else read(page))
    finally:
        left.append(page)
        await note(f"left {page}, as number {len(left)}")
        await note(f"after {left}")


async def reads_on(page: int, left: list[int]) -> None:
    """It takes two to end it."""
    try:
        await reads(page, left)
    except asyncio.CancelledError:
        await note(f"{page} was cancelled behind {left}")
        raise


READERS = [reads, reads_and_looks, reads_on]


@perdure.agent(dict)
async def returns(run: perdure.AsyncRun[dict], reader: int) -> list[int]:
    left: list[int] = []
    readers = [asyncio.create_task(READERS[reader](page, left)) for page in range(PAGES)]
    for number in range(3):
        await note(f"n{number}")
    assert len(readers) == PAGES
    return left


async def fails_soon() -> None:
    for number in range(3):
        await note(f"n{number}")
    raise ValueError("enough")


@perdure.agent(dict)
async def fails(run: perdure.AsyncRun[dict], reader: int) -> list[int]:
    left: list[int] = []
    readers = (READERS[reader](page, left) for page in range(PAGES))
    with suppress(ValueError):
        await asyncio.gather(fails_soon(), *readers)  # which go on, and are cancelled at the end
    return left


@pytest.mark.parametrize("reader", range(len(READERS)))
@pytest.mark.parametrize("function", [returns, fails])
def test_tasks_left_at_the_end_hear_of_it_in_the_same_order_on_replay(
    function: Any, reader: int
) -> None:
    """One whose outcome was being committed heard of its being cancelled behind the commit, and on
    replay before all others: what each said in its cleaning up was something else then, a third of
    finished runs did not replay, and one that was killed meanwhile needed attention for good."""

    async def replays() -> None:
        async with perdure.open_async("memory://") as store:
            await store.run(function, "a", reader)
            (await asyncio.to_thread(replay, store._store, function)).check()

    for _ in range(3):
        asyncio.run(replays())
    kill_at_every_boundary(function, reader, same=lambda ending: sorted(ending.result))


@perdure.step
async def is_cancelled_inside() -> None:
    """Something that it awaits was cancelled: an outcome of its own."""
    raise asyncio.CancelledError


@perdure.agent(dict)
async def tidies_up(run: perdure.AsyncRun[dict]) -> str:
    async def pages() -> None:
        try:
            await look_for_ever(1)
        finally:
            with suppress(asyncio.CancelledError):
                await is_cancelled_inside()

    task = asyncio.create_task(pages())
    await note("look")
    task.cancel()
    await asyncio.wait([task])
    return await note("end")


@perdure.agent(dict)
async def calls_back(run: perdure.AsyncRun[dict], cancelled: bool) -> str:
    made: list[asyncio.Task[Any]] = []

    async def begin() -> None:
        reading = asyncio.create_task(read_it())
        reading.add_done_callback(lambda _: made.append(asyncio.create_task(tell_it())))
        made.append(reading)
        if cancelled:
            await asyncio.Event().wait()

    async def read_it() -> None:
        await read(3)

    async def tell_it() -> None:
        await note("told")

    begun = asyncio.create_task(begin())
    await note("look")
    begun.cancel()
    await asyncio.wait([begun])
    while any(not task.done() for task in made):
        await asyncio.wait(made)
        await asyncio.sleep(0)
    return "end"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_callback_may_make_a_task_of_one_that_has_ended(cancelled: bool) -> None:
    """It has the context of the task that set it. Once that had ended, what was recorded of the
    task to come was said to be left out, and the run needed attention after any crash."""
    kill_at_every_boundary(calls_back, cancelled)


def test_a_task_that_was_cancelled_hears_of_a_call_that_cancelled_itself() -> None:
    """In its cleaning up a step raised `CancelledError`: that was taken for the task's being
    cancelled once more, which a replay then waited for without end."""
    kill_at_every_boundary(tidies_up)
