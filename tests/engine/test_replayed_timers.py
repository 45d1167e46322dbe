"""The machine is busy one time and not another: a timer that a function sets does on replay what it
did, whenever its time comes now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import replay
from tests.engine.test_replayed_order import fetch, gone_over_again, records, report


@perdure.step(identity=lambda rung: [])
async def comes(rung: asyncio.Event) -> None:
    """It is through once a timer of the function's has gone off."""
    await rung.wait()


class Busy:
    """What takes its time: while the function runs first, or while it is gone over again."""

    def __init__(self, *, first: bool) -> None:
        self._first, self._times = first, 0

    def begins(self) -> None:
        """The function is called."""
        self._times += 1

    def hold_up(self, seconds: float = 0.05) -> None:
        if (self._times == 1) == self._first:
            time.sleep(seconds)


@pytest.fixture(params=[True, False], ids=["busy first", "busy on replay"])
def busy(request: pytest.FixtureRequest) -> Busy:
    return Busy(first=request.param)


@pytest.mark.parametrize("way", ["a wait", "a step", "a nap"])
def test_a_timeout_that_is_over_before_it_begins_is_a_timer_like_others(
    tmp_path: Path, busy: Busy, way: str
) -> None:
    """asyncio sets no timer for a timeout whose time has come when it is entered, but calls back at
    once. Whether it has depends on the machine, and the log did not say. A wait that was over as
    soon as it began was in time, and too late on replay, or the other way round."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        busy.begins()

        async def a_wait() -> None:
            await run.sleep(0)

        async def a_step() -> None:
            await fetch("x", 0.001)

        ways: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "a wait": a_wait,
            "a step": a_step,
            "a nap": lambda: asyncio.sleep(0.001),
        }
        limit = asyncio.timeout(0.02)
        busy.hold_up()
        try:
            async with limit:
                await asyncio.create_task(ways[way]())
        except TimeoutError:
            return await report("late")
        return await report("in time")

    gone_over_again(act, tmp_path)


def test_a_timeout_of_no_time_strikes_each_time(tmp_path: Path) -> None:
    """It strikes once all of the function waits; what needs no wait is in time, as ever."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        late: list[float] = []
        for seconds in (0, -1, 1e-9):
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()
            except TimeoutError:
                late.append(seconds)
        queue: asyncio.Queue[int] = asyncio.Queue()
        queue.put_nowait(1)
        async with asyncio.timeout(0):
            await queue.get()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                limit.reschedule(asyncio.get_running_loop().time() - 1)
                await fetch("x", 30)
        except TimeoutError:
            late.append(-2)
        return await report([late, limit.expired(), limit.when() is not None])

    assert gone_over_again(act, tmp_path) == [[0, -1, 1e-9, -2], True, True]
    fired = [name for record in records(tmp_path, "timers") for name in record["fired"]]
    assert fired == [f"timer:Timeout._on_timeout#{number}" for number in (1, 2, 3, 5)]


def test_a_plain_function_of_a_map_is_a_part_of_the_function(tmp_path: Path, busy: Busy) -> None:
    """It is called on a thread. A timeout came before it had made its step, and on replay the
    thread was faster: a step was made that was not recorded, and nobody came to its end."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        busy.begins()
        loop = asyncio.get_running_loop()

        def plain(what: str) -> Any:
            busy.hold_up(0.1)
            return fetch(what, 10)

        def give_threads_time() -> None:
            time.sleep(0.05)
            loop.call_soon(time.sleep, 0.01)

        if run.replaying:  # the loop is held up, and the threads are not
            loop.call_soon(loop.call_soon, give_threads_time)
        try:
            async with asyncio.timeout(0.03):
                await run.map(plain, ["a", "b", "c"], limit=2)
        except TimeoutError:
            return await asyncio.gather(report("late"), fetch("x"))
        return "in time"

    assert gone_over_again(act, tmp_path) == ["late", "x"]


@pytest.mark.parametrize("how", ["plain", "recorded"])
def test_a_plain_function_that_takes_long_holds_up_nobody(tmp_path: Path, how: str) -> None:
    """It waits for what another task does, which goes on meanwhile."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        told: list[str] = []

        def wait_for_it(what: str) -> str:
            for _ in range(2000):
                if len(told) > 1:
                    return what
                time.sleep(0.01)
            return "in vain"

        recorded = perdure.step(wait_for_it)

        async def other() -> Any:
            for what in ("a", "b"):
                told.append(await fetch(what, 0.01))
            return len(told)

        ways = {"plain": wait_for_it, "recorded": lambda what: recorded(what)}
        return await asyncio.gather(run.map(ways[how], ["x"]), other())

    assert gone_over_again(act, tmp_path) == [["x"], 2]


