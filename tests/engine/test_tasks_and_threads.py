"""Tasks and threads of a run: when they have changed, their edits, `run.map`, `run.executor`, and
plain functions that are called from asynchronous code."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from typing import Any

import pytest

import perdure
from perdure.engine.execution import run_edits
from perdure.engine.journal import release_order
from perdure.state.snapshot_age import SinceSnapshot
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import Background

# -- stalls ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stalls_soon")
def test_fewer_tasks_than_before_stop_the_run(runs: Async, crash: Crashes, fetch: Any) -> None:
    """What is recorded after the missing task's call waits for it, for ever."""
    count = 3

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        await asyncio.gather(*(fetch(f"f{n}", 0.02 * (3 - n)) for n in range(count)))
        crash("after")
        return "done"

    crash.arm("after")
    runs.crash(act)
    count = 2
    with pytest.raises(perdure.NeedsAttention, match="fetch#3"):
        runs.run(act)
    assert runs.info().status == "needs_attention"
    count = 3
    assert runs.run(act) == "done"


@pytest.mark.usefixtures("stalls_soon")
def test_a_task_that_ends_early_stops_the_run(runs: Async, crash: Crashes, fetch: Any) -> None:
    calls = 2

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        async def several() -> None:
            for number in range(calls):
                await fetch(f"call {number}")

        await asyncio.gather(several(), several())
        crash("after")

    crash.arm("after")
    runs.crash(act)
    calls = 1
    with pytest.raises(perdure.NeedsAttention, match="ended, where it had recorded"):
        runs.run(act)


