"""What an asynchronous function meets, it meets in that order again: outcomes, cancellations,
timeouts, ends of waits, and what its tasks do in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.execution import run_timers
from perdure.engine.execution.event_pacing import Pace, PacedEvent
from perdure.engine.execution.run_timers import Timers
from perdure.testing import replay
from tests.graphs.loops import own_time


@perdure.step
async def fetch(what: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return what


@perdure.tool(on_crash="retry")
async def report(what: Any) -> Any:
    return what


def gone_over_again(function: Callable[..., Any], folder: Path, **signals: Any) -> Any:
    """What a run of it gives, and what the same run gives when it is gone over again."""

    async def live() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            handle = await store.start(function, "a")
            for name, values in signals.items():
                for number, value in enumerate(values):
                    await handle.signal(name, value, key=f"{number}")
            return await store.run(function, "a")

    result = asyncio.run(live())
    with perdure.open(folder / "a.db") as store:
        assert replay(store, function).check() == result
    return result


def records(folder: Path, kind: str) -> list[Any]:
    with perdure.open(folder / "a.db") as store:
        return [
            record
            for commit in store.agent("a").log()
            for record in commit.records
            if record["t"] == kind
        ]


@pytest.mark.parametrize("way", ["task", "gather", "group"])
def test_a_timeout_at_the_moment_of_an_outcome_comes_before_or_behind_it(
    tmp_path: Path, way: str
) -> None:
    """A step was through, and its task had ended; before the function had heard of that, a timeout
    struck. The log said that there was an outcome, the function had been too late for it, and went
    the other way on replay."""
    weather = [0.05]

    async def deep(left: int) -> str:
        if left:
            return await asyncio.create_task(deep(left - 1))
        found = await fetch("x")
        time.sleep(weather.pop() if weather else 0)  # the machine is busy, this time
        return found

    async def in_a_group() -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(deep(2))
        return task.result()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        ways: dict[str, Callable[[], Any]] = {
            "task": lambda: deep(2),
            "gather": lambda: asyncio.gather(deep(2), deep(1)),
            "group": in_a_group,
        }
        try:
            async with asyncio.timeout(0.03):
                found = await ways[way]()
        except TimeoutError:
            return str(await report("too late"))
        return str(await fetch(str(found)))

    gone_over_again(act, tmp_path)


def test_what_comes_behind_a_timeout_waits_for_it(tmp_path: Path) -> None:
    """A call that a timeout had cancelled gave up its place as soon as it was come to again. What
    another task had recorded behind it came first, and what that passed on was another."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        late: list[str] = []

        async def first() -> None:
            try:
                async with asyncio.timeout(0.02):
                    await fetch("first", 5)
            except TimeoutError:
                late.append("first")

        async def second() -> Any:
            await fetch("second", 0.1)
            return await report(list(late))

        return (await asyncio.gather(first(), second()))[1]

    assert gone_over_again(act, tmp_path) == ["first"]


def test_older_logs_do_not_say_when_a_timeout_struck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say that a call was cancelled: what is behind it waits until the timeout strikes."""
    monkeypatch.setattr(Timers, "_note", lambda *_: None)
    test_what_comes_behind_a_timeout_waits_for_it(tmp_path)
    assert not records(tmp_path, "timers")


def test_a_timer_goes_off_where_it_did_whatever_the_time(tmp_path: Path) -> None:
    """A timeout around what is not recorded, a nap and a callback: that they came is recorded, and
    on replay they come at once: this takes two minutes by the clock of its loop."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        told = asyncio.Event()
        asyncio.get_running_loop().call_later(20, told.set)
        try:
            async with asyncio.timeout(40):
                await asyncio.Event().wait()
        except TimeoutError:
            await report(told.is_set())
        await asyncio.sleep(60)
        done, pending = await asyncio.wait([asyncio.create_task(fetch("x", 50))], timeout=10)
        await report(len(done))
        return [await task for task in pending]

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    with own_time():
        assert asyncio.run(live()) == ["x"]
    fired = [name for record in records(tmp_path, "timers") for name in record["fired"]]
    assert fired == [
        "timer:Event.set#1",
        "timer:Timeout._on_timeout#1",
        "timer:_set_result_unless_cancelled#1",
        "timer:_release_waiter#1",
    ]
    with perdure.open(tmp_path / "a.db") as store:
        assert replay(store, act).check() == ["x"]


def test_a_timer_that_nobody_sets_any_more_stops_no_run(tmp_path: Path) -> None:
    """The code has changed, where nothing of it is recorded: a nap was taken out."""
    naps = [1.0]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def other() -> Any:
            if naps:
                await asyncio.sleep(0.001)
            return await report("other")

        return await asyncio.gather(asyncio.create_task(other()), report("this"))

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    asyncio.run(live())
    assert records(tmp_path, "timers")
    naps.clear()
    with perdure.open(tmp_path / "a.db") as store:
        assert replay(store, act).check() == ["other", "this"]


