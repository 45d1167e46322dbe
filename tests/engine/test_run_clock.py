"""What a run's function is told when it asks its event loop for the time, it is told again when it
is gone over: so code that goes by it does what it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure
from perdure.engine.execution import loops
from perdure.engine.execution.run_clock import BEHIND, UNITS
from perdure.engine.execution.run_timers import Timers
from perdure.testing import replay
from tests.engine.test_replayed_order import fetch, records, report
from tests.engine.waits import Clock
from tests.graphs.loops import own_time


def later(function: Any, folder: Path) -> Any:
    """What a run gives in a loop whose time goes on while nothing else is to do; the same run must
    give that when it is gone over in one of asyncio's, where it takes no time."""

    async def live() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            return await store.run(function, "a")

    with own_time():
        result = asyncio.run(live())
    began = time.monotonic()
    with perdure.open(folder / "a.db") as store:
        assert replay(store, function).check() == result
    assert time.monotonic() - began < 30  # it waited for none of it
    return result


@pytest.mark.parametrize("way", ["move on", "fail", "a group's", "put off", "nested"])
def test_what_a_scope_of_anyios_ends_it_ends_again(tmp_path: Path, way: str) -> None:
    """When its timer goes off, such a scope asks for the time. On replay that went off in its place
    and, by the clock, too early: the scope set another one, and what it had ended went on."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        found: list[str] = []
        try:
            with anyio.fail_after(400), anyio.move_on_after(100) as scope:
                if way == "put off":
                    scope.deadline = anyio.current_time() + 150
                if way == "nested":
                    with anyio.CancelScope(shield=True):
                        found.append(await fetch("shielded", 200))
                if way == "a group's":
                    async with anyio.create_task_group() as group:
                        group.start_soon(fetch, "a", 3000)
                        group.start_soon(fetch, "b", 3000)
                if way == "fail":
                    with anyio.CancelScope(shield=True), anyio.fail_after(50):
                        await fetch("x", 3000)
                found.append(await fetch("y", 3000))
            return [found, scope.cancelled_caught, await report("moved on")]
        except TimeoutError:
            return await report("failed")

    shielded = ["shielded"] if way == "nested" else []
    assert later(act, tmp_path) == ("failed" if way == "fail" else [shielded, True, "moved on"])


def test_a_deadline_is_over_after_as_many_steps(tmp_path: Path) -> None:
    """On replay they took no time, and there were more of them until the deadline."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, number = asyncio.get_running_loop(), 0
        deadline = loop.time() + 60
        while loop.time() < deadline:
            number += 1
            await fetch(f"{number}", 9)
        began = loop.time()
        while loop.time() - began < 0.5:
            number += 1
            await asyncio.sleep(0.1)
        return await report(number)

    assert 1 < later(act, tmp_path) <= 7 + 5


def test_how_long_something_took_is_the_same_again(tmp_path: Path) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop: Any = asyncio.get_running_loop()
        took: list[float] = []
        for seconds in (0.001, 1, 0, 30, 0.5):
            began = loop.time()
            await fetch(f"{seconds}", seconds)
            took.append(loop.time() - began)
        return await report(took)

    took, least = later(act, tmp_path), (0.001, 1, 0, 30, 0.5)
    assert all(a >= b - BEHIND / UNITS for a, b in zip(took, least, strict=True))


def test_what_is_no_runs_is_told_the_time_as_ever(tmp_path: Path) -> None:
    """Steps, threads, other tasks, and a second run of the same loop: each has its own."""
    seen: dict[str, list[float]] = {}

    def look(who: str) -> None:
        now = time.monotonic()
        told = asyncio.get_running_loop().time()
        seen.setdefault(who, []).append(max(told - time.monotonic(), now - told, 0))

    @perdure.step
    async def looks(n: int) -> None:
        look("step")
        async with asyncio.timeout(30):
            await asyncio.sleep(0.001)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict], tempo: float) -> Any:
        loop = asyncio.get_running_loop()
        told = [loop.time()]
        for n in range(5):
            await looks(n)
            await asyncio.sleep(tempo)
            told.append(loop.time())
        assert told == sorted(told)
        return await report(told[-1] - told[0])

    async def beside(ended: asyncio.Event) -> None:
        while not ended.is_set():
            look("beside")
            await asyncio.sleep(0.001)

    async def live() -> list[float]:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            ended = asyncio.Event()
            other = asyncio.create_task(beside(ended))
            runs = [store.run(act, name, tempo) for name, tempo in (("a", 0.001), ("b", 0.03))]
            took = await asyncio.gather(*runs)
            ended.set()
            await other
            again = await asyncio.gather(
                *(store.run(act, n, t) for n, t in (("a", 0.001), ("b", 0.03)))
            )
            assert again == took
            return took

    took = asyncio.run(live())
    assert took[1] >= 0.15
    assert max(max(late) for late in seen.values()) == 0
    with perdure.open(tmp_path / "a.db") as store:
        for agent in "ab":
            replay(store, act, f"{agent}/act/main").check()
    assert set(seen) == {"step", "beside"}


