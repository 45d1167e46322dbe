"""What interrupts a run comes up in one of its tasks, and its function awaits something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.engine.execution import run_tasks
from perdure.testing import kill_at_every_boundary
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import until
from tests.engine.working import working

Produce = Callable[[int], Coroutine[Any, Any, Any]]


async def _queue(produce: Produce) -> Any:
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def producer() -> None:
        for number in range(3):
            await queue.put(await produce(number))

    task = asyncio.create_task(producer())
    got = [await queue.get() for _ in range(3)]
    await task
    return got


async def _event(produce: Produce) -> Any:
    event, got = asyncio.Event(), []

    async def setter() -> None:
        got.extend([await produce(number) for number in range(3)])
        event.set()

    task = asyncio.create_task(setter())
    await event.wait()
    await task
    return got


async def _nobody_looks(produce: Produce) -> Any:
    """It sees that a task ended, does not look how, and waits for what that was to do."""
    future = asyncio.get_running_loop().create_future()

    async def setter() -> None:
        future.set_result([await produce(number) for number in range(3)])

    await asyncio.wait([asyncio.create_task(setter())])
    return await future


async def _consumer(produce: Produce) -> Any:
    """The function waits for all of its tasks, of which one waits for the other."""
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def producer() -> None:
        for number in range(3):
            await queue.put(await produce(number))

    async def consumer() -> list[Any]:
        return [await queue.get() for _ in range(3)]

    ended = [asyncio.create_task(one) for one in (producer(), consumer())]
    await asyncio.wait(ended)
    return ended[1].result()


SHAPES = [_queue, _event, _nobody_looks, _consumer]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_doubt_in_a_task_leaves_a_function_that_awaits_something_else(
    runs: Async, crash: Crashes, shape: Any
) -> None:
    """A tool's call in a producer's task was in doubt, and the function awaited its queue. Only who
    awaits the task heard of the doubt: the run stayed "running", and nobody was asked to settle."""

    @perdure.tool
    async def pay(number: int) -> int:
        crash(f"in {number}")
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        return await shape(pay)

    crash.arm("in 1")
    runs.crash(act)  # the exception that ends the process leaves the function, too
    with pytest.raises(perdure.NeedsAttention, match="pay"):
        runs.run(act)
    assert runs.info().status == "needs_attention"
    handle = runs.store.handle("a/act/main")
    (doubted,) = [effect.place for effect in handle.effects() if effect.state == "in doubt"]
    handle.settle(doubted, done=1)
    assert runs.run(act) == [0, 1, 2]


@pytest.mark.parametrize("shape", SHAPES)
def test_code_that_changed_in_a_task_leaves_a_function_that_awaits_something_else(
    runs: Async, crash: Crashes, fetch: Any, shape: Any
) -> None:
    words = ["zero", "one", "two"]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        got = await shape(lambda number: fetch(words[number]))
        crash("after")
        return got

    crash.arm("after")
    runs.crash(act)
    words[2] = "another"
    with pytest.raises(perdure.NeedsAttention, match="another"):
        runs.run(act)
    words[2] = "two"
    assert runs.run(act) == ["ZERO", "ONE", "TWO"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_worker_drains_a_run_whose_function_awaits_something_else(
    place: Place, shape: Any
) -> None:
    """Told to end, a worker waited for a run whose task had left, and whose function waited for
    the task. A rolling restart had to kill it."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        return await shape(lambda number: run.wait_for(f"{number}"))

    store = place.open()
    handle = store.start(act, "a")
    with working(store, act):  # which it ends here, and waits for
        until(lambda: "'0'" in str(handle.why().why), "the wait")
    assert handle.status in ("running", "waiting")
    for number in range(3):
        handle.signal(f"{number}", number)
    with working(store, act):
        assert handle.result(timeout=30) == [0, 1, 2]


async def _gathered(run: Any, pay: Any, fetch: Any) -> None:
    await asyncio.gather(pay(), _steps(fetch))


async def _grouped(run: Any, pay: Any, fetch: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(pay())
        group.create_task(_steps(fetch))


async def _edits(run: Any, pay: Any, fetch: Any) -> None:
    async def edits() -> None:
        for number in range(1000):
            async with run.edit("count") as draft:
                draft["n"] = number

    await asyncio.gather(pay(), edits())


async def _waits(run: Any, pay: Any, fetch: Any) -> None:
    await asyncio.gather(pay(), run.wait_for("never"))


async def _steps(fetch: Any) -> None:
    for _ in range(1000):
        await fetch("one")


@pytest.mark.parametrize("shape", [_gathered, _grouped, _edits, _waits])
def test_a_worker_that_ends_lets_a_tool_beside_others_come_to_its_end(
    place: Place, fetch: Any, shape: Any
) -> None:
    """A tool that was under way was cancelled, when a sibling came to its next step and left the
    run for the worker's end: each deploy left it in doubt, for a person to settle."""
    began = threading.Event()

    @perdure.tool
    async def pay() -> str:
        began.set()
        await asyncio.sleep(0.3)
        return "paid"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        await shape(run, pay, fetch)

    store = place.open()
    handle = store.start(act, "a")
    with working(store, act):
        until(began.is_set, "the tool")
    assert handle.status == "running"
    assert [effect.state for effect in handle.effects()] == ["done"]


def test_what_is_under_way_ends_before_the_function_is_cancelled(runs: Async) -> None:
    """Cancelled in the middle, a second tool would be in doubt, too."""

    @perdure.tool(timeout=0.05)
    async def slow(who: str) -> None:
        await asyncio.sleep(60)

    @perdure.tool
    async def pay(who: str) -> str:
        await asyncio.sleep(0.5)
        return who

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        both = [asyncio.create_task(slow("first")), asyncio.create_task(pay("second"))]
        await asyncio.Event().wait()
        await asyncio.gather(*both)

    with pytest.raises(perdure.NeedsAttention, match="it took too long"):
        runs.run(act)
    effects = runs.store.handle("a/act/main").effects()
    assert [effect.state for effect in effects] == ["in doubt", "done"]


def test_a_function_that_was_told_cleans_up_in_peace(
    runs: Async, crash: Crashes, fetch: Any
) -> None:
    """A client that is closed in a `finally` takes some time for it, and is not to be cancelled."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        try:
            return await asyncio.gather(fetch("one"), fetch(what), return_exceptions=False)
        finally:
            await asyncio.sleep(0.3)
            crash.note("closed")
            crash("after")

    what = "two"
    crash.arm("after")
    runs.crash(act)
    what = "another"
    crash.calls.clear()
    with pytest.raises(perdure.NeedsAttention):
        runs.run(act)
    assert crash.calls == ["closed"]


@pytest.mark.parametrize("where", ["function", "task"])
def test_one_that_catches_its_cancellation_is_cancelled_again(
    runs: Async, crash: Crashes, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It was cancelled once, and went on to await something else, for ever."""
    monkeypatch.setattr(run_tasks, "LEAVE_S", 0.1)

    async def stubborn() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        async def fails() -> None:
            raise CrashError

        both = [asyncio.create_task(fails())]
        if where == "task":
            both.append(asyncio.create_task(stubborn()))
            await asyncio.Event().wait()
        await stubborn()
        await asyncio.Event().wait()

    runs.crash(act)


def test_it_may_be_killed_at_every_boundary() -> None:
    @perdure.tool(on_crash="retry")
    async def pay(number: int) -> int:
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        return await _queue(pay)

    assert len(kill_at_every_boundary(act)) > 3
