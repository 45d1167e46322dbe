"""Several things at once inside a run: each finds its own records, and the order in which they came
back is the same on replay, whatever is done next because of it."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine import turns
from perdure.state.snapshotting import SinceSnapshot
from tests.engine.conftest import CrashError, Crashes, Place


class Async:
    """Runs async agent functions, each time in a store and a loop of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kept = place.open()  # a memory store lives as long as it is open

    def run(self, function: Any, *args: Any) -> Any:
        async def main() -> Any:
            async with perdure.open_async(self._place.url, durability="os") as store:
                return await asyncio.wait_for(store.run(function, "a", *args), 60)

        return asyncio.run(main())

    def crash(self, function: Any, *args: Any) -> None:
        with pytest.raises(CrashError):
            self.run(function, *args)

    def info(self, name: str = "act") -> Any:
        return self._kept.handle(f"a/{name}/main").info

    @property
    def store(self) -> Any:
        return self._kept


@pytest.fixture
def runs(place: Place) -> Async:
    return Async(place)


@pytest.fixture
def stalls_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STALL_S", 1.0)
    monkeypatch.setattr(turns, "PROVEN_S", 0.1)


@pytest.fixture
def fetch(crash: Crashes) -> Any:
    """A step that takes so long, and notes each time that it is really called."""

    @perdure.step
    async def fetch(what: str, seconds: float = 0.0) -> str:
        await asyncio.sleep(seconds)
        crash.note(what)
        return what.upper()

    return fetch


# -- order ---------------------------------------------------------------------------------------


def test_gathered_calls_find_their_records(runs: Async, crash: Crashes, fetch: Any) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        got = await asyncio.gather(*(fetch(f"f{n}", 0.02 * (3 - n)) for n in range(4)))
        crash("after")
        return list(got)

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == ["F0", "F1", "F2", "F3"]
    assert sorted(crash.calls) == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("way", ["as_completed", "wait"])
def test_who_comes_first_decides_what_comes_next_on_replay_too(
    runs: Async, crash: Crashes, fetch: Any, way: str
) -> None:
    """On replay everything is there at once: the slow one, asked first, came first then, and the
    function went the other way."""

    async def through(layers: int, what: str, seconds: float) -> str:
        if layers:  # tasks in tasks: one outcome takes more rounds of the loop than another
            return await asyncio.create_task(through(layers - 1, what, seconds))
        return await fetch(what, seconds)  # type: ignore[no-any-return]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        tasks = [
            asyncio.create_task(through(0, "slow", 0.2)),
            asyncio.create_task(through(2, "quick", 0.0)),
            asyncio.create_task(through(1, "middling", 0.1)),
        ]
        order = []
        if way == "wait":
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tasks if task in done]:
                    tasks.remove(task)
                    order.append(await run.call(str.lower, task.result()))
        else:
            for next_one in asyncio.as_completed(tasks):
                order.append(await run.call(str.lower, await next_one))
        crash("after")
        return order

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == ["quick", "middling", "slow"]
    assert len(crash.calls) == 3


def test_those_of_one_commit_come_back_in_its_order_however_far_they_have_to_go(
    runs: Async, crash: Crashes
) -> None:
    """Recorded together, they were handed over together: who was through first hung on how many
    rounds of the loop each took, and replay has other ones."""
    orders: list[list[int]] = []

    @perdure.step
    async def quick(number: int) -> int:
        return number

    async def through(layers: int, number: int) -> int:
        if layers:
            return await asyncio.create_task(through(layers - 1, number))
        return await quick(number)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        tasks = [asyncio.create_task(through((7 * n) % 4, n)) for n in range(12)]
        order = [await next_one for next_one in asyncio.as_completed(tasks)]
        orders.append(order)
        kept = [await run.call(abs, number) for number in order]
        crash("after")
        return kept

    crash.arm("after", "after")
    runs.crash(act)
    runs.crash(act)
    assert runs.run(act) == orders[0]
    assert orders[0] == orders[1] == orders[2]


def test_nested_tasks_are_told_apart(runs: Async, crash: Crashes, fetch: Any) -> None:
    """All make the same calls; what differs is where in the tree of tasks they are."""
    answers = iter(range(100))

    @perdure.step
    async def draw() -> int:
        await asyncio.sleep(0)
        return next(answers)

    async def leaf(depth: int) -> Any:
        if depth:
            return await asyncio.gather(leaf(depth - 1), leaf(depth - 1), draw())
        return await draw()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        got = repr(await asyncio.gather(leaf(2), leaf(1), draw()))
        seen.append(got)
        crash("after")
        return got

    seen: list[str] = []
    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == seen[0] == seen[1]


