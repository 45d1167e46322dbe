"""Tasks of a run that wait: when it is unloaded, and when it is not; and who is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine.execution import loops
from tests.engine.conftest import Async, Crashes, Place

# -- waiting ---------------------------------------------------------------------------------------


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def _going_to_wait(place: Place, function: Any, while_waiting: Callable[[Any], Any]) -> Any:
    async with perdure.open_async(place.url, durability="os") as store:
        task = asyncio.create_task(store.run(function, "a"))
        await while_waiting(store)
        return await asyncio.wait_for(task, 60)


def test_a_run_whose_tasks_all_wait_is_unloaded(place: Place) -> None:
    kept = place.open()
    calls: list[str] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        calls.append("called")

        async def nested(name: str) -> str:
            (value,) = await asyncio.gather(run.wait_for(name))
            return str(value)

        async with asyncio.TaskGroup() as group:
            one = group.create_task(nested("one"))
            two = group.create_task(nested("two"))
        return one.result() + two.result()

    async def main() -> Any:
        async def meanwhile(store: Any) -> None:
            await _status(kept, "waiting")
            info = kept.handle("a/act/main").info
            assert "'one'" in info.waits and "'two'" in info.waits
            await (await store.handle("a/act/main")).signal("two", "b")
            await (await store.handle("a/act/main")).signal("one", "a")

        return await _going_to_wait(place, act, meanwhile)

    assert asyncio.run(main()) == "ab"
    assert len(calls) >= 2  # it was not in memory while it waited


async def _status(store: Any, *wanted: str) -> None:
    end = time.monotonic() + 30
    while True:
        found = store.runs(agent="a")
        if any(info.status in wanted for info in found):
            return
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_run_stays_while_a_task_does_something_that_is_not_recorded(place: Place) -> None:
    kept = place.open()
    calls: list[str] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        calls.append("called")

        async def working() -> None:
            await asyncio.sleep(1.0)
            calls.append("worked")

        _, value = await asyncio.gather(working(), run.wait_for("go"))
        return str(value)

    async def main() -> Any:
        async def meanwhile(store: Any) -> None:
            await _status(kept, "running")
            await asyncio.sleep(0.5)
            assert kept.handle("a/act/main").status == "running"
            await (await store.handle("a/act/main")).signal("go", "gone")

        return await _going_to_wait(place, act, meanwhile)

    assert asyncio.run(main()) == "gone"
    assert calls == ["called", "worked"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_timeout_of_the_frameworks_keeps_a_waiting_run_in_memory(
    runs: Async, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unloaded, it forgot the timeout, and waited for ever. On loops that do not show their timers,
    as uvloop, it still did."""
    if not shown:
        monkeypatch.setattr(loops, "scheduled_in", lambda _: None)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            await asyncio.wait_for(asyncio.sleep(0), 60)  # one that is over is none any more
            async with asyncio.timeout(0.3):
                return str(await run.wait_for("never"))
        except TimeoutError:
            return "late"

    assert runs.run(act) == "late"


@pytest.mark.parametrize("shown", [True, False])
def test_a_timeout_that_is_over_lets_the_run_be_unloaded(
    runs: Async, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shown:
        monkeypatch.setattr(loops, "scheduled_in", lambda _: None)
    calls: list[int] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        calls.append(1)
        await asyncio.wait_for(asyncio.sleep(0.01), 60)  # one is cancelled, and one fires
        await run.sleep(1.2)
        return "slept"

    assert runs.run(act) == "slept"
    assert len(calls) == 2


def test_threads_that_all_wait_let_the_run_be_unloaded(place: Place) -> None:
    store, other = place.open(), place.open()
    calls: list[int] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        calls.append(1)
        return run.map(lambda name: str(run.wait_for(name)), ["one", "two", "three"], limit=2)

    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(store.run(act, "a")))
    thread.start()
    for name in ("one", "two", "three"):
        _until(lambda: any(info.status == "waiting" for info in other.runs(agent="a")))
        other.handle("a/act/main").signal(name, name)
    thread.join(60)
    assert got == [["one", "two", "three"]]
    assert len(calls) >= 2