def test_a_task_that_does_something_unrecorded_is_waited_for(
    runs: Async, crash: Crashes, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was asked without recording it took longer than the patience of its sibling,
    whose next call was recorded after it: the run was taken to be another one."""
    monkeypatch.setattr(release_order, "PROVEN_S", 0.05)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        async def slow() -> None:
            await asyncio.sleep(0.3)
            await fetch("slow")

        async def quick() -> None:
            await asyncio.sleep(0.6 if not crash.calls else 0)
            await fetch("quick")

        await asyncio.gather(slow(), quick())
        crash("after")
        return "done"

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == "done"


def test_a_call_that_moved_into_a_thread_stops_the_run_as_soon_as_that_is_plain(
    place: Place, crash: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silent for a minute: the thread waited for the function's own call, which is recorded
    before its, and the function for the thread."""
    monkeypatch.setattr(release_order, "PROVEN_S", 0.05)
    monkeypatch.setattr(release_order, "STALL_S", 3600.0)

    @perdure.step
    def look(number: int) -> int:
        return number

    @perdure.agent(dict, name="f")
    def old(run: perdure.Run[dict]) -> int:
        found = look(1)
        crash("after")
        return found

    @perdure.agent(dict, name="f")
    def new(run: perdure.Run[dict]) -> int:
        return run.map(look, [1])[0]

    store = place.open()
    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(old, "a")
    stopped = Background(lambda: store.run(new, "a"))
    with pytest.raises(perdure.NeedsAttention, match=r"map#1/look#1/look waits for step look#1"):
        stopped.join()
    assert store.run(old, "a") == 1


def test_a_thread_that_does_something_unrecorded_is_waited_for(
    place: Place, crash: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as for tasks: it is no proof that the others wait."""
    monkeypatch.setattr(release_order, "PROVEN_S", 0.02)
    slow = 0.0

    @perdure.step
    def look(number: int) -> int:
        return number

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[int]:
        def one(number: int) -> int:
            time.sleep(slow if number == 0 else 0.05)
            return look(number)

        found = run.map(one, [0, 1, 2])
        crash("after")
        return found

    store = place.open()
    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(f, "a")
    slow = 0.3
    assert store.run(f, "a") == [0, 1, 2]


# -- edits -----------------------------------------------------------------------------------------


def test_edits_of_several_tasks_come_one_after_the_other(runs: Async, crash: Crashes) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        async def count(number: int) -> None:
            await asyncio.sleep(0.01 * ((number * 7) % 5))
            async with run.edit(f"by {number % 2}") as draft:
                seen = len(draft.setdefault("list", []))
                await asyncio.sleep(0.005)
                assert len(draft["list"]) == seen
                draft["list"].append(number)
            await run.call(abs, number)

        await asyncio.gather(*(count(number) for number in range(6)))
        crash("after")
        return list(run.state["list"])

    crash.arm("after", "after")
    runs.crash(act)
    runs.crash(act)
    got = runs.run(act)
    assert sorted(got) == list(range(6))
    assert runs.store.agent("a", dict).state["list"] == got


def test_a_snapshot_does_not_hold_what_an_open_edit_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step was recorded while another task had an edit open, which it then gave up; a snapshot
    was due with that commit, and had the half of the edit in it."""
    monkeypatch.setattr(SinceSnapshot, "due", lambda *args: True)
    kept = place.open()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        opened = asyncio.Event()

        async def giving_up() -> None:
            with pytest.raises(ZeroDivisionError):
                async with run.edit("never") as draft:
                    draft["never"] = 1
                    opened.set()
                    await asyncio.sleep(0.3)
                    raise ZeroDivisionError

        async def working() -> None:
            await opened.wait()
            for number in range(5):
                await run.call(abs, number)

        await asyncio.gather(giving_up(), working())

    Async(place).run(act)
    assert kept.agent("a", dict).state == {}
    kept.agent("a", dict).verify()


def test_an_edit_in_an_edit_of_the_same_loop_is_refused(runs: Async) -> None:
    """A plain function whose framework runs a loop: the second task waited for the first one's
    edit, and so did the loop, for ever."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        async def editing(number: int) -> None:
            with run.edit(f"edit {number}") as draft:
                draft[str(number)] = number
                await asyncio.sleep(0.01)

        async def both() -> Any:
            return await asyncio.gather(editing(1), editing(2), return_exceptions=True)

        asyncio.run(both())

    with pytest.raises(perdure.Conflict, match="has an edit open"):
        runs.store.run(act, "a")


def test_no_function_goes_on_from_an_edit_that_did_not_begin(
    runs: Async, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit waited a minute for another one, and raised an error that the function caught: it
    called a tool instead. Nothing in the log said so, and each replay waited for ever: for the edit
    to have its turn, which was behind the outcome of that call."""
    monkeypatch.setattr(run_edits, "LOCK_MAX_S", 0.01)
    slow, paid = [True], []

    @perdure.tool(on_crash="ask")
    def pay() -> None:
        paid.append(1)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        opened, waited = threading.Event(), threading.Event()

        def first() -> None:
            with run.edit("first") as draft:
                draft["first"] = 1
                opened.set()
                if slow:
                    waited.wait()

        def second() -> None:
            opened.wait()
            try:
                with run.edit("second") as draft:
                    draft["second"] = 2
            except perdure.Conflict:
                pay()
            finally:
                waited.set()

        with run.executor() as threads:
            for done in [threads.submit(first), threads.submit(second)]:
                done.result()
        run.wait_for("go on")

    with pytest.raises(perdure.Conflict, match="has an edit open"):
        runs.store.run(act, "a")
    slow.clear()
    monkeypatch.setattr(run_edits, "LOCK_MAX_S", 60)
    run_until_waiting(runs.store, act, "a").signal("go on")
    runs.store.run(act, "a")
    assert runs.store.agent("a", dict).state == {"first": 1, "second": 2}
    assert not paid


# -- map and threads -------------------------------------------------------------------------------


def test_map_on_threads_calls_all_and_raises_the_first_error_by_order(
    runs: Async, crash: Crashes
) -> None:
    """What had not begun when one failed was left out, which hung on who was faster: on replay the
    others waited for calls that nobody made any more."""
    together: list[int] = []
    most = [0]

    @perdure.step
    def half(number: int) -> int:
        together.append(number)
        most[0] = max(most[0], len(together))
        crash.note(number)
        time.sleep(0.01)
        together.remove(number)
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        with pytest.raises(ValueError, match="1 is odd"):
            run.map(half, range(8), limit=3)
        halves = run.map(half, [2, 4, 6], limit=2)
        crash("after")
        return halves

    crash.arm("after")
    with pytest.raises(CrashError):
        runs.store.run(act, "a")
    assert runs.store.run(act, "a") == [1, 2, 3]
    assert len(crash.calls) == 11
    assert most[0] <= 3


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_map_in_a_loop_does_the_same(runs: Async, crash: Crashes, kind: str) -> None:
    going = [0, 0]

    @perdure.step
    async def half(number: int) -> int:
        going[0] += 1
        going[1] = max(going)
        crash.note(number)
        await asyncio.sleep(0.01)
        going[0] -= 1
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    @perdure.step
    def half_of(number: int) -> int:
        crash.note(number)
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    function: Any = half if kind == "async" else half_of

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        with pytest.raises(ValueError, match="1 is odd"):
            await run.map(function, range(8), limit=3)
        halves = await run.map(function, [2, 4, 6], limit=2)
        crash("after")
        return halves

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == [1, 2, 3]
    assert len(crash.calls) == 11
    assert going[1] <= 3


def test_the_executor_numbers_what_it_is_given(runs: Async, crash: Crashes) -> None:
    drawn = iter(range(100))

    @perdure.step
    def draw() -> int:
        return next(drawn)

    def task(wait: float) -> int:
        time.sleep(wait)
        return draw()

    seen: list[list[int]] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        waits = [0.05, 0.0, 0.1] if not seen else [0.0, 0.1, 0.0]
        with run.executor(3) as threads:
            futures = [threads.submit(task, wait) for wait in waits]
            seen.append([future.result() for future in futures])
        crash("after")

    crash.arm("after")
    with pytest.raises(CrashError):
        runs.store.run(act, "a")
    runs.store.run(act, "a")
    assert seen[0] == seen[1]


def test_to_thread_takes_the_run_along(runs: Async, crash: Crashes) -> None:
    @perdure.step
    def look(number: int) -> int:
        crash.note(number)
        return number * 10

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        got = await asyncio.gather(*(asyncio.to_thread(look, number) for number in range(4)))
        crash("after")
        return list(got)

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == [0, 10, 20, 30]
    assert sorted(crash.calls) == [0, 1, 2, 3]


# -- sync calls from async code --------------------------------------------------------------------


def test_a_direct_call_of_a_sync_step_is_recorded_and_warns_once(
    runs: Async, crash: Crashes
) -> None:
    @perdure.step
    def look(number: int) -> int:
        crash.note(number)
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        total = look(1) + look(2)
        crash("after")
        return total

    crash.arm("after")
    with pytest.warns(RuntimeWarning, match=r"await run\.call\(look, …\)") as noted:
        runs.crash(act)
    assert len(noted) == 1 and noted[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert runs.run(act) == 3
    assert crash.calls == [1, 2]


@pytest.mark.filterwarnings("ignore:.* is synchronous")
def test_a_direct_call_does_not_wait_for_tasks_that_it_holds_up(
    runs: Async, crash: Crashes, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On replay it waited for the turn of a task of the very loop that it was holding up; and,
    live, for a commit whose owner was such a task."""

    @perdure.step
    def look(number: int) -> int:
        crash.note(number)
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        async def first() -> int:
            await fetch("x")
            return look(1) + look(2)

        async def second() -> int:
            await fetch("y")
            async with run.edit("both") as draft:
                draft["y"] = 1
            return look(3)

        total = sum(await asyncio.gather(first(), second(), first()))
        crash("after")
        return total

    crash.arm("after")
    runs.crash(act)
    began = time.monotonic()
    assert runs.run(act) == 9
    assert time.monotonic() - began < 20
    assert len(crash.calls) == 8


def test_a_task_that_nobody_awaits_is_cancelled_and_that_is_said(
    runs: Async, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool that was started by `create_task` and never awaited was cancelled in silence when the
    function returned."""
    inside = asyncio.Event()

    @perdure.tool
    async def send() -> None:
        inside.set()
        await asyncio.sleep(30)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        kept = asyncio.create_task(send())
        await inside.wait()
        assert not kept.done()
        return "returned"

    assert runs.run(act) == "returned"
    assert "returned without awaiting send#1: cancelled" in caplog.text
    assert [e.state for e in runs.store.handle("a/act/main").effects()] == ["cancelled"]


def test_tasks_that_are_made_in_another_order_are_told_how_to_be_made(
    runs: Async, crash: Crashes, fetch: Any
) -> None:
    """`asyncio.as_completed` puts coroutines into a set, and makes tasks of them in the order of
    their addresses: the run stopped, and the error named clocks and dice."""
    order = [0, 1]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        await asyncio.gather(*(fetch(f"f{number}") for number in order))
        crash("after")
        return "done"

    crash.arm("after")
    runs.crash(act)
    order.reverse()
    with pytest.raises(perdure.NeedsAttention, match="other arguments") as stopped:
        runs.run(act)
    assert "give it tasks that asyncio.create_task has made" in stopped.value.hint
    order.reverse()
    assert runs.run(act) == "done"
