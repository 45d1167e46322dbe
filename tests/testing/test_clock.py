"""`perdure.testing.Clock`: what a store keeps a time for goes by it, on both backends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.store import Store
from perdure.testing import Clock, run_until_waiting

START = datetime(2031, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Iterator[Store]:
    with clock.open(tmp_path / "a.db" if request.param == "sqlite" else "memory://") as store:
        yield store


@perdure.agent(dict)
def remind(run: perdure.Run[dict], days: float) -> list[str]:
    began = run.now()
    run.sleep(timedelta(days=days))
    return [began.isoformat(), run.now().isoformat()]


def test_a_long_sleep_takes_no_time(store: Store, clock: Clock) -> None:
    handle = run_until_waiting(store, remind, "a", 3)
    assert (handle.status, handle.info.wake_at_micros) == ("waiting", clock() + 3 * 86400 * 10**6)
    assert run_until_waiting(store, remind, "a", 3).status == "waiting"
    commits = store.agent("a").verify().commits
    clock.advance(timedelta(days=2))
    assert run_until_waiting(store, remind, "a", 3).status == "waiting"
    assert store.agent("a").verify().commits == commits, "nothing was due, so nothing was done"
    clock.advance(timedelta(days=1))
    assert store.run(remind, "a", 3) == ["2031-05-01T12:00:00+00:00", "2031-05-04T12:00:00+00:00"]
    assert run_until_waiting(store, remind, "a", 3).result() == store.run(remind, "a", 3)


def test_short_sleeps_are_unloaded_too(store: Store, clock: Clock) -> None:
    """In real time a sleep of half a second is waited for in place. By a clock that stands still
    that lasted for ever, on the very thread that was to move the clock."""
    assert run_until_waiting(store, remind, "a", 1e-6).status == "waiting"
    clock.advance(0.1)
    assert run_until_waiting(store, remind, "a", 1e-6).status == "done"


def test_a_run_that_waits_on_another_thread_wakes(store: Store, clock: Clock) -> None:
    results: list[list[str]] = []
    thread = threading.Thread(target=lambda: results.append(store.run(remind, "a", 7)))
    thread.start()
    while not store.runs("a", status=["waiting"]):
        assert thread.is_alive()
        thread.join(0.005)
    assert thread.is_alive()
    clock.advance(timedelta(days=7))
    thread.join(30)
    assert results and results[0][1].startswith("2031-05-08")


def test_pauses_between_attempts_go_by_it(store: Store, clock: Clock) -> None:
    calls: list[int] = []

    @perdure.tool(retry=perdure.Retry(3, first=timedelta(hours=1), longest=7200, jitter=0))
    def flaky() -> str:
        calls.append(len(calls))
        if len(calls) < 3:
            raise ConnectionError("no")
        return "yes"

    @perdure.agent(dict)
    def trying(run: perdure.Run[dict]) -> str:
        return flaky()

    assert run_until_waiting(store, trying, "a").status == "waiting"
    clock.advance(timedelta(minutes=59))
    assert run_until_waiting(store, trying, "a").status == "waiting"
    assert len(calls) == 1
    clock.advance(timedelta(minutes=1))
    assert run_until_waiting(store, trying, "a").status == "waiting"
    assert len(calls) == 2
    clock.advance(timedelta(hours=2))
    assert store.run(trying, "a") == "yes"


def test_deadlines_go_by_it(store: Store, clock: Clock) -> None:
    options = store.options(deadline=timedelta(days=1))
    assert run_until_waiting(options, remind, "a", 2).status == "waiting"
    clock.advance(timedelta(days=1))
    with pytest.raises(perdure.TimedOut, match="deadline"):
        options.run(remind, "a", 2)


def test_a_question_with_a_timeout(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> Any:
        return run.ask("Well?", schema=str, timeout=timedelta(days=1), default="nobody cares")

    for agent in "ab":
        run_until_waiting(store, asking, agent)
    store.handle("a/asking/main").answer("yes")
    assert store.run(asking, "a") == "yes"
    clock.advance(timedelta(days=1))
    assert store.run(asking, "b") == "nobody cares"


def test_an_async_function_is_run_until_it_waits(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    async def napping(run: perdure.AsyncRun[dict]) -> Any:
        await run.sleep(timedelta(days=1))
        return await run.call(str.upper, "awake")

    assert run_until_waiting(store, napping, "a").status == "waiting"
    clock.advance(timedelta(days=1))
    assert run_until_waiting(store, napping, "a").result(0) == "AWAKE"


async def _nap(clock: Clock, path: Path) -> str:
    @perdure.agent(dict)
    async def napping(run: perdure.AsyncRun[dict]) -> str:
        await run.sleep(timedelta(days=1))
        return "awake"

    import asyncio

    async with clock.open_async(path) as store:
        task = asyncio.create_task(store.run(napping, "a"))
        while not await store.runs("a", status=["waiting"]):
            await asyncio.sleep(0.005)
        clock.advance(timedelta(days=1))
        return await asyncio.wait_for(task, 30)


def test_an_async_store_goes_by_it(clock: Clock, tmp_path: Path) -> None:
    import asyncio

    assert asyncio.run(_nap(clock, tmp_path / "a.db")) == "awake"


def test_the_log_has_its_times(store: Store, clock: Clock) -> None:
    with store.agent("a").edit("first") as draft:
        draft["n"] = 1
    clock.advance(timedelta(days=400))
    with store.agent("a").edit("second") as draft:
        draft["n"] = 2
    times = [commit.at for commit in store.agent("a").log()]
    assert [at.year for at in times] == [2031, 2031, 2032]
    assert store.agent("a").at(START + timedelta(days=30)).state == {"n": 1}


def test_messages_have_its_times(store: Store, clock: Clock) -> None:
    run_until_waiting(store, remind, "a", 3)
    clock.advance(60)
    store.handle("a/remind/main").signal("hello")
    (message,) = store.runner.context.backend.inbox("a/remind/main")
    assert message.at_micros == clock()


def test_who_has_stores_open_lives_through_the_jump(tmp_path: Path, clock: Clock) -> None:
    """A clock that jumped by days made every executor look expired until its next heartbeat, some
    seconds later; meanwhile others took its runs over."""
    with clock.open(tmp_path / "a.db") as one, clock.open(tmp_path / "a.db") as other:
        run_until_waiting(one, remind, "a", 3)
        me = one.runner.context.executor
        assert other.alive(me)
        clock.advance(timedelta(days=3))
        assert other.alive(me)
        clock.advance(timedelta(seconds=11), alive=False)
        assert not other.alive(me)


def test_a_clock_goes_forward_only() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="time zone"):
        Clock(datetime(2031, 1, 1))
    assert clock.advance(1.5) == clock.now
    assert "Clock(20" in repr(clock)
