"""A worker ends while a call goes on beside other tasks of its run, which leave before it."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import Retry
from tests.engine.conftest import Place

RETRY = Retry(attempts=2, first=0.01)


class Call:
    """A call that a test lets come to its end."""

    def __init__(self, fails: bool, beats: bool) -> None:
        self.fails, self.beats = fails, beats
        self.begun = 0
        self.started, self.go = threading.Event(), threading.Event()

    def end(self) -> str:
        if self.beats:
            perdure.heartbeat()
        if self.fails and self.begun == 1:
            raise ValueError("refused, for certain")
        return "value"

    def plainly(self) -> str:
        self.begun += 1
        self.started.set()
        assert self.go.wait(30)
        return self.end()

    async def awaited(self) -> str:
        self.begun += 1
        self.started.set()
        while not self.go.is_set():
            await asyncio.sleep(0.005)
        return self.end()


@perdure.step
def other(number: int) -> int:
    time.sleep(0.002)
    return number


@perdure.step
async def other_soon(number: int) -> int:
    await asyncio.sleep(0.002)
    return number


def job_of(call: Call, kind: str, way: str) -> Any:
    def named(function: Any) -> Any:
        made: Any = perdure.step if kind == "step" else partial(perdure.tool, on_crash=kind)
        return made(function, name="call", retry=RETRY)

    async def awaited() -> str:
        return await call.awaited()

    made = named(awaited if way != "threads" else lambda: call.plainly())

    @perdure.agent(dict, name="job")
    def job(run: perdure.Run[dict]) -> Any:
        def more() -> None:
            for number in range(300):
                other(number)

        return run.map(lambda f: f(), [made, more], limit=2)[0]

    @perdure.agent(dict, name="job")
    async def ajob(run: perdure.AsyncRun[dict]) -> Any:
        async def more() -> None:
            for number in range(300):
                await run.call(other, number)

        return (await asyncio.gather(made(), more()))[0]

    @perdure.agent(dict, name="job")
    def job_with_a_loop(run: perdure.Run[dict]) -> Any:
        async def more() -> None:
            for number in range(300):
                await other_soon(number)

        async def main() -> Any:
            return (await asyncio.gather(made(), more()))[0]

        return asyncio.run(main())

    return {"threads": job, "tasks": ajob, "own loop": job_with_a_loop}[way]


@pytest.mark.parametrize("way", ["threads", "tasks", "own loop"])
@pytest.mark.parametrize("kind", ["step", "fail", "retry"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("beats", [False, True])
def test_what_a_call_came_to_is_recorded_where_its_worker_ends(
    place: Place, way: str, kind: Any, fails: bool, beats: bool
) -> None:
    """A rolling restart: the other tasks left at their next call, and what this one came to was
    thrown away. A step was made twice, one with a heartbeat was broken off, and a tool that had
    raised an error, which is an outcome, was in doubt. In a loop of a plain function's own
    each call was cancelled with the others."""
    store = place.open()
    call = Call(fails, beats)
    job = job_of(call, kind, way)
    handle = store.start(job, "a")
    worker = perdure.Worker(store, [job])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert call.started.wait(30)
    worker.stop()
    time.sleep(0.05)  # the others come to their next call
    call.go.set()
    thread.join(30)
    worker = perdure.Worker(store, [job])
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert handle.result(timeout=30) == "value"
    finally:
        worker.stop()
        thread.join(30)
    assert call.begun == (2 if fails else 1)
