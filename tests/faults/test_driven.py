"""What an exception left behind once in the call that drives an asynchronous run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncStore
from perdure.engine.dispatch import async_drive
from perdure.engine.dispatch.async_drive import AsyncDrive
from perdure.engine.dispatch.branch_lease import BranchLease
from perdure.engine.execution.async_performer import AsyncPerformer
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.run_tasks import RunTasks
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.journal.leaving import Leaving
from perdure.state.live_object import Live
from perdure.storage.log.committer import Committer
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.injecting import Helper, TimeLimit
from tests.faults.run_scenes import add, counting, double, gathering
from tests.faults.running import hurried


class Resting:
    """A run of two steps side by side, which rest in its first execution; whether they have begun
    there."""

    def __init__(self) -> None:
        self.executions = 0
        self.begun = asyncio.Semaphore(0)

        @perdure.step
        async def rest(n: int) -> int:
            self.begun.release()
            await asyncio.sleep(0.0 if self.executions > 1 else 3600.0)
            return n

        @perdure.agent(dict)
        async def resting(run: perdure.AsyncRun[dict]) -> int:
            self.executions += 1
            tasks = [asyncio.create_task(rest(n)) for n in (1, 2)]
            if self.executions == 1:
                await self.both_begun()
                self.then()
            return sum([await task for task in tasks])

        self.function = resting
        self.then: Callable[[], None] = lambda: None

    async def both_begun(self) -> None:
        for _ in range(2):
            await self.begun.acquire()


def in_time(main: Callable[[Store], Any]) -> Any:
    """What a coroutine gives that is not waited for in vain."""
    results: list[Any] = []
    with perdure.open("memory://") as store:
        Helper().call(lambda: results.append(asyncio.run(main(store))), 20.0)
    return results[0]


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, behind: bool = False) -> None:
    """That function is interrupted the first time, where it begins or behind its end."""
    real = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        if behind:
            real(*args)
        raise MemoryError("injected")

    monkeypatch.setattr(owner, name, interrupted)


def test_i8_tasks_that_are_cancelled_for_an_error_from_outside_are_not_by_their_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError came where the function's own error was noted. Its other tasks were cancelled
    for that, and it was recorded of their calls as if the function had cancelled them. On replay
    they waited for that, which nobody did any more."""

    def fail() -> None:
        raise LookupError

    async def main(store: Store) -> int:
        run = Resting()
        run.then = fail
        once(monkeypatch, async_drive, "Carried")
        with pytest.raises((MemoryError, perdure.PerdureError)):
            await AsyncStore(store).run(run.function, "a")
        return await AsyncStore(store).run(run.function, "a")

    assert in_time(main) == 3