@pytest.mark.parametrize("shown", [True, False], ids=["asyncio's", "as uvloop"])
def test_nothing_goes_off_before_its_time(
    tmp_path: Path, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that the function is told may be behind; what it sleeps is as long as ever."""
    if not shown:
        monkeypatch.setattr(loops, "scheduled_in", lambda _: None)
    slept: list[float] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop = asyncio.get_running_loop()
        for n in range(20):
            time.sleep(0.0013 * (n % 9))
            began, rung = time.monotonic(), loop.create_future()
            ways: list[Any] = [
                asyncio.sleep(0.012),
                anyio.sleep_until(anyio.current_time() + 0.012),
                rung,
            ]
            if n % 3 == 2:
                loop.call_at(loop.time() + 0.012, rung.set_result, None)
            await ways[n % 3]
            slept.append(time.monotonic() - began)
            for way in ways[:2]:
                way.close()
        return await report("slept")

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    asyncio.run(live())
    assert min(slept) >= 0.012 - 1e-6
    with perdure.open(tmp_path / "a.db") as store:
        replay(store, act).check()


def test_time_passes_while_nobody_executes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loop that sleeps until some time would never end, where it is unloaded meanwhile."""
    clock, asleep = Clock(monkeypatch), list[asyncio.Event]()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, number = asyncio.get_running_loop(), 0
        deadline = loop.time() + 3 * 3600
        while loop.time() < deadline:
            number += 1
            await fetch(f"{number}")
            if not run.replaying:
                asleep[-1].set()
            await run.sleep(timedelta(hours=1))
        return await report(number)

    async def once() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            asleep.append(asyncio.Event())
            life = asyncio.create_task(store.run(act, "a"))
            waits = asyncio.create_task(asleep[-1].wait())
            await asyncio.wait([life, waits], return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                return life.result()
            handle = await store.handle("a/act/main")
            while await handle.status() != "waiting":
                await asyncio.sleep(0.01)
            life.cancel()
            await asyncio.wait([life])

    for _ in range(3):
        assert asyncio.run(once()) is None
        clock.forward(3600)
    assert asyncio.run(once()) == 3
    with perdure.open(tmp_path / "a.db") as store:
        assert replay(store, act).check() == 3


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time is recorded meanwhile."""
    with monkeypatch.context() as patched:
        patched.setattr(Timers, "_note_time", lambda *_: None)
        yield


@pytest.mark.timeout(60)
def test_what_an_older_version_waited_for_comes_to_an_end(tmp_path: Path, older: None) -> None:
    """It recorded no times. What does nothing but ask whether it is late is told so in the end."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.05
        while loop.time() < deadline:
            await asyncio.sleep(0)
        return await report("late")

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    asyncio.run(live())
    assert not [record for record in records(tmp_path, "timers") if "clock" in record]
    with perdure.open(tmp_path / "a.db") as store:
        assert replay(store, act).check() == "late"


def test_a_time_is_recorded_where_it_passed_and_nothing_told_so(tmp_path: Path) -> None:
    """Timers that go off tell it; a function that asks twice at once is told the same."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(1)
        slept = loop.time() - began
        await fetch("x", 2)
        return await report([slept, loop.time() - began, loop.time() - began])

    slept, both, again = later(act, tmp_path)
    assert slept >= 1 and both >= slept + 2 and both == again
    behind_it = [one for one in records(tmp_path, "timers") if one["after"] == "fetch#1"]
    assert [asked for one in behind_it for asked, _ in one["clock"]] == [1]
