"""A worker ends at any moment of a tool call: what that came to is in the log, and in no doubt."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

import perdure
from perdure import Retry
from perdure.core.format import envelope
from perdure.engine.journal.leaving import Drained
from tests.engine.conftest import Place
from tests.engine.waits import records, until

TRIES = 60
LINES = 500
"""Of Perdure's, behind the end of a tool: by then its outcome is in the log."""

names = map(str, itertools.count())
ended: list[Callable[[], None]] = []
"""What is to be told that the tool has come to its end."""


@perdure.step
async def other(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def others() -> None:
    """Some that come to boundaries at each moment."""

    async def calls() -> None:
        for number in range(10):
            await other(number)

    await asyncio.gather(*(calls() for _ in range(5)))


def end() -> str:
    for tell in ended:
        tell()
    return "value"


@perdure.tool(on_crash="ask", name="tool")
async def awaited() -> str:
    await asyncio.sleep(0.001)
    return end()


@perdure.tool(on_crash="ask", name="tool")
def plain() -> str:
    time.sleep(0.001)
    return end()


@perdure.tool(on_crash="ask", name="tool", timeout=60)
async def limited() -> str:
    await asyncio.sleep(0.001)
    return end()


@perdure.tool(on_crash="ask", name="tool", timeout=60)
def plain_limited() -> str:
    time.sleep(0.001)
    return end()


@perdure.tool(on_crash="ask", name="tool", retry=Retry(attempts=2, first=0.001))
async def failing() -> str:
    raise ValueError(end())


@perdure.tool(on_crash="ask", name="tool")
async def unstorable() -> str:
    await asyncio.sleep(0.001)
    return object() if end() else ""  # type: ignore[return-value]


@perdure.tool(on_crash="ask", name="tool")
async def cancelled() -> str:
    try:
        await asyncio.sleep(60)
    finally:
        end()
    return ""


@perdure.tool(on_crash="ask", name="tool")
async def catching() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return end()
    return ""


@perdure.tool(on_crash="ask", name="tool", timeout=60)
async def limited_catching() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return end()
    return ""


TOOLS = [
    awaited,
    plain,
    limited,
    plain_limited,
    failing,
    unstorable,
    cancelled,
    catching,
    limited_catching,
]
TO_BE_CANCELLED = (cancelled, catching, limited_catching)


async def beside_others(run: perdure.AsyncRun[dict], tool: Any) -> None:
    async def call() -> None:
        task: Any = asyncio.ensure_future(run.call(tool))
        if tool in TO_BE_CANCELLED:
            await asyncio.sleep(0.002)
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and isinstance(task.exception(), perdure.RunInterrupted):
            await task

    await asyncio.gather(call(), others())


def act_with(tool: Any) -> Any:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        await beside_others(run, tool)

    return act


@contextmanager
def drained_at(line: int, drain: Callable[[], Any]) -> Iterator[None]:
    """The worker ends as so many lines have been gone through behind the tool's end."""
    left, counts = line, False

    def begin() -> None:
        nonlocal counts
        counts = True

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if counts and event == "line":
            left -= 1
            if left == 0:
                drain()
        return local

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return local if "/perdure/engine/" in frame.f_code.co_filename else None

    traced = sys.gettrace()
    ended.append(begin)
    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(traced)
        threading.settrace(traced)
        ended.clear()


def drained(act: Any, line: int) -> list[str]:
    """The states of the tool calls of a run whose worker ended there."""
    url = f"memory://drained-{next(names)}"

    async def main() -> None:
        async with perdure.open_async(url) as store:
            with drained_at(line, lambda: drain(store._store)):
                await asyncio.wait_for(store.run(act, "a"), 60)

    with perdure.open(url) as kept:
        with suppress(Drained):
            asyncio.run(main())
        return [effect.state for effect in kept.handle("a/act/main").effects()]


def drain(store: Any) -> None:
    store.runner.stop_all(Drained("this worker is ending"))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_has_come_to_its_end_is_in_no_doubt(tool: Any) -> None:
    """A rolling restart: a tool had just been cancelled by its function, or had caught that and
    returned, as the other tasks left. It was in doubt, and a person was asked."""
    lines = random.Random(tool.__name__).sample(range(1, LINES), TRIES)
    states = {line: drained(act_with(tool), line) for line in lines}
    assert not [line for line, found in states.items() if "in doubt" in found]


def test_a_result_that_is_too_big_is_recorded_in_other_words_where_a_worker_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of its outcome had to wait for another one, and was refused when the other tasks
    had left: nobody said that it took effect."""
    monkeypatch.setattr(envelope, "SEALED_MAX", 100_000)
    begun, has_ended = asyncio.Event(), asyncio.Event()
    to_be_held, held, goes_on = threading.Event(), threading.Event(), threading.Event()

    @perdure.tool(on_crash="ask", name="tool")
    async def big() -> str:
        begun.set()
        await asyncio.to_thread(held.wait)
        has_ended.set()
        return "x" * 200_000

    @perdure.step
    async def first() -> None:
        to_be_held.set()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        async def beside() -> None:
            await begun.wait()
            await first()

        async def leaves() -> None:
            await has_ended.wait()
            await asyncio.sleep(0)
            drain(store)
            asyncio.get_running_loop().call_later(0.2, goes_on.set)
            await other(2)

        await asyncio.gather(big(), beside(), leaves())

    store = place.open()
    backend = store.runner.context.backend
    append = backend.append

    def slowly(batch: Any) -> Any:
        if to_be_held.is_set():
            held.set()
            assert goes_on.wait(30)
        return append(batch)

    monkeypatch.setattr(backend, "append", slowly)
    handle = store.start(act, "a")
    worker = perdure.Worker(store, [act])
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        until(goes_on.is_set)
    finally:
        worker.stop()
        running.join(30)
    (effect,) = handle.effects()
    assert effect.state == "failed"
    (outcome,) = records(store, kind="outcome")
    assert "took effect" in outcome["error"]["text"]