def test_a_failing_sibling_ends_the_others_and_does_so_again(
    runs: Async, crash: Crashes, fetch: Any
) -> None:
    """What the group cancelled in mid-step is recorded as cancelled: on replay it is not given as
    if it had come through, nor made again."""

    @perdure.step
    async def failing() -> None:
        await asyncio.sleep(0.05)
        raise ValueError("no")

    @perdure.step
    async def long() -> None:
        crash.note("long began")
        await asyncio.sleep(60)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fetch("first"))
                group.create_task(long())
                group.create_task(failing())
        except* ValueError:
            pass
        after = await fetch("after")
        crash("after")
        return str(after)

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == "AFTER"
    assert sorted(crash.calls) == ["after", "first", "long began"]


def test_a_cancelled_tool_has_an_outcome_and_is_cancelled_again(
    runs: Async, crash: Crashes
) -> None:
    """It stood there as in doubt, though its task went on and did other things."""

    @perdure.tool(on_crash="ask")
    async def pay() -> None:
        crash.note("paying")
        await asyncio.sleep(60)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            async with asyncio.timeout(1):
                await pay()
        except TimeoutError:
            said = await run.call(str, "too slow")
        crash("after")
        return said

    crash.arm("after")
    runs.crash(act)
    assert [effect.state for effect in runs.store.handle("a/act/main").effects()] == ["cancelled"]
    assert runs.run(act) == "too slow"
    assert crash.calls == ["paying"]


