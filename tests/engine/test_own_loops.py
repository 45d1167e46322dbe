"""A plain agent function that runs an event loop of its own, whose tasks call steps and tools."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import perdure
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes

Steps = tuple[Callable[[int], Coroutine[Any, Any, str]], Callable[[str], int]]


@pytest.fixture(autouse=True)
def tidied_up() -> Iterator[None]:
    """What was raised in tasks that nobody awaits is told here, and not in some later test: to
    tell of it Python parses code, which it cannot in the middle of parsing other code."""
    yield
    gc.collect()


@pytest.fixture
def steps(crash: Crashes) -> Steps:
    """Live, page 0 comes when page 1 has been counted; on replay nothing takes any time."""
    counted = False

    @perdure.step
    async def fetch(page: int) -> str:
        while page == 0 and not counted:
            await asyncio.sleep(0.001)
        crash.note(page)
        return f"page {page}"

    @perdure.step
    def count(text: str) -> int:
        nonlocal counted
        counted = True
        crash(text)
        crash.note(text)
        return len(text) + int(text[-1])

    return fetch, count


def test_tasks_that_call_synchronous_steps_go_on_after_a_crash(
    store: Store, crash: Crashes, steps: Steps
) -> None:
    """Outcomes reached the tasks of such a loop in the order in which they asked, not in that of
    the log. A synchronous step cannot wait for its turn there: it was held against another task's,
    and the run stopped."""
    fetch, count = steps

    async def one(page: int) -> int:
        return count(await fetch(page))

    async def all_of_them() -> list[int]:
        return [*await asyncio.gather(one(0), one(1))]

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[int]:
        return asyncio.run(all_of_them())

    crash.arm("page 0")
    with pytest.raises(CrashError):
        store.run(collect, "a")
    assert store.run(collect, "a") == [6, 7]
    assert crash.calls == [1, "page 1", 0, "page 0"]


def test_what_tasks_draw_is_theirs_again(store: Store, crash: Crashes) -> None:
    """Which of two tasks made a call first follows from which heard first of what it had awaited.
    On replay both heard of it at once, and each had what the other one had drawn: in silence, as
    nothing told the two calls apart."""
    pages: list[dict[int, int]] = []
    drawn = iter(range(10))

    @perdure.step
    async def fetch(page: int) -> None:
        while page == 0 and not pages[-1]:
            await asyncio.sleep(0.001)

    @perdure.step
    async def draw() -> int:
        return next(drawn)

    async def one(page: int) -> None:
        await fetch(page)
        pages[-1][page] = await draw()

    async def all_of_them() -> None:
        await asyncio.gather(one(0), one(1))

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> int:
        pages.append({})
        asyncio.run(all_of_them())
        crash("behind it")
        return len(pages)

    crash.arm("behind it")
    with pytest.raises(CrashError):
        store.run(collect, "a")
    assert store.run(collect, "a") == 2
    assert pages == [{1: 0, 0: 1}] * 2


def test_loops_one_after_the_other_and_side_by_side(store: Store, crash: Crashes) -> None:
    """One that had ended, or that ran on another thread, was to hand over what came to this one."""

    @perdure.step
    async def fetch(page: int) -> int:
        await asyncio.sleep(0.001 * (page % 3))
        crash.note(page)
        return page

    async def pages(first: int) -> list[int]:
        return await asyncio.gather(*(fetch(first + number) for number in range(4)))

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[list[int]]:
        found = [asyncio.run(pages(0)), asyncio.run(pages(10))]
        found += run.map(lambda first: asyncio.run(pages(first)), [20, 30, 40], limit=3)
        crash("behind it")
        return found

    crash.arm("behind it")
    with pytest.raises(CrashError):
        store.run(collect, "a")
    whole = [[*range(first, first + 4)] for first in range(0, 50, 10)]
    assert store.run(collect, "a") == whole
    assert len(crash.calls) == 20


@pytest.mark.usefixtures("stalls_soon")
def test_another_order_of_calls_in_one_task_is_no_error(store: Store, crash: Crashes) -> None:
    @perdure.step
    async def fetch(page: int) -> int:
        crash.note(page)
        return page

    async def pages(order: list[int]) -> list[int]:
        found = [await fetch(page) for page in order]
        crash("behind it")
        return sorted(found)

    orders = [[0, 1, 2], [2, 1, 0]]

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[int]:
        return asyncio.run(pages(orders.pop(0)))

    crash.arm("behind it")
    with pytest.raises(CrashError):
        store.run(collect, "a")
    assert store.run(collect, "a") == [0, 1, 2]
    assert crash.calls == [0, 1, 2]


def test_what_ends_the_loop_is_no_cancellation_of_the_function(store: Store) -> None:
    """Ctrl-C, or a SystemExit in one task, and asyncio cancels all others. The tools that these
    were in were recorded as cancelled by the function; when it was gone on with, nothing did so
    again, and the run stopped."""
    ends = ["Ctrl-C", "exit", "exit in a step"]
    paying: list[asyncio.Event] = []

    def end(*names: str) -> None:
        if ends and ends[-1] in names:
            if ends.pop() == "Ctrl-C":
                signal.raise_signal(signal.SIGINT)
            else:
                raise SystemExit("here")

    @perdure.tool(on_crash="retry")
    async def pay(number: int) -> int:
        if number == 1:
            paying[-1].set()
            end("Ctrl-C", "exit in a step")
        await asyncio.sleep(0.02)
        return number

    async def one(number: int) -> int:
        if number == 2:
            await paying[-1].wait()  # else the next end could come to it while this one does
            end("exit")
        return await pay(number)

    async def all_of_them() -> list[int]:
        paying.append(asyncio.Event())
        return [*await asyncio.gather(one(0), one(1), one(2))]

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[int]:
        return asyncio.run(all_of_them())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for left in (SystemExit, SystemExit, KeyboardInterrupt):
            with pytest.raises(left):
                store.run(collect, "a")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not ends
    assert store.run(collect, "a") == [0, 1, 2]


def test_an_interrupt_between_tasks_is_no_cancellation_of_theirs(store: Store) -> None:
    """A signal's handler of the program's own raised KeyboardInterrupt in the event loop itself, of
    which no task hears. asyncio cancelled them all for it, and the tools that were under way were
    recorded as cancelled. On replay nothing cancels them: the run waited for that for ever."""
    interrupts = [True]

    @perdure.tool(on_crash="retry")
    async def pay(number: int) -> int:
        if number == 1 and interrupts:
            interrupts.clear()
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGUSR1)
        if number != 1:  # it comes while this one's outcome is on its way
            await asyncio.sleep(number / 40)
        return number

    async def all_of_them() -> list[int]:
        return [*await asyncio.gather(pay(0), pay(1), pay(2))]

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[int]:
        return asyncio.run(all_of_them())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.run(collect, "a")
    finally:
        signal.signal(signal.SIGUSR1, before)
    records = [one for commit in store.agent("a").log() for one in commit.records]
    assert not [one for one in records if one.get("by") == "cancel"]
    assert store.run(collect, "a") == [0, 1, 2]


@pytest.mark.parametrize("why", ["doubt", "cancel"])
def test_a_group_that_is_told_of_the_interruption_is_no_crash(
    store: Store, crash: Crashes, why: str
) -> None:
    """A call in doubt needed a person, or the run was cancelled, and a TaskGroup put that into a
    group of its own. The function left by that counted as a process that had died: the run's caller
    got the group, and the run went on being one that runs, each time anew."""

    @perdure.tool
    async def pay(number: int) -> int:
        crash("pay")
        if why == "cancel":
            store.handle("a/collect/main").cancel()
        return number

    async def pays() -> list[int]:
        return [await pay(number) for number in range(2)]

    async def in_a_group() -> list[int]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pays())
        return task.result()

    @perdure.agent(dict)
    def collect(run: perdure.Run[Any]) -> list[int]:
        return asyncio.run(in_a_group())

    if why == "doubt":
        crash.arm("pay")
        with pytest.raises(BaseExceptionGroup):
            store.run(collect, "a")
        with pytest.raises(perdure.NeedsAttention, match="nobody knows"):
            store.run(collect, "a")
        handle = store.handle("a/collect/main")
        assert handle.status == "needs_attention"
        handle.settle("pay#1", done=0)
        assert store.run(collect, "a") == [0, 1]
    else:
        with pytest.raises(perdure.RunFailed, match="cancelled"):
            store.run(collect, "a")
        assert store.handle("a/collect/main").status == "cancelled"


OTHER: dict[str, Callable[[perdure.AsyncRun[dict[str, Any]], Any], Coroutine[Any, Any, Any]]] = {
    "step": lambda run, step: step(1),
    "call": lambda run, step: _awaits(run.call(step, 1)),
    "wait": lambda run, step: _awaits(run.wait_for("go", timeout=1)),
    "sleep": lambda run, step: _awaits(run.sleep(1)),
    "edit": lambda run, step: _edits(run),
    "map": lambda run, step: _awaits(run.map(step, [1])),
}


async def _awaits(pending: Any) -> Any:
    return await pending


async def _edits(run: perdure.AsyncRun[dict[str, Any]]) -> None:
    async with run.edit("noted") as draft:
        draft["n"] = 1


@pytest.mark.parametrize("what", OTHER)
@pytest.mark.parametrize("tool", [True, False])
def test_what_an_async_run_awaits_in_another_loop_is_refused(what: str, tool: bool) -> None:
    """Frameworks bridge to async code by a loop on a thread. A tool that was awaited in one had its
    intent recorded, was never called, and its run hung for ever: nothing woke that loop."""
    called: list[int] = []

    async def look(number: int) -> int:
        called.append(number)
        return number

    made = perdure.tool(on_crash="ask")(look) if tool else perdure.step(look)

    @perdure.agent(dict)
    async def bridging(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        other = OTHER[what]
        with pytest.raises(perdure.Conflict, match="another event loop than its run's"):
            await asyncio.to_thread(lambda: asyncio.run(other(run, made)))
        return str(await run.call(made, 2))

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            assert await asyncio.wait_for(store.run(bridging, "a"), 30) == "2"

    asyncio.run(main())
    assert called == [2]
