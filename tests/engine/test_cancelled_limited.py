"""Tasks that are cancelled in a call whose time is limited: as in one that has no limit."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure.testing import replay
from tests.engine.conftest import Async

took_effect: list[str] = []
begun, goes_on = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    took_effect.clear()
    begun.clear()
    goes_on.clear()


@perdure.step
async def note(order: list[str]) -> list[str]:
    return order


@perdure.step
async def until_begun() -> None:
    await asyncio.to_thread(begun.wait)


async def catches() -> str:
    begun.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        took_effect.append("it")
        return "finished"
    return "in time"


async def fails() -> str:
    await catches()
    raise ValueError("half of it")


def cancelling(call: Any) -> Any:
    """An agent function that cancels the task of a call once that has begun."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        heard: list[str] = []

        async def calls() -> None:
            try:
                heard.append(await run.call(call))
            except ValueError as error:
                heard.append(str(error))
            await note([*heard, "went on"])

        task = asyncio.create_task(calls())
        await until_begun()
        task.cancel()
        goes_on.set()
        await asyncio.wait([task])
        return await note([*heard, "cancelled" if task.cancelled() else "went on"])

    return act


def run_twice(runs: Async, act: Any) -> Any:
    """What it gave, once and on replay, and what its ledger says."""
    said = runs.run(act)
    assert replay(runs.store, act).check() == said
    (effect,) = runs.store.handle("a/act/main").effects()
    return said, effect.state


@pytest.mark.parametrize("limit", [{}, {"timeout": 60}, {"heartbeat_timeout": 60}])
@pytest.mark.parametrize(
    ("function", "heard", "state"),
    [(catches, "finished", "done"), (fails, "half of it", "failed")],
)
def test_one_that_catches_that_is_heard_of(
    runs: Async, limit: Any, function: Any, heard: str, state: str
) -> None:
    """It took effect and returned, and was recorded as cancelled, of which nobody knows whether it
    took effect; and its task was cancelled, where that of one without a limit goes on."""
    call = perdure.tool(function, name="call", on_crash="ask", **limit)  # type: ignore[call-overload]
    assert run_twice(runs, cancelling(call)) == ([heard, "went on"], state)
    assert took_effect == ["it"]


@pytest.mark.parametrize("limit", [{}, {"timeout": 60}])
def test_one_on_a_thread_is_waited_for(runs: Async, limit: Any) -> None:
    """It went on behind the run's back, and took effect when it was recorded as cancelled, and the
    function had gone on."""

    def on_a_thread() -> str:
        begun.set()
        assert goes_on.wait(30)
        took_effect.append("it")
        return "finished"

    call = perdure.tool(on_a_thread, name="call", on_crash="ask", **limit)  # type: ignore[call-overload]
    assert run_twice(runs, cancelling(call)) == (["cancelled"], "done")
    assert took_effect == ["it"]


def test_one_that_ends_as_it_is_cancelled_has_its_outcome(runs: Async) -> None:
    """It had returned, and its task had not heard of that: the outcome was thrown away."""
    tasks: list[Any] = []

    @perdure.tool(on_crash="ask", timeout=60)
    async def call() -> str:
        await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_soon(tasks[-1].cancel)
        return "finished"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        async def calls() -> None:
            await call()

        tasks.append(asyncio.create_task(calls()))
        await asyncio.wait([tasks[-1]])
        return "cancelled" if tasks[-1].cancelled() else "went on"

    assert runs.run(act) == "cancelled"
    (effect,) = runs.store.handle("a/act/main").effects()
    assert effect.state == "done"