def test_tasks_that_begin_side_by_side_have_begun_before_the_first_outcome(tmp_path: Path) -> None:
    """The first recorded call gave what it had at once, on replay, and its task went on before the
    others were begun at all. What they share was another."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        begun = 0

        async def one(name: str) -> Any:
            nonlocal begun
            begun += 1
            await fetch(name)
            return await report(begun)

        return await asyncio.gather(one("a"), one("b"), one("c"))

    assert gone_over_again(act, tmp_path) == [3, 3, 3]


@pytest.mark.parametrize("way", ["wait_for", "select", "sleep"])
def test_a_wait_ends_in_the_order_of_the_log(tmp_path: Path, way: str) -> None:
    """A signal was handed over while the outcome of a step was on its way, and recorded behind it:
    the function had heard of the signal first."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        heard: list[Any] = []

        async def pages() -> None:
            for _ in range(30):
                await fetch(str(len(heard)))

        async def inbox() -> None:
            for _ in range(20):
                if way == "wait_for":
                    heard.append(await run.wait_for("note"))
                elif way == "select":
                    heard.append(await run.select(note=perdure.Signal("note")))
                else:
                    await run.sleep(0.001)
                    heard.append(None)
                await asyncio.sleep(0)

        await asyncio.gather(pages(), inbox())
        return len(heard)

    assert gone_over_again(act, tmp_path, note=range(20)) == 20


def test_a_synchronous_step_called_as_it_is_keeps_its_place(tmp_path: Path) -> None:
    """Nothing was kept free behind its outcome: that of another task was there before the function
    was told that the first had ended."""

    @perdure.step
    def count(text: str) -> int:
        time.sleep(0.02)
        return len(text)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def sized() -> int:
            return count("abc")

        async def careful() -> int:
            return await asyncio.shield(sized())

        async def page() -> str:
            return await fetch("page")

        tasks = [asyncio.create_task(careful()), asyncio.create_task(page())]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = await report(len(done))
        if rest:
            await asyncio.wait(rest)
        return first

    with pytest.warns(RuntimeWarning, match="holds up the event loop"):
        gone_over_again(act, tmp_path)


class DiedError(BaseException):
    """The process has."""


def test_a_cancelled_task_comes_to_its_clean_up_again(tmp_path: Path) -> None:
    """A step's outcome came at once, on replay, so that the task that was cancelled behind it had
    not begun: its clean-up, a tool in doubt, was never made, and the run said that it was done."""
    made: list[str] = []

    @perdure.tool(on_crash="retry")
    async def release(what: str) -> str:
        made.append(what)
        if len(made) == 1:
            raise DiedError
        return what

    @perdure.agent(dict)
    async def book(run: perdure.AsyncRun[dict]) -> str:
        async def hotel() -> None:
            try:
                await fetch("hotel", 10)
            finally:
                await release("hotel")

        task = asyncio.create_task(hotel())
        await fetch("flight", 0.01)
        task.cancel()
        await asyncio.wait([task])
        return "nothing is booked"

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(book, "a")

    with pytest.raises(DiedError):
        asyncio.run(live())
    assert asyncio.run(live()) == "nothing is booked"
    assert made == ["hotel", "hotel"]


@pytest.mark.parametrize("how", ["was cancelled", "raised KeyError"])
def test_a_task_that_leaves_something_recorded_out_is_noticed(tmp_path: Path, how: str) -> None:
    """It was not where a task ended by an exception or was cancelled: a call in doubt was dropped,
    in a run that said that it was done."""
    code = ["old"]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        async def other() -> None:
            if code == ["new"] and how != "was cancelled":
                raise KeyError("other")
            await fetch("a")
            await fetch("b")

        task = asyncio.create_task(other())
        if code == ["new"] and how == "was cancelled":
            task.cancel()
        await asyncio.wait([task])
        return "done"

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    asyncio.run(live())
    code[:] = ["new"]
    with perdure.open(tmp_path / "a.db") as store:
        drift = replay(store, act).drift
    assert drift is not None
    assert how in drift.problem and "other#1/fetch#1" in drift.problem