# -- cancellation of the whole ---------------------------------------------------------------------


def test_a_cancelled_caller_leaves_a_run_that_goes_on_later(
    runs: Async, place: Place, crash: Crashes, fetch: Any
) -> None:
    began = threading.Event()

    @perdure.step
    async def long() -> str:
        began.set()
        await asyncio.sleep(0 if crash.calls.count("again") else 60)
        return "long"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        await fetch("first")
        return await long()

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            task = asyncio.create_task(store.run(act, "a"))
            while not began.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await (await store.handle("a/act/main")).info()).status == "running"

    asyncio.run(main())
    crash.note("again")
    assert runs.run(act) == "long"
    assert crash.calls == ["first", "again"]


def test_a_loop_that_ends_in_mid_step_leaves_the_run_for_later(
    runs: Async, place: Place, crash: Crashes
) -> None:
    """`asyncio.run` cancels all tasks at once, those of the run and those that look after it."""
    began = threading.Event()

    @perdure.step
    async def long(number: int) -> int:
        began.set()
        await asyncio.sleep(0 if crash.calls else 60)
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        return sum(await asyncio.gather(*(long(number) for number in range(3))))

    async def main() -> None:
        store = await perdure.open_async(place.url, durability="os")
        _kept.append((store, asyncio.create_task(store.run(act, "a"))))
        while not began.is_set():
            await asyncio.sleep(0.01)

    _kept: list[Any] = []
    asyncio.run(main())
    assert runs.info().status == "running"
    _until(lambda: not any(t.name.startswith("perdure-run") for t in threading.enumerate()))
    crash.note("again")
    assert runs.run(act) == 3


def test_no_truth_before_it_was_awaited(runs: Async) -> None:
    """`if run.ask(…):` without the `await` took every question for answered with yes."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        for pending in (run.ask("Refund?"), run.wait_for("x"), run.sleep(1), run.call(abs, 1)):
            with pytest.raises(TypeError, match="must be awaited"):
                bool(pending)
            pending.close()
        return "seen"

    assert runs.run(act) == "seen"


def test_what_was_never_awaited_is_noticed(runs: Async) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        run.call(abs, 1)

    with pytest.warns(RuntimeWarning, match=r"run\.call\(…\) was never awaited"):
        runs.run(act)


def test_nothing_is_left_behind(runs: Async, crash: Crashes, fetch: Any) -> None:
    """Tasks that the function left, threads, and the context of who asked."""
    before = set(threading.enumerate())

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        left.append(asyncio.create_task(fetch("left", 60)))
        await run.call(time.sleep, 0.01)
        await asyncio.sleep(0.01)
        return "done"

    left: list[asyncio.Task[Any]] = []
    assert runs.run(act) == "done"
    assert left[0].cancelled()
    _until(
        lambda: (
            not [
                thread
                for thread in threading.enumerate()
                if thread not in before and not thread.daemon
            ]
        )
    )
    with pytest.raises(perdure.OutsideRun):
        perdure.fencing_token()


def test_a_task_that_awaits_one_it_has_cancelled_joins_it(place: Place) -> None:
    """`asyncio.wait_for` cancels what was too slow, and awaits its end. That a task which cleans up
    waits for a signal was not taken for waiting: its run stayed in memory for as long."""
    kept = place.open()
    calls: list[str] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        calls.append("called")

        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await run.wait_for("clean")

        try:
            await asyncio.wait_for(slow(), 0.01)
        except TimeoutError:
            return "too late"

    async def main() -> Any:
        async def meanwhile(store: Any) -> None:
            await _status(kept, "waiting")
            await (await store.handle("a/act/main")).signal("clean")

        return await _going_to_wait(place, act, meanwhile)

    assert asyncio.run(main()) == "too late"
    assert len(calls) >= 2