@pytest.mark.parametrize("more", [0, 1, 2])
def test_i8_tasks_whose_driver_was_interrupted_are_no_longer_of_the_run(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """MemoryErrors came behind the making of the function's task, and where that was seen to. The
    function went on; as its loop was ended, it was recorded of its steps that it had cancelled
    them. And the caller who went on from there could not run it again: the lease was his."""

    async def main(store: Store) -> int:
        run = Resting()
        once(monkeypatch, RunTasks, "begin", behind=True)
        if more > 0:
            once(monkeypatch, AsyncDrive, "_end_tasks")
        if more > 1:
            once(monkeypatch, BranchLease, "release")
        with pytest.raises(MemoryError):
            await AsyncStore(store).run(run.function, "a")
        for _ in range(20):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert bool(left) == bool(more)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        run.executions = 1  # in any case
        return await AsyncStore(store).run(run.function, "a")

    assert in_time(main) == 3


@pytest.mark.parametrize("behind", [False, True])
def test_i8_a_task_that_was_made_and_not_noted_ends_with_its_run(
    monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """A MemoryError came behind the making of a task, before it was noted as the run's. The
    function took that for what `create_task` raises, and returned; nobody ended the task, which
    went on behind the run's end."""
    crashes = iter([True])

    @perdure.agent(dict)
    async def making(run: perdure.AsyncRun[dict]) -> int:
        if next(crashes, False):
            once(monkeypatch, RunTasks, "add", behind=behind)
        try:
            task = asyncio.create_task(add(1))
        except MemoryError:
            return -1
        return await task

    async def main(store: Store) -> int:
        with pytest.raises(perdure.PerdureError, match="MemoryError: injected"):
            await AsyncStore(store).run(making, "a")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return await AsyncStore(store).run(making, "a")

    assert in_time(main) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_i8_an_edits_commit_whose_task_has_ended_is_taken_in_by_who_waits_behind_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """Ctrl-C came in the task of an edit, when its commit had landed and was to be taken in there.
    A step beside it waited behind that commit for ever, and with it the run's caller."""
    wait_again = RunWriter._wait_again

    def interrupted(writer: RunWriter, item: Item, wake: Callable[[], None]) -> Any:
        if item.recording is not None:
            monkeypatch.setattr(RunWriter, "_wait_again", wait_again)
            raise kind("injected")
        return wait_again(writer, item, wake)

    @perdure.agent(dict)
    async def editing(run: perdure.AsyncRun[dict]) -> int:
        async def edit() -> None:
            async with run.edit("n") as draft:
                draft["n"] = 1

        edited = asyncio.create_task(edit())
        found = await asyncio.gather(*(add(n) for n in range(3)))
        await edited
        return sum(found)

    def call() -> None:
        monkeypatch.setattr(RunWriter, "_wait_again", interrupted)
        with pytest.raises((kind, perdure.PerdureError)):
            asyncio.run(main())
        results.append(asyncio.run(main()))

    async def main() -> int:
        return await AsyncStore(store).run(editing, "a")

    results: list[int] = []
    with hurried(), perdure.open("memory://") as store:
        Helper().call(call, 15.0)
    assert results == [6]


def test_i8_a_commit_that_is_queued_where_nobody_leads_is_seen_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C came when a run's commit was queued and nobody asked to lead yet, and once more before
    it was taken out of the queue. Nobody took it for left, and steps beside it waited behind it for
    ever."""
    submit_soon = Committer.submit_soon

    def interrupted(committer: Committer, proposal: Any, done: Any) -> None:
        if not any(record.t == "step" for record in proposal.riders.records):
            return submit_soon(committer, proposal, done)
        monkeypatch.setattr(Committer, "submit_soon", submit_soon)
        proposal.call_when_settled(done)
        committer._queue.append(proposal)
        raise KeyboardInterrupt("injected")

    @perdure.agent(dict)
    async def adding(run: perdure.AsyncRun[dict]) -> int:
        return sum(await asyncio.gather(*(add(n) for n in range(3))))

    def call() -> None:
        monkeypatch.setattr(Committer, "submit_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        results.append(asyncio.run(main()))

    async def main() -> int:
        return await AsyncStore(store).run(adding, "a")

    results: list[int] = []
    with hurried(), perdure.open("memory://") as store:
        Helper().call(call, 15.0)
    assert results == [6]


def test_i8_what_is_held_of_a_state_that_was_torn_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A RecursionError came where the state that a function sees was brought to an edit of its own,
    and another where the run was to be interrupted for that. The event loop logged it. The function
    went on with the object that it held, beside which another had been read from the log: it failed
    for good, of what no replay would find."""

    async def main(store: Store) -> int:
        await (await AsyncStore(store).agent("a", State, initial=State())).update(_grow)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        once(monkeypatch, Live, "rejoin")
        once(monkeypatch, Leaving, "failed")
        with pytest.raises(perdure.PerdureError, match=r"ended a change|could not be"):
            await AsyncStore(store).run(counting, "a")
        return await AsyncStore(store).run(counting, "a")

    assert in_time(main) == 2


def _grow(draft: State) -> None:
    draft.n += 1


def test_a_commit_that_two_exceptions_ended_is_told_of_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A RecursionError came where a run's next commit was prepared, and another where the run was
    to be interrupted for that. Its caller got "was withdrawn", without a word of what, and why."""
    go_on = RunWriter._go_on

    def interrupted(writer: RunWriter, flight: Any, *answer: Any) -> bool:
        if writer._queue:
            monkeypatch.setattr(RunWriter, "_go_on", go_on)
            fails_once(writer._working, "committing_delta")
            fails_once(writer, "_on_failure")
        return go_on(writer, flight, *answer)

    async def main(store: Store) -> int:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        monkeypatch.setattr(RunWriter, "_go_on", interrupted)
        with pytest.raises(perdure.PerdureError, match=r"ended its commit") as caught:
            await AsyncStore(store).run(gathering, "a")
        assert caught.value.retry
        return await AsyncStore(store).run(gathering, "a")

    with hurried():
        assert in_time(main) == 6


def fails_once(one: object, name: str) -> None:
    real = getattr(one, name)

    def interrupted(*args: Any) -> Any:
        setattr(one, name, real)
        raise RecursionError("injected")

    setattr(one, name, interrupted)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_thread_that_went_on_is_told_so_by_functions_of_both_kinds(asynchronous: bool) -> None:
    """A step raised SystemExit in a thread of a run, which caught that and made another call. To
    the caller of a synchronous function it was told that its thread had gone on; the caller of an
    asynchronous one got the SystemExit, as if it had been let through."""
    left: list[BaseException] = []

    @perdure.step
    def leave() -> None:
        raise left[0]

    def go_on() -> int:
        with suppress(SystemExit):
            leave()
        return double(1)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return go_on()

    @perdure.agent(dict)
    async def aact(run: perdure.AsyncRun[dict]) -> int:
        return await asyncio.to_thread(go_on)

    async def main(store: Store) -> object:
        left.append(SystemExit())
        if asynchronous:
            return await AsyncStore(store).run(aact, "a")
        return await asyncio.to_thread(store.run, act, "a")

    with pytest.raises(perdure.PerdureError, match=r"SystemExit left a step .* went on"):
        in_time(main)


class Replayed:
    """A run of steps side by side, and one behind them, that was left there; what it does when it
    is gone over again, once."""

    def __init__(self) -> None:
        self.executions = 0
        self.then: Callable[[], None] = lambda: None

        @perdure.agent(dict)
        async def replayed(run: perdure.AsyncRun[dict]) -> int:
            self.executions += 1
            tasks = [asyncio.create_task(add(n)) for n in range(3)]
            await asyncio.sleep(0)
            if self.executions == 2:
                self.then()
            found = sum([await task for task in tasks])
            found += await add(found)
            if self.executions == 1:
                raise KeyboardInterrupt
            return found

        self.function = replayed

    async def is_left(self, store: Store) -> None:
        with pytest.raises(KeyboardInterrupt):
            await AsyncStore(store).run(self.function, "a")


def test_i8_what_comes_as_a_recorded_step_is_taken_again_is_none_of_the_functions_doing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError came as a task of a replay waited for its turn. Its function got it as what the
    step had raised, and ended with it: the run needed attention for a change of its code."""

    async def main(store: Store) -> int:
        run = Replayed()
        await run.is_left(store)
        once(monkeypatch, AsyncPerformer, "_take_again")
        with pytest.raises(perdure.PerdureError, match="MemoryError: injected") as caught:
            await AsyncStore(store).run(run.function, "a")
        assert not isinstance(caught.value, perdure.NeedsAttention)
        return await AsyncStore(store).run(run.function, "a")

    assert in_time(main) == 13


@pytest.mark.parametrize("kind", [TimeLimit, MemoryError])
def test_i8_a_function_that_came_short_did_not_cancel_its_tasks(kind: type[Exception]) -> None:
    """A soft time limit came in a function that was being gone over again. The run stopped, as it
    had gone on there before; but first it was recorded of its other tasks that the function had
    cancelled them. No code could go on from that: the next replay waited a minute for their being
    cancelled, and needed attention, for ever."""

    async def main(store: Store) -> int:
        run = Replayed()
        await run.is_left(store)

        def fail() -> None:
            raise kind("injected")

        run.then = fail
        with pytest.raises(perdure.PerdureError, match=f"{kind.__name__}: injected") as caught:
            await AsyncStore(store).run(run.function, "a")
        assert isinstance(caught.value, perdure.NeedsAttention) == (kind is TimeLimit)
        return await AsyncStore(store).run(run.function, "a")

    assert in_time(main) == 13