def test_what_a_task_left_behind_may_set_timers_still(tmp_path: Path) -> None:
    """A task had ended, and a timer that it had set was to set another one: on replay that one was
    taken for one that nobody sets any more, and went off in its own time."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        async def leaves_a_timer() -> None:
            loop.call_later(0.001, lambda: loop.call_later(0.001, rung.set))

        await asyncio.create_task(leaves_a_timer())
        await run.call(comes, rung)
        return await report(rung.is_set())

    assert gone_over_again(act, tmp_path) is True


def test_a_timer_that_another_one_sets_comes_before_what_was_behind_it(tmp_path: Path) -> None:
    """Both are of one task, and so is the step. While the first one went off the second was not set
    yet: the step did not wait for it."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(0.001, lambda: loop.call_later(0.001, rung.set))
        await run.call(comes, rung)
        return await report(rung.is_set())

    assert gone_over_again(act, tmp_path) is True


def test_what_is_to_be_called_soon_comes_before_an_outcome(tmp_path: Path) -> None:
    """A function of a single task was given what is recorded at once, and did not come to what it
    had asked its loop to call before."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        loop.call_soon(loop.call_soon, rung.set)
        await fetch("x", 0.01)
        return await report(rung.is_set())

    assert gone_over_again(act, tmp_path) is True


def test_a_timer_sees_an_edit_once_its_task_has_heard_of_it(tmp_path: Path) -> None:
    """Of a function of one task, nobody was thought to look at the state between the commit of an
    edit and the end of its block. A timer that had come due meanwhile did."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        loop, seen = asyncio.get_running_loop(), list[Any]()
        loop.call_later(0.02, lambda: seen.append(run.state.get("x")))
        async with run.edit("x") as draft:
            draft["x"] = 1
            if not run.replaying:
                loop.call_soon(time.sleep, 0.05)  # meanwhile it is committed, and the timer due
        await fetch("y", 0.05)
        return await report(seen)

    gone_over_again(act, tmp_path)


@pytest.mark.timeout(30)
def test_many_timers_that_nobody_sets_any_more_hold_up_a_run_once(tmp_path: Path) -> None:
    """Each held up a replay for a second, where another task's came behind it."""
    naps = [0.0005]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def other(number: int) -> Any:
            for _ in range(15):
                for seconds in naps:
                    await asyncio.sleep(seconds)
                await report(number)

        return await asyncio.gather(*(other(number) for number in range(4)))

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    asyncio.run(live())
    assert sum(len(record["fired"]) for record in records(tmp_path, "timers")) == 60
    naps.clear()
    with perdure.open(tmp_path / "a.db") as store:
        replay(store, act).check()


def test_a_timer_behind_a_call_that_is_made_again_does_not_wait_for_its_end() -> None:
    """A person said that a payment had not been made. While it was made again a timeout went off,
    and was recorded as behind its outcome, which came later: each replay waited for ever."""

    began = asyncio.Event()

    @perdure.tool
    async def pay() -> str:
        began.set()
        await asyncio.sleep(0.05)
        return "paid"

    @perdure.step
    async def say(words: str) -> str:
        return words

    @perdure.agent(dict)
    async def order(run: perdure.AsyncRun[Any]) -> str:
        task = asyncio.create_task(pay())
        done, _ = await asyncio.wait([task], timeout=0.02)
        said = await say("at once" if done else "it takes a while")
        return f"{said}: {await task}"

    async def again() -> None:
        async with perdure.open_async("memory://") as store:
            asked = asyncio.create_task(store.run(order, "a"))
            await began.wait()
            asked.cancel()
            await asyncio.wait([asked])
            with pytest.raises(perdure.NeedsAttention):
                await store.run(order, "a")
            await (await store.handle("a/order/main")).settle("pay#1/pay#1", not_done=True)
            result = await store.run(order, "a")
            assert result.endswith("paid")
            async with asyncio.timeout(20):
                found = await asyncio.to_thread(lambda: replay(store._store, order))
            assert found.check() == result

    asyncio.run(again())


