"""What an exception in a callback of an event loop left behind once."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from itertools import count
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncStore
from perdure.engine.dispatch.branch_lease import BranchLease
from perdure.engine.execution.event_pacing import Pace
from perdure.engine.execution.run_tasks import RunTasks
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.execution.standstill import Rest
from perdure.state.event_loop.head_looks import Heads
from perdure.state.event_loop.loop_waits import LoopWait, _Bell
from perdure.state.event_loop.polling import Ticker
from perdure.storage.log.committer import Committer
from perdure.system.thread_pool import Job
from tests.faults.checking import State
from tests.faults.injecting import Helper
from tests.faults.run_scenes import add, gathering


class CrashError(BaseException):
    """As a death of the process in the middle of a run."""


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (_Bell, "_answer"),
        (Pace, "_round"),
        (Rest, "_hand_over"),
        (RunTasks, "_ended"),
        (RunWriter, "_submit_soon"),
    ],
    ids=["bell", "pace", "rest", "ended", "commit"],
)
def test_i8_what_a_callback_lost_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
    nth: int,
) -> None:
    """A time limit's exception came in a callback that the loop had called: it was logged, and the
    run waited for ever for what the callback had not done, or for the commit of a task that it had
    ended."""
    caplog.set_level(logging.CRITICAL + 1, "asyncio")
    calls, real = 0, getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise MemoryError("injected")
        return real(*args)

    crashes = iter([True])

    @perdure.agent(State)
    async def gathering(run: perdure.AsyncRun[State]) -> int:
        found = sum(await asyncio.gather(*(add(n) for n in range(4))))
        if next(crashes, False):
            raise CrashError
        return found + sum(await asyncio.gather(*(add(n) for n in range(4))))

    with perdure.open("memory://") as store:

        async def main() -> Any:
            return await AsyncStore(store).run(gathering, "a")

        with pytest.raises(CrashError):
            asyncio.run(main())
        monkeypatch.setattr(owner, name, interrupted)
        helper, results = Helper(), []
        for _ in range(2):
            try:
                helper.call(lambda: results.append(asyncio.run(main())), 20.0)
            except (MemoryError, perdure.PerdureError) as error:  # it may fail of it, but it ends
                results.append(error)
        assert calls >= nth
        assert results[-1] == 20 or "injected" in str(results[-1]), results
        store.agent("a").verify()


def test_i8_a_lease_that_is_taken_for_a_coroutine_that_has_ended_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SystemExit came in a coroutine while a thread took the lease for its run. The lease was given
    back first and taken then, and kept: whoever ran it again in this process stood by for ever."""
    taking, ended = threading.Event(), threading.Event()
    take, wait = BranchLease.take_with, LoopWait.wait

    def late(hold: BranchLease, *args: Any) -> Any:
        taking.set()
        assert ended.wait(20.0)
        return take(hold, *args)

    async def interrupted(one: LoopWait, withdraw: Any) -> None:
        if taking.wait(0.01) and not ended.is_set():
            monkeypatch.setattr(LoopWait, "wait", wait)
            raise SystemExit
        await wait(one, withdraw)

    with perdure.open("memory://") as store:

        async def main() -> Any:
            return await AsyncStore(store).run(gathering, "a")

        monkeypatch.setattr(BranchLease, "take_with", late)
        monkeypatch.setattr(LoopWait, "wait", interrupted)
        release = BranchLease.release

        def released(hold: BranchLease) -> None:
            release(hold)
            ended.set()  # only now the thread goes on

        monkeypatch.setattr(BranchLease, "release", released)
        with pytest.raises(SystemExit):
            asyncio.run(main())
        assert taking.is_set() and ended.is_set()
        monkeypatch.setattr(BranchLease, "take_with", take)
        results: list[Any] = []
        Helper().call(lambda: results.append(asyncio.run(main())), 20.0)
        assert results == [6]
        assert not any(store.runner.liveness._claims)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_i8_a_lease_that_was_not_given_back_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """Ctrl-C was pressed again while the first one was being seen to: before the run's lease was
    given back. While the process lived nobody could go on with the run."""
    release = BranchLease.release

    def interrupted(hold: BranchLease) -> None:
        monkeypatch.setattr(BranchLease, "release", release)
        raise kind("injected")

    monkeypatch.setattr(BranchLease, "release", interrupted)

    crash = iter([True])

    @perdure.agent(State)
    def function(run: perdure.Run[State]) -> str:
        if next(crash, False):
            raise CrashError
        return "done"

    with perdure.open("memory://") as store:
        with pytest.raises(kind):
            store.run(function, "a")
        results: list[Any] = []
        Helper().call(lambda: results.append(store.run(function, "a")), 20.0)
        assert results == ["done"]