def test_a_timeout_longer_than_a_stall_is_waited_for_again(
    runs: Async, crash: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled after a minute; on replay that was taken for changed code after ten
    seconds, and the run stopped for ever."""
    monkeypatch.setattr(turns, "STALL_S", 0.2)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            async with asyncio.timeout(0.6):
                await run.call(asyncio.sleep, 60)
        except TimeoutError:
            pass
        crash("after")
        return await run.call(str, "over")

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == "over"


def test_what_a_thread_did_for_a_cancelled_call_is_recorded(runs: Async, crash: Crashes) -> None:
    """The thread could not be ended, and did its work; the outcome was thrown away."""

    @perdure.tool(on_crash="ask")
    def pay(cents: int) -> int:
        crash.note(cents)
        time.sleep(0.3)
        return cents

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            async with asyncio.timeout(0.05):
                await run.call(pay, 5)
        except TimeoutError:
            pass
        crash("after")
        return await run.call(str, "over")

    crash.arm("after")
    runs.crash(act)
    (effect,) = runs.store.handle("a/act/main").effects()
    assert (effect.state, effect.result, crash.calls) == ("done", 5, [5])
    assert runs.run(act) == "over"
    assert crash.calls == [5]


def test_who_is_cancelled_while_its_outcome_is_written_is_so_again(
    runs: Async, crash: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome was in the log, and the function had not seen it: on replay it got it, went
    another way than it had gone, and was taken for changed."""
    from perdure.engine.writing import RunWriter

    tasks: list[asyncio.Task[Any]] = []
    written = RunWriter.write_async

    async def write(self: RunWriter, item: Any) -> None:
        ours = any(record["place"].startswith("child#1/") for record in item.records)
        if ours and tasks:
            tasks.pop().cancel()
        await written(self, item)

    async def child(fetch_one: Callable[[], Any]) -> str:
        await fetch_one()
        return "came through"

    @perdure.step
    async def one() -> int:
        return 1

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        task = asyncio.create_task(child(one))
        tasks.append(task)
        (came,) = await asyncio.gather(task, return_exceptions=True)
        tasks.clear()
        if not isinstance(came, asyncio.CancelledError):
            return await run.call(str, "the other way")
        if replaying:
            task.cancel()
        said = await run.call(str, "cancelled")
        crash("after")
        return said

    replaying = False
    with monkeypatch.context() as patched:
        patched.setattr(RunWriter, "write_async", write)
        crash.arm("after")
        runs.crash(act)

    @perdure.agent(dict, name="act")
    async def again(run: perdure.AsyncRun[dict]) -> str:
        task = asyncio.create_task(child(one))
        asyncio.get_running_loop().call_later(0.2, task.cancel)
        (came,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(came, asyncio.CancelledError)
        return await run.call(str, "cancelled")

    assert runs.run(again) == "cancelled"


# -- places --------------------------------------------------------------------------------------


def test_a_call_that_was_not_recorded_does_not_take_the_place_of_a_later_one(
    runs: Async, crash: Crashes
) -> None:
    """Of three made at once by threads of a framework, the first and the third were recorded when
    the process died. The second then got the third one's place: its key, and its record."""
    keys: dict[int, set[str]] = {}
    hold = threading.Event()

    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> int:
        keys.setdefault(cents, set()).add(perdure.idempotency_key())
        return cents

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        import contextvars

        paid: dict[int, int] = {}

        def one(cents: int) -> None:
            if cents == 2 and hold.is_set():
                return  # as if the process had died before it got there
            paid[cents] = pay(cents)

        threads = []
        for cents in (1, 2, 3):
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(one, cents))
            thread.start()
            threads.append(thread)
            if hold.is_set():
                thread.join()
        for thread in threads:
            thread.join()
        crash("after")
        return sorted(paid.values())

    hold.set()
    crash.arm("after")
    with pytest.raises(CrashError):
        runs.store.run(act, "a")
    hold.clear()
    assert runs.store.run(act, "a") == [1, 2, 3]
    assert all(len(seen) == 1 for seen in keys.values())
    assert len(set.union(*keys.values())) == 3


def test_threads_of_one_scope_come_in_any_order(runs: Async, crash: Crashes) -> None:
    """On replay the one whose call was not recorded came first, and was taken for one that is
    called with other arguments."""
    import contextvars

    order = [1, 2, 3]

    @perdure.step
    def look(number: int) -> int:
        crash.note(number)
        if number == 3:
            crash("third")
        return number * 10

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        found: dict[int, int] = {}
        problems: list[BaseException] = []

        def one(number: int, wait: float) -> None:
            time.sleep(wait)
            try:
                found[number] = look(number)
            except BaseException as error:
                problems.append(error)

        threads = []
        for wait, number in enumerate(order):
            context = contextvars.copy_context()
            threads.append(threading.Thread(target=context.run, args=(one, number, wait * 0.05)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return [found[number] for number in (1, 2, 3)]

    crash.arm("third")
    with pytest.raises((CrashError, perdure.PerdureError)):
        runs.store.run(act, "a")
    order.reverse()
    assert runs.store.run(act, "a") == [10, 20, 30]
    assert sorted(crash.calls) == [1, 2, 3, 3]


def test_drift_of_arguments_names_the_parameter(runs: Async, crash: Crashes, fetch: Any) -> None:
    drift = iter("ab")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        what = next(drift)
        await asyncio.gather(fetch("same"), fetch(what))
        crash("after")

    crash.arm("after")
    runs.crash(act)
    with pytest.raises(perdure.NeedsAttention, match=r"other arguments \(what\).*'a'.*'b'") as seen:
        runs.run(act)
    assert "run.now()" in str(seen.value)


def test_what_differs_each_time_is_the_same_again_in_each_task(runs: Async, crash: Crashes) -> None:
    seen: list[Any] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        async def one(number: int) -> Any:
            await asyncio.sleep(0.01 * (number if not seen else 3 - number))
            values = run.now(), run.random(), run.uuid()
            await run.call(abs, number)
            return values

        seen.append(await asyncio.gather(*(one(number) for number in range(3))))
        crash("after")

    crash.arm("after")
    runs.crash(act)
    runs.run(act)
    assert seen[0] == seen[1]


# -- stalls --------------------------------------------------------------------------------------


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
    monkeypatch.setattr(turns, "PROVEN_S", 0.05)

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


# -- edits ---------------------------------------------------------------------------------------


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
    def act(run: perdure.Run[dict]) -> str:
        async def editing(number: int) -> None:
            with run.edit(f"edit {number}") as draft:
                draft[str(number)] = number
                await asyncio.sleep(0.01)

        async def both() -> list[Any]:
            return await asyncio.gather(editing(1), editing(2), return_exceptions=True)

        _, problem = asyncio.run(both())
        assert isinstance(problem, perdure.Conflict)
        return str(problem)

    assert "has an edit open" in runs.store.run(act, "a")


# -- map and threads -----------------------------------------------------------------------------


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


# -- waiting ---------------------------------------------------------------------------------------


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def _going_to_wait(place: Place, function: Any, while_waiting: Callable[[Any], Any]) -> Any:
    async with perdure.open_async(place.url, durability="os") as store:
        task = asyncio.create_task(store.run(function, "a"))
        handle = await store.handle("a/act/main") if False else None
        await while_waiting(store)
        del handle
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


def test_a_timeout_of_the_frameworks_keeps_a_waiting_run_in_memory(runs: Async) -> None:
    """Unloaded, it forgot the timeout, and waited for ever."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            async with asyncio.timeout(0.3):
                return str(await run.wait_for("never"))
        except TimeoutError:
            return "late"

    assert runs.run(act) == "late"


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
        lambda: not [
            thread for thread in threading.enumerate()
            if thread not in before and not thread.daemon
        ]
    )  # fmt: skip
    with pytest.raises(perdure.OutsideRun):
        perdure.fencing_token()