@pytest.mark.parametrize("goes_on", ["at once", "in another life"])
@pytest.mark.parametrize("how", ["a call", "a map"])
@pytest.mark.parametrize("back", ["left", "retried", "forked"])
def test_a_timer_behind_a_settled_call_that_was_cancelled_has_its_place_there(
    back: str, how: str, goes_on: str
) -> None:
    """A person said that a bank had not been asked. Before it was asked again the run had what it
    needed from its cache, and cancelled that. A timeout that struck then was recorded as behind the
    cache: on replay it was waited for before the call was cancelled, when nobody had set it yet,
    and was passed over. The delivery had been late, and now it was in time."""
    cached, asked, alive, delivering = (asyncio.Event() for _ in range(4))
    patience = 0.001

    @perdure.tool
    async def bank(number: int) -> None:
        asked.set()
        if back != "left":
            alive.set()
        await asyncio.sleep(60)

    @perdure.step
    async def cache() -> None:
        pass

    # With a tool's intent it is committed that the call was cancelled. Set back, a tool asks.
    @(perdure.tool(on_crash="retry") if back == "left" else perdure.step)
    async def deliver() -> None:
        delivering.set()
        await asyncio.sleep(60 if patience > 1 else 0.02)

    @perdure.step
    async def note(words: str) -> str:
        return words

    @perdure.agent(dict)
    async def order(run: perdure.AsyncRun[Any]) -> str:
        async def ask() -> None:
            await cached.wait()  # the machine is busy, the first time
            if how == "a map":
                _: list[None] = await run.map(bank, [0])
            else:
                await bank(0)

        asks = asyncio.create_task(ask())
        await cache()
        cached.set()
        lives = asyncio.create_task(alive.wait())  # so far it comes, the first time
        await asyncio.wait([asks, lives], return_when=asyncio.FIRST_COMPLETED)
        asks.cancel()
        await asyncio.wait([asks])
        delivers = asyncio.create_task(deliver())
        _, late = await asyncio.wait([delivers], timeout=patience)
        await asyncio.wait([delivers])
        return await note(f"{len(late)} late")

    async def leave(store: perdure.AsyncStore, began: asyncio.Event, key: str = "main") -> None:
        began.clear()
        life = asyncio.create_task(store.options(key=key).run(order, "a"))
        await began.wait()
        life.cancel()
        await asyncio.wait([life])

    async def again() -> None:
        nonlocal patience
        async with perdure.open_async("memory://") as store:
            if back == "left":
                await leave(store, asked)
            else:
                assert await store.run(order, "a") == "1 late"
            handle = await store.handle("a/order/main")
            place, key = (await handle.effects())[0].place, "main"
            if back == "retried":
                await handle.retry(place, effects="ask")
            if back == "forked":
                handle, key = await handle.fork(place, branch="b", effects="ask"), "main@b"
            orders = store.options(key=key)
            alive.clear()
            with pytest.raises(perdure.NeedsAttention):
                await orders.run(order, "a")
            await handle.settle(place, not_done=True)
            alive.set()
            if goes_on == "in another life":
                patience = 60
                await leave(store, delivering, key)
                patience = 0.001
                if back == "left":  # the machine is busy again: the call has its turn, and waits
                    alive.clear()
                    asyncio.get_running_loop().call_later(0.05, alive.set)
            assert await orders.run(order, "a") == "1 late"
            states = {effect.place: effect.state for effect in await handle.effects()}
            assert states[place] == "not done"
            found = await asyncio.to_thread(lambda: replay(store._store, order, handle.id))
            assert found.check() == "1 late"

    asyncio.run(again())
