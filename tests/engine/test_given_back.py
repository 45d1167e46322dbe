"""Signals that were taken out of the inbox for a task that was cancelled before it saw them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.testing import kill_at_every_boundary
from tests.engine.conftest import Async, Crashes

got: list[str] = []


@perdure.step
async def look(what: str) -> str:
    return what


async def waits_for(run: perdure.AsyncRun[dict], name: str) -> None:
    got.append(await run.wait_for(name))


async def first_of(run: perdure.AsyncRun[dict]) -> None:
    """What comes first counts; the others are not waited for any more."""
    tasks = [asyncio.create_task(waits_for(run, name)) for name in ("a", "b")]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def group_that_fails(run: perdure.AsyncRun[dict]) -> None:
    async def fails(name: str) -> None:
        await waits_for(run, name)
        raise LookupError(name)

    try:
        async with asyncio.TaskGroup() as tasks:
            for name in ("a", "b"):
                tasks.create_task(fails(name))
    except* LookupError:
        pass


@perdure.agent(dict)
async def twice(run: perdure.AsyncRun[dict], way: str) -> list[str]:
    got.clear()
    await {"first": first_of, "group": group_that_fails}[way](run)
    await look("between")
    for name in ("a", "b"):
        if name not in got:
            got.append(await run.wait_for(name, timeout=0.2, default="lost"))
    return sorted(got)


def send(runs: Async, run: str, *, names: str = "ab") -> Any:
    handle = runs.store.handle(run)
    for name in names:
        assert handle.signal(name, name, key=f"key of {name}")
    return handle


def ask_for(runs: Async, way: str) -> Any:
    handle = runs.store.start(twice, "a", way)
    return send(runs, handle.id)


@pytest.mark.parametrize("way", ["first", "group"])
def test_a_signal_that_a_cancelled_task_took_is_for_who_waits_next(runs: Async, way: str) -> None:
    """Two signals were there, two tasks waited for them, and the one that had heard of its own
    cancelled the other: that one's signal was taken, and nobody ever got it."""
    handle = ask_for(runs, way)
    assert runs.run(twice, way) == ["a", "b"]
    assert handle.report().inbox == []
    assert not handle.info.problem
    runs.store.agent("a").verify()


@pytest.mark.parametrize("way", ["first", "group"])
@pytest.mark.parametrize("step", ["wait_for:a#1", "look#1", "wait_for:b#1"])
def test_it_comes_again_where_the_run_is_set_back(runs: Async, way: str, step: str) -> None:
    handle = ask_for(runs, way)
    assert runs.run(twice, way) == ["a", "b"]
    for _ in range(2):
        places = [event.place for event in handle.report().events]
        handle.retry(step if step in places else "look#1", effects="live")
        assert runs.run(twice, way) == ["a", "b"]
        assert handle.report().inbox == []


@pytest.mark.parametrize("way", ["first", "group"])
def test_it_is_not_lost_wherever_the_process_dies(way: str) -> None:
    def check(ending: Any) -> None:
        assert ending.result == ["a", "b"], ending

    signals = {"a": ["a"], "b": ["b"]}
    assert len(kill_at_every_boundary(twice, way, signals=signals, check=check)) > 5


def test_it_is_found_by_a_task_that_waits_already(runs: Async, crash: Crashes) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        one = asyncio.create_task(waits_for(run, "a"))
        other = asyncio.create_task(waits_for(run, "b"))
        await asyncio.wait([one])
        other.cancel()
        behind = asyncio.create_task(waits_for(run, "b"))
        await asyncio.gather(other, return_exceptions=True)
        await asyncio.wait_for(behind, 20)
        return "".join(got)

    got.clear()
    send(runs, runs.store.start(act, "a").id)
    assert runs.run(act) == "ab"
