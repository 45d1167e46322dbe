"""Deadlines: counted from where the run began, whatever happened since."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.errors import TimedOut
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import BOUND_S, HOUR, Background, Clock, go, until, verify_all

TWO_HOURS = timedelta(hours=2)


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def waiting(run: perdure.Run[dict]) -> Any:
    return run.wait_for("s")


def test_it_ends_a_run_that_waits_and_is_unloaded(place: Place, clock: Clock) -> None:
    handle = place.open().options(deadline=TWO_HOURS).start(waiting, "a")
    clock.forward(HOUR)  # before it begins, it does not count
    go(place.open(), waiting)
    clock.forward(HOUR + 60)
    assert go(place.open(), waiting) is None
    clock.forward(HOUR)
    store = place.open()
    backend = store.runner._context.backend
    assert [run.id for run in backend.ready(backend.now(), 10)] == ["a/waiting/main"]
    for _ in range(2):
        with pytest.raises(TimedOut, match="its deadline has passed"):
            go(place.open(), waiting)
    assert handle.status == "failed" and "TimedOut" in str(handle.info.problem)


def test_it_may_be_said_in_seconds(store: Store, clock: Clock) -> None:
    """All other durations may; this one raised a TypeError."""
    handle = store.options(deadline=0.5 * HOUR).start(waiting, "a")
    go(store, waiting)
    clock.forward(0.4 * HOUR)
    assert go(store, waiting) is None and handle.status == "waiting"
    clock.forward(0.2 * HOUR)
    with pytest.raises(TimedOut):
        go(store, waiting)
    with pytest.raises(TypeError, match="not a duration"):
        store.options(key="other", deadline="soon").start(waiting, "a")  # type: ignore[arg-type]


def test_an_earlier_timer_comes_first(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def patient(run: perdure.Run[dict]) -> Any:
        first = run.wait_for("s", timeout=HOUR, default="none")
        return [first, run.wait_for("s", timeout=10 * HOUR, default="none")]

    handle = store.options(deadline=TWO_HOURS).start(patient, "a")
    go(store, patient)
    due = handle.info.wake_at_micros
    clock.forward(HOUR + 1)
    go(store, patient)
    assert handle.info.wake_at_micros - due == pytest.approx(HOUR * 1e6, abs=60e6), (
        "the deadline is next"
    )
    clock.forward(HOUR)
    with pytest.raises(TimedOut):
        go(store, patient)


def test_one_that_executes_leaves_at_its_next_step(store: Store, clock: Clock) -> None:
    reached: list[str] = []

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict]) -> None:
        try:
            run.call(clock.forward, 3 * HOUR)
            reached.append("one")
            run.call(str, 1)
            reached.append("two")
        except Exception:
            reached.append("caught")

    with pytest.raises(TimedOut, match="deadline"):
        store.options(deadline=TWO_HOURS).run(slow, "a")
    assert reached == ["one"], "the function is not asked"


def test_what_is_recorded_is_gone_over_first(place: Place, clock: Clock, crash: Crashes) -> None:
    """A run that was done but for its last commit when the process died."""

    @perdure.agent(dict)
    def working(run: perdure.Run[dict]) -> str:
        done = run.call(str, 1)
        crash("at the end")
        return done

    crash.arm("at the end")
    with pytest.raises(CrashError):
        place.open().options(deadline=TWO_HOURS).run(working, "a")
    clock.forward(3 * HOUR)
    assert place.open().run(working, "a") == "1"


def test_whoever_runs_it_the_deadline_is_that_of_who_asked_first(
    store: Store, clock: Clock
) -> None:
    store.options(deadline=TWO_HOURS).start(waiting, "a")
    running = Background(lambda: store.run(waiting, "a"))
    until(lambda: store.runs(status=["waiting"]))
    clock.forward(3 * HOUR)
    with pytest.raises(TimedOut, match="deadline"):
        running.join()


def test_asynchronous_runs_have_them_too(place: Place, clock: Clock) -> None:
    @perdure.agent(dict)
    async def patient(run: perdure.AsyncRun[dict]) -> Any:
        return await asyncio.gather(run.wait_for("a"), run.wait_for("b"))

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.options(deadline=TWO_HOURS).run(patient, "a"))
            while not await store.runs(status=["waiting"]) and not running.done():
                await asyncio.sleep(0.01)
            clock.forward(3 * HOUR)
            with pytest.raises(TimedOut, match="deadline"):
                await asyncio.wait_for(running, 60)

    asyncio.run(main())


def test_a_handle_tells_that_a_run_timed_out_from_that_it_did_itself(place: Place) -> None:
    """The one in an event loop took the TimedOut that a run had failed with for its own, "it is not
    finished yet", and waited on, for ever."""

    @perdure.agent(dict)
    async def impatient(run: perdure.AsyncRun[dict]) -> Any:
        return await run.wait_for("s", timeout=0)

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            with pytest.raises(TimedOut, match="in vain"):
                await store.run(impatient, "a")
            handle = await store.handle("a/impatient/main")
            for timeout in (None, HOUR):
                with pytest.raises(TimedOut, match="in vain"):
                    await asyncio.wait_for(handle.result(timeout), BOUND_S)
            pending = await store.start(impatient, "b")
            with pytest.raises(TimedOut, match="is pending still"):
                await pending.result(timeout=0)

    asyncio.run(main())
    with pytest.raises(TimedOut, match="in vain"):
        place.open().handle("a/impatient/main").result()


@pytest.mark.parametrize("beside", ["nothing", "a call", "a wait"])
def test_it_reaches_what_asyncio_waits_for(place: Place, clock: Clock, beside: str) -> None:
    """The function awaited an event that nobody set, as the producer of a queue that had gone: its
    deadline passed, and it went on waiting, for ever. A request to cancel it reached it there."""
    begun, ends, ended = asyncio.Event(), asyncio.Event(), []

    @perdure.step
    async def slow() -> None:
        begun.set()
        await ends.wait()
        ended.append("slow")

    @perdure.agent(dict)
    async def listening(run: perdure.AsyncRun[dict]) -> None:
        async def other() -> Any:
            if beside == "a call":
                return await slow()
            begun.set()
            return await run.wait_for("never") if beside == "a wait" else None

        task = asyncio.ensure_future(other())
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("listening")
            task.cancel()

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            options = store.options(deadline=TWO_HOURS)
            running = asyncio.ensure_future(options.run(listening, "a"))
            await asyncio.wait_for(begun.wait(), BOUND_S)
            clock.forward(3 * HOUR)
            handle = await store.handle("a/listening/main")
            await handle.signal("news", None)
            if beside == "a call":
                await asyncio.sleep(0)
                assert not ended
                ends.set()
            with pytest.raises(TimedOut, match="deadline"):
                await asyncio.wait_for(running, BOUND_S)

    asyncio.run(main())
    assert ended == ["slow", "listening"][beside != "a call" :]