def test_an_edit_that_was_cancelled_before_it_began_has_its_place(tmp_path: Path) -> None:
    """It left no trace, and on replay it took what another edit of that name had recorded."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def holds() -> None:
            async with run.edit("held"):
                await asyncio.sleep(0.02)

        async def edits() -> None:
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    async with run.edit("counted") as draft:
                        draft["n"] = draft.get("n", 0) + 1

        one = asyncio.create_task(holds())
        other = asyncio.create_task(edits())
        await asyncio.sleep(0.001)
        other.cancel()
        await asyncio.gather(one, other)
        return await report(run.state.get("n"))

    assert gone_over_again(act, tmp_path) == 1


def test_what_takes_many_rounds_is_through_before_the_next_outcome(tmp_path: Path) -> None:
    """Twelve rounds of the loop were kept free behind an outcome, on replay. What took more, as it
    gives way while it computes or comes through many tasks, came behind the next one."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        parsed: list[str] = []

        async def deep(left: int) -> str:
            return await (asyncio.create_task(deep(left - 1)) if left else fetch("deep"))

        async def one(found: Any) -> Any:
            parsed.append(await found)
            for _ in range(50):
                await asyncio.sleep(0)
            return await report(list(parsed))

        return await asyncio.gather(one(deep(20)), one(fetch("flat")), one(fetch("last", 0.01)))

    gone_over_again(act, tmp_path)


def test_a_program_that_ends_cancels_no_task_of_its_runs(tmp_path: Path) -> None:
    """A SystemExit in a callback ends the loop, and all of its tasks are cancelled, those of a run
    before the one that drives it: that was recorded as something that the run had done."""
    cleaned: list[str] = []
    napping = asyncio.Event()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def naps() -> None:
            napping.set()
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                cleaned.append(await report("cancelled"))
                raise

        return await asyncio.gather(run.wait_for("go"), naps(), fetch("x"))

    async def ends() -> None:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            driver = asyncio.create_task(store.run(act, "a"))
            await napping.wait()
            here = asyncio.current_task()
            for task in sorted(asyncio.all_tasks() - {here}, key=lambda one: one is driver):
                task.cancel()
            await driver

    async def goes_on() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            await (await store.handle("a/act/main")).signal("go", 1)
            return await store.run(act, "a")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ends())
    assert not records(tmp_path, "cancelled") and not cleaned
    assert asyncio.run(goes_on()) == [1, None, "x"]


def test_a_program_that_ends_in_a_task_group_leaves_its_store(tmp_path: Path) -> None:
    """A step raised SystemExit, which ends the event loop; the group raised it once more, while the
    loop's tasks were being ended, and so ended that. The store stayed open, and the run was held:
    whoever asked for it again waited for ever."""
    ends = [SystemExit("here")]

    @perdure.step
    async def step(number: int) -> int:
        await asyncio.sleep(0.001 * number)
        if number == 1 and ends:
            raise ends.pop()
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step(number)) for number in range(3)]
        return [task.result() for task in tasks]

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    with pytest.raises(SystemExit):
        asyncio.run(live())
    assert asyncio.run(live()) == [0, 1, 2]


def test_timers_are_recorded_now_and_then_where_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that looks for something every so often, for days, must not keep that all in
    memory until its next commit."""
    monkeypatch.setattr(run_timers, "WAITING_MAX", 10)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        for _ in range(25):
            await asyncio.sleep(1)
        return await report("found")

    with own_time():
        assert gone_over_again(act, tmp_path) == "found"
    sizes = [len(record["fired"]) for record in records(tmp_path, "timers")]
    assert sum(sizes) == 25 and len(sizes) > 1 and max(sizes) < 20


def test_what_an_exception_kept_from_its_turn_has_it_all_the_same() -> None:
    """One that comes in while an outcome is handed over, or where its commit is told of: it was
    taken for handed over, and its task waited for ever."""
    tries: list[str] = []

    def call() -> bool:
        tries.append("")
        if len(tries) == 1:
            raise MemoryError
        return True

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        pace = Pace(lambda: False)
        pace.offer(PacedEvent("", "one", call))
        untold = PacedEvent("", "other")
        async with asyncio.timeout(30):
            await pace.turn(untold)
        assert pace.handed == "other" and not pace.has_waiting

    asyncio.run(main())
    assert len(tries) == 2


@pytest.mark.parametrize("naps", [False, True])
def test_the_block_of_a_cancelled_edit_is_gone_through_again(tmp_path: Path, naps: bool) -> None:
    """Its task was cancelled in it, or while it was committed. On replay that came before the edit
    had its turn, and its block was left out, with the values that it had drawn."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        drawn: list[str] = []

        async def edits() -> None:
            with suppress(asyncio.CancelledError):
                async with run.edit("drawn") as draft:
                    drawn.append(str(run.uuid()))
                    draft["drawn"] = drawn[0]
                    if naps:
                        await asyncio.sleep(10)
            drawn.append(str(run.uuid()))

        task = asyncio.create_task(edits())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await task
        return [await report(list(drawn)), run.state.get("drawn")]

    gone_over_again(act, tmp_path)


