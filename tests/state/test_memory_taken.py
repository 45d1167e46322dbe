"""What a store keeps in memory does not grow with what it has had to do with."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

import perdure
from perdure.storage.log import log_ends
from perdure.storage.sqlite import writer
from tests.state.conftest import Place


def test_agents_that_come_and_go_leave_nothing_behind(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each agent that was ever made, the committer remembered the end of its log: 400 bytes
    for good, as only ends that it had to look up were counted. An hour's soak found it."""
    monkeypatch.setattr(log_ends, "KEPT", 8)
    monkeypatch.setattr(writer, "HEADS_KEPT", 8)
    with perdure.open(tmp_path / "a.db") as store:
        for n in range(40):
            store.agent(f"agent {n}").save({"n": n})
            store.delete(f"agent {n}", purge=True)
        context = store._context
        assert len(context.committer._ends.tails) <= 8
        backend: Any = context.backend
        assert len(backend._writer._heads) <= 9
        store.agent("agent 1").save({"n": 1})


@perdure.agent(dict)
async def pausing(run: perdure.AsyncRun[dict[str, Any]]) -> None:
    async with run.edit("counted") as draft:
        draft["n"] = 1
    await asyncio.sleep(0)


def test_event_loops_that_are_closed_leave_nothing_behind(place: Place) -> None:
    """What wakes a loop was found by that loop, weakly, and knew the loop by its timers: each loop
    of a program that calls `asyncio.run` again and again was kept for good, with all that the
    contexts of its timers knew."""
    others = {*threading.enumerate()}
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def use(n: int) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with await perdure.open_async(place.url, durability="os") as store:
            agent = await store.agent("a")
            async with agent.edit() as draft:
                draft["n"] = n
            await store.options(key=f"{n}").run(pausing, "b")

    for n in range(3):
        asyncio.run(use(n))
    for thread in {*threading.enumerate()} - others:
        thread.join()  # it has woken a loop, and may not have let go of that yet
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
