"""What a task that was cancelled had come to, and when, is the same where the run is gone over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.engine.execution.event_pacing import Pace, PacedEvent
from perdure.testing import kill_at_every_boundary, replay


@perdure.step
async def note(order: list[str]) -> list[str]:
    return order


async def _again(store: Any, function: Callable[..., Any]) -> Any:
    return (await asyncio.to_thread(replay, store._store, function)).check()


@perdure.step
async def finishes(begun: perdure.Ephemeral[asyncio.Event]) -> str:
    """As code that must not be broken off in the middle."""
    begun.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "finished"
    return "in time"


@perdure.tool(on_crash="fail")
async def fails(begun: perdure.Ephemeral[asyncio.Event]) -> str:
    begun.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ValueError("half of it") from None
    return "in time"


@pytest.mark.parametrize("call", [finishes, fails])
def test_a_call_that_catches_its_cancellation_is_heard_of(call: Any) -> None:
    """It returned, or raised another error, and its task went on with that. On replay the task was
    cancelled instead, as the cancellation came to it before the outcome: the run stopped, its code
    had changed."""

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> list[str]:
        begun, heard = asyncio.Event(), list[str]()

        async def calls() -> None:
            try:
                heard.append(await call(begun))
            except ValueError as error:
                heard.append(str(error))
            await note([*heard, "went on"])

        @perdure.step
        async def until_begun() -> None:
            await begun.wait()

        task = asyncio.create_task(calls())
        await until_begun()
        task.cancel()
        await asyncio.wait([task])
        return await note([*heard, str(task.cancelled())])

    async def live() -> None:
        async with perdure.open_async("memory://") as store:
            said = await store.run(cancels, "a")
            assert said[1:] == ["False"]
            assert await _again(store, cancels) == said

    asyncio.run(live())


def test_a_cancelled_thread_of_a_map_comes_to_its_end_when_it_did() -> None:
    """A plain function went on behind its step, on its thread, as its task was cancelled. When that
    thread was through was no event: on replay it was so at once, and the function heard of the
    map's end before it heard of what had been before that."""
    in_step, goes_on = asyncio.Event(), threading.Event()

    @perdure.step
    def read(number: int) -> int:
        return number

    @perdure.step
    async def until_read() -> None:
        await in_step.wait()

    @perdure.step
    async def lets_go_on() -> None:
        goes_on.set()

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> list[str]:
        heard: list[str] = []
        loop = asyncio.get_running_loop()

        def plain(number: int) -> int:
            found = read(number)
            loop.call_soon_threadsafe(in_step.set)
            goes_on.wait()
            return found

        async def maps() -> None:
            with suppress(asyncio.CancelledError):
                await run.map(plain, [1])
            heard.append("the map")

        task = asyncio.create_task(maps())
        await until_read()
        async with run.edit("takes a while, each time"):
            await asyncio.sleep(0.2)
        task.cancel()
        heard.append((await note(["another call"]))[0])
        await lets_go_on()
        await asyncio.wait([task])
        return await note(heard)

    async def live() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(cancels, "a") == ["another call", "the map"]
            assert await _again(store, cancels) == ["another call", "the map"]

    asyncio.run(live())


def test_what_a_thread_hears_of_is_behind_what_came_before_it() -> None:
    """Two outcomes were in one commit, and the thread of the second went on first. A timer was
    then recorded behind the first: on replay each waited for the other one."""
    pace = Pace(lambda: False)
    first = PacedEvent("a/", "a/read#1")
    pace.passes("read#1")
    assert pace.handed == "read#1"
    pace.comes(first)
    pace.passes("b/read#1")
    assert pace.handed == "read#1"
    pace.drop(first)
    assert pace.is_idle()
    assert pace.handed == "b/read#1"


def test_what_was_drawn_for_an_edit_that_is_cancelled_ahead_of_its_block() -> None:
    """What its block drew was recorded with the commit of another task's step, behind which it was
    cancelled, and the process ended. Asked for again, the edit waited for its turn, and was
    cancelled there: the run stopped, as its task had drawn something that it did not draw now."""

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> str:
        drawn = asyncio.Event()

        async def edits() -> None:
            with suppress(asyncio.CancelledError):
                async with run.edit("drawn") as draft:
                    draft["drawn"] = str(run.uuid())
                    drawn.set()
                    await asyncio.sleep(60)

        @perdure.step
        async def until_drawn() -> None:
            await drawn.wait()

        @perdure.step
        async def last() -> str:
            return "last"

        task = asyncio.create_task(edits())
        await until_drawn()
        task.cancel()
        await asyncio.wait([task])
        return await last()

    async def live() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(cancels, "a") == "last"
            handle = await store.handle("a/cancels/main")
            for _ in range(2):
                await handle.retry("last#1", effects="live")  # as if it had ended before that
                assert await store.run(cancels, "a") == "last"
                assert await _again(store, cancels) == "last"

    asyncio.run(live())


CLEANS_UP: dict[str, Callable[[Any], Any]] = {
    "step": lambda run: note(["cleaned up"]),
    "draws": lambda run: asyncio.sleep(0, run.uuid()),
    "edit": lambda run: _edit(run),
}


async def _edit(run: Any) -> None:
    async with run.edit("cleaned up"):
        pass


@pytest.mark.parametrize("cleans_up", CLEANS_UP)
def test_what_is_come_to_as_the_function_has_ended_is_behind_nothing(cleans_up: str) -> None:
    """The function let a task go on, and returned. That came to a step, was cancelled there, as all
    that is left behind is, and cleaned up by another one. Only this was recorded: on replay the
    task came to the first one where it had recorded the second, and the run stopped."""

    @perdure.agent(dict)
    async def leaves(run: perdure.AsyncRun[dict]) -> str:
        goes_on = asyncio.Event()

        async def left() -> None:
            await goes_on.wait()
            try:
                await note(["left"])
            finally:
                await CLEANS_UP[cleans_up](run)

        task = asyncio.create_task(left())
        await note(["leaves"])
        goes_on.set()
        return "ended" if not task.done() else "too late"

    async def live() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(leaves, "a") == "ended"
            assert await _again(store, leaves) == "ended"

    asyncio.run(live())
    assert {end.result for end in kill_at_every_boundary(leaves)} == {"ended"}


@pytest.mark.parametrize("way", ["step", "tool", "edit between"])
def test_a_task_that_cancelled_itself_before_a_call_hears_of_it_in_the_call(way: str) -> None:
    """The step caught that, and the task went on. On replay the recorded outcome was there at once,
    nothing took the cancellation, and it struck at the task's next `await`: the run stopped."""

    @perdure.agent(dict)
    async def cancels(run: perdure.AsyncRun[dict]) -> list[str]:
        heard: list[str] = []

        async def calls() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                heard.append(await (fails if way == "tool" else finishes)(asyncio.Event()))
            except ValueError as error:
                heard.append(str(error))
            if way == "edit between":
                async with run.edit() as draft:
                    draft["heard"] = [*heard]
            await asyncio.sleep(0.001)
            await note([*heard, "went on"])

        [end] = await asyncio.gather(calls(), return_exceptions=True)
        return [*heard, type(end).__name__]

    async def live() -> Any:
        async with perdure.open_async("memory://") as store:
            result = await store.run(cancels, "a")
            assert await _again(store, cancels) == result
            return result

    # A tool's is heard of where it is recorded that it is to be made: so the tool never is.
    expected = ["CancelledError"] if way == "tool" else ["finished", "NoneType"]
    assert asyncio.run(live()) == expected
