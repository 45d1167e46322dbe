"""What races with the end of a run, and who hears of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import perdure

WAIT_S = 30


@perdure.agent(dict)
def talkative(run: perdure.Run[dict]) -> str:
    run.progress("nearly there", 0.9)
    return "done"


@perdure.step(timeout=0.05)
def endless() -> None:
    for _ in range(40):
        perdure.heartbeat("still at it")
        time.sleep(0.01)


@perdure.agent(dict)
def impatient(run: perdure.Run[dict]) -> str:
    try:
        endless()
    except perdure.TimedOut:
        return "went on without it"
    return "waited"


@perdure.agent(dict)
def double(run: perdure.Run[dict], number: int) -> int:
    return 2 * number


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> int:
    return run.start(double, "child", 21).result()


def test_a_note_right_before_the_return_does_not_race_with_the_last_commit() -> None:
    """The note was being committed when the run's end was: the run failed with a Conflict, and
    stayed as it was."""
    with perdure.open("memory://") as store:
        for number in range(50):
            assert store.run(talkative, f"agent-{number}") == "done"
            log = list(store.agent(f"agent-{number}").log())
            assert [r["t"] for c in log for r in c.records][-2:] == ["run-progress", "run-finished"]


def test_a_call_that_outlived_its_run_writes_nothing_more() -> None:
    with perdure.open("memory://") as store:
        assert store.run(impatient, "a") == "went on without it"
        before = len(list(store.agent("a").log()))
        time.sleep(0.2)
        assert len(list(store.agent("a").log())) == before


def test_a_parent_hears_of_a_child_that_was_run_by_hand() -> None:
    """A child that a call of `store.run` began, and no worker, did not know its parent: that waited
    for ever."""
    with perdure.open("memory://") as store:
        handle = store.start(parent, "parent")
        going = threading.Thread(target=store.run, args=(parent, "parent"))
        going.start()
        ends = time.monotonic() + WAIT_S
        while handle.status != "done":
            assert time.monotonic() < ends
            for run in store.runs(function="double", status=["pending"]):
                assert store.options(key=run.key).run(double, run.agent, 21) == 42
            time.sleep(0.01)
        going.join(WAIT_S)
        assert handle.result() == 42


def test_a_run_that_was_kept_is_of_no_use_after_its_end() -> None:
    """Its calls raised, and its sleeps and its state went through, as if it went on."""
    kept: list[perdure.Run[dict]] = []

    @perdure.agent(dict)
    def keeping(run: perdure.Run[dict]) -> str:
        kept.append(run)
        return "done"

    with perdure.open("memory://") as store:
        assert store.run(keeping, "a") == "done"
        uses: list[Callable[[perdure.Run[dict]], object]] = [
            lambda run: run.call(abs, 1),
            lambda run: run.sleep(0.01),
            lambda run: run.state,
            lambda run: run.now(),
            lambda run: run.edit("late").__enter__(),
            lambda run: run.map(abs, [1]),
            lambda run: run.map(abs, []),
            lambda run: run.executor().__enter__(),
        ]
        for use in uses:
            with pytest.raises(perdure.RunInterrupted, match="its function has ended"):
                use(kept[0])
        assert kept[0].id == "a/keeping/main"


def test_a_thread_that_lost_its_context_may_use_what_it_has_of_the_run() -> None:
    """`run.call` was recorded there, and `run.map` failed an assertion."""

    @perdure.agent(dict)
    def mapping(run: perdure.Run[dict]) -> list[int]:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.extend(run.map(abs, [-1, -2])))
        thread.start()
        thread.join()
        return found

    with perdure.open("memory://") as store:
        assert store.run(mapping, "a") == [1, 2]


def test_an_asynchronous_run_that_was_kept_is_of_no_use_after_its_end() -> None:
    kept: list[perdure.AsyncRun[dict]] = []

    @perdure.agent(dict)
    async def keeping(run: perdure.AsyncRun[dict]) -> str:
        kept.append(run)
        return "done"

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(keeping, "a") == "done"
            with pytest.raises(perdure.RunInterrupted, match="its function has ended"):
                await kept[0].sleep(0.01)
            with pytest.raises(perdure.RunInterrupted, match="its function has ended"):
                await kept[0].map(abs, [])
            with pytest.raises(perdure.RunInterrupted, match="its function has ended"):
                kept[0].now()

    asyncio.run(main())