def test_a_tick_that_is_lost_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two time limits came, one in a callback that answers a coroutine, one where what was lost
    is looked for: nobody looked again, and the coroutine waited for ever."""
    caplog.set_level(logging.CRITICAL + 1, "asyncio")
    lost: list[object] = []
    answer, tick = _Bell._answer, Ticker._tick

    def no_answer(bell: _Bell) -> None:
        if "answer" in lost:
            return answer(bell)
        lost.append("answer")
        bell._rung = False
        raise MemoryError("injected")

    def no_tick(ticker: Ticker, loop: asyncio.AbstractEventLoop) -> None:
        if "tick" in lost:
            return tick(ticker, loop)
        lost.append("tick")
        raise MemoryError("injected")

    monkeypatch.setattr(_Bell, "_answer", no_answer)
    monkeypatch.setattr(Ticker, "_tick", no_tick)
    with perdure.open("memory://") as store:

        async def main() -> Any:
            return (await AsyncStore(store).agent("a", State, initial=State())).state

        results: list[Any] = []
        Helper().call(lambda: results.append(asyncio.run(main())), 20.0)
        assert results == [State()] and lost == ["answer", "tick"]


@pytest.mark.parametrize(
    ("owner", "name"), [(Heads, "_take"), (Committer, "lead"), (_Bell, "ring"), (Job, "run")]
)
def test_i8_what_a_thread_of_ours_lacked_memory_for_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """A MemoryError came on one of the store's own threads, which nobody waits for: before it led,
    before it looked where branches end, before it told a coroutine that its read was done. All
    coroutines that asked for the like waited for ever."""
    real, calls = getattr(owner, name), count(1)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def lacking(*args: Any) -> Any:
        if threading.current_thread().name.startswith("perdure") and next(calls) == 1:
            raise MemoryError("injected")
        return real(*args)

    monkeypatch.setattr(owner, name, lacking)
    ends: list[object] = []

    def growing(draft: State) -> None:
        draft.n += 1

    with perdure.open("memory://") as store:
        monkeypatch.setattr(store._context.backend, "ref_at_hand", lambda *_: None, raising=False)

        async def main() -> None:
            agent = await AsyncStore(store).agent("a", State, initial=State())
            for _ in range(3):
                try:
                    await agent.update(growing)
                except (MemoryError, perdure.PerdureError) as error:
                    ends.append(error)
            ends.append((await agent.refresh()).n)

        def work() -> None:
            for _ in range(2):
                try:
                    return asyncio.run(main())
                except (MemoryError, RuntimeError, perdure.PerdureError) as error:
                    ends.append(error)

        Helper().call(work, 20.0)
        assert next(calls) > 2
        assert isinstance(ends[-1], int) and ends[-1] >= 2, ends
        store.agent("a", State).verify()


def test_i8_a_commit_of_a_coroutine_is_not_left_to_a_leader_who_is_gone() -> None:
    """A thread that led was interrupted, and again before it passed that on. Threads that waited
    took over; coroutines waited for their commits for ever."""

    def leading(committer: Committer) -> None:
        assert committer._lead.try_take(sys._getframe())

    with perdure.open("memory://") as store:
        store.agent("a", State, initial=State()).update(lambda draft: setattr(draft, "n", 1))
        leading(store._context.committer)

        async def main() -> None:
            agent = await AsyncStore(store).agent("a", State)
            await agent.update(lambda draft: setattr(draft, "n", 2))

        Helper().call(lambda: asyncio.run(main()), 20.0)
        assert store.agent("a", State).state.n == 2