def test_a_value_drawn_in_a_block_may_be_recorded_before_the_edit(tmp_path: Path) -> None:
    """It joins the next commit, which was that of another task's step. Then the process died: the
    edit, which is not recorded, was said to be called in the place of the value."""
    deaths = [DiedError()]
    drawn: list[str] = []

    @perdure.tool(on_crash="retry")
    async def dies() -> None:
        if deaths:
            raise deaths.pop()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        over = asyncio.Event()

        async def edits() -> None:
            async with run.edit("drawn") as draft:
                drawn.append(str(run.uuid()))
                await over.wait()
                draft["drawn"] = drawn[-1]

        task = asyncio.create_task(edits())
        await fetch("a")
        await dies()
        over.set()
        await task
        return run.state["drawn"]

    async def live() -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            return await store.run(act, "a")

    with pytest.raises(DiedError):
        asyncio.run(live())
    assert asyncio.run(live()) == drawn[0] == drawn[1]


def test_a_timeout_takes_away_no_outcome_that_is_recorded(tmp_path: Path) -> None:
    """A card was charged. When the run was gone on with, another task computed for longer than the
    payment's timeout, and the payment had to wait for its turn behind that: the timeout struck, the
    card's outcome was dropped, and the bank account was charged, too."""
    computing, limits = [0.0, 0.4], [60.0, 0.2]
    paid: list[str] = []

    @perdure.tool(on_crash="fail")
    async def pay(how: str) -> str:
        await asyncio.sleep(0.05)
        paid.append(how)
        return how

    @perdure.agent(dict)
    async def checkout(run: perdure.AsyncRun[dict]) -> list[str]:
        async def payment() -> str:
            try:
                async with asyncio.timeout(limits.pop(0)):
                    how = await pay("card")
            except TimeoutError:
                how = await pay("bank transfer")
            await run.wait_for("go")
            return how

        async def prices() -> str:
            await asyncio.to_thread(time.sleep, computing.pop(0))
            return await fetch("rates")

        return list(await asyncio.gather(payment(), prices()))

    async def life(*, last: bool) -> Any:
        async with perdure.open_async(tmp_path / "a.db", durability="os") as store:
            if not last:
                task = asyncio.create_task(store.run(checkout, "a"))
                handle = await store.start(checkout, "a")
                while await handle.status() != "waiting":
                    await asyncio.sleep(0.005)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                return await handle.signal("go", 1)
            return await store.run(checkout, "a")

    asyncio.run(life(last=False))
    assert asyncio.run(life(last=True)) == ["card", "rates"] and paid == ["card"]


@pytest.mark.parametrize("way", ["gather", "return"])
def test_a_function_that_ends_hears_of_nothing_more(way: str) -> None:
    """It left a `gather` by an error of one task, while two others were at their steps. Before they
    were cancelled, the outcome of one was handed over, and the next step that it took recorded:
    when the run was gone over again, it was cancelled before it came there."""

    @perdure.step
    async def read(number: int) -> int:
        return number

    async def pages() -> None:
        for number in range(6):
            await read(number)

    async def price() -> None:
        await read(0)
        raise ValueError

    @perdure.agent(dict)
    async def look(run: perdure.AsyncRun[Any]) -> str:
        if way == "return":
            left = [asyncio.create_task(pages()) for _ in range(2)]
            await asyncio.sleep(0.0005)
            return f"without {len(left)}"
        try:
            await asyncio.gather(pages(), pages(), price())
        except ValueError:
            return "no price"
        raise AssertionError

    async def often() -> None:
        for _ in range(8):
            async with perdure.open_async("memory://") as store:  # it is fast enough
                said = await store.run(look, "a")
                assert await asyncio.to_thread(lambda: replay(store._store, look).check()) == said

    asyncio.run(often())


def test_a_cancelled_call_that_had_not_ended_ends_behind_what_is_recorded() -> None:
    """Two tasks were cancelled. One was in a synchronous step, and would hear of that when it was
    through; the process ended before. On replay it heard of it first, ahead of the other one, whose
    cancellation was recorded: the run stopped."""

    @perdure.step
    def parse() -> None:
        time.sleep(0.4)

    @perdure.agent(dict)
    async def both(run: perdure.AsyncRun[Any]) -> list[str]:
        order: list[str] = []

        async def task(name: str, call: Any) -> None:
            try:
                await call
            finally:
                order.append(name)
                await fetch(f"{name} was left; so far {order}")

        tasks = [
            asyncio.create_task(task("parse", run.call(parse))),
            asyncio.create_task(task("fetch", fetch("it", 60.0))),
        ]
        await asyncio.wait(tasks, timeout=0.03)
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
        return order

    async def again() -> None:
        async with perdure.open_async("memory://") as store:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await store.run(both, "a")
            assert await store.run(both, "a") == ["fetch", "parse"]

    asyncio.run(again())
