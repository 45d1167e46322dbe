"""Several things at once inside a run: each finds its own records, and the order in which they came
back is the same on replay, whatever is done next because of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import perdure
from perdure.engine.journal import release_order
from tests.engine.conftest import Async, CrashError, Crashes

# -- order -----------------------------------------------------------------------------------------


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
        said = ""
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
    monkeypatch.setattr(release_order, "STALL_S", 0.2)

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

    patience: list[Callable[[], object]] = []

    @perdure.tool(on_crash="ask")
    def pay(cents: int) -> int:
        crash.note(cents)
        patience[-1]()
        time.sleep(0.3)
        return cents

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(0.05 if crash.calls else None) as limit:
                now = partial(limit.reschedule, 0.0)
                patience.append(partial(loop.call_soon_threadsafe, now))
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
    from perdure.engine.execution.run_writer import RunWriter

    tasks: list[asyncio.Task[Any]] = []
    written = RunWriter.write_async

    async def write(self: RunWriter, item: Any, new_wait: Any) -> None:
        ours = any(record.place.startswith("child#1/") for record in item.riders.records)
        if ours and tasks:
            tasks.pop().cancel()
        await written(self, item, new_wait)

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


# -- places ----------------------------------------------------------------------------------------


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
