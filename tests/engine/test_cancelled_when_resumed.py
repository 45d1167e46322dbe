"""A task is cancelled while Perdure handles its call, which a process that died had left open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.testing import replay
from tests.engine.conftest import Async, CrashError, Crashes

NEVER_S = 3600.0


class Life:
    """One process: in the first a call is left open; in the next its task is cancelled."""

    first = True
    begun: asyncio.Event

    @classmethod
    def dies(cls) -> None:
        if cls.first:
            cls.first = False
            raise CrashError("in the call")

    @classmethod
    async def hangs(cls) -> None:
        cls.begun.set()
        await asyncio.sleep(NEVER_S)


async def _asks(order: str) -> Any:
    await Life.hangs()


@perdure.tool(on_crash="probe", probe=_asks)
async def probed(order: str) -> str:
    Life.dies()
    raise AssertionError("its probe does not say that it is not done")


@perdure.tool(on_crash="retry")
async def made_again(order: str) -> str:
    Life.dies()
    await Life.hangs()
    return order


@perdure.tool(on_crash="probe", probe=_asks, timeout=0.01)
async def too_late(order: str) -> str:
    await asyncio.sleep(NEVER_S)
    return order


@perdure.tool(on_crash="retry", retry=perdure.Retry(attempts=2, first=NEVER_S, longest=NEVER_S))
async def tried_later(order: str) -> str:
    Life.begun.set()
    raise ConnectionError(order)


@perdure.step(retry=perdure.Retry(attempts=2, first=NEVER_S, longest=NEVER_S))
async def step_tried_later(order: str) -> str:
    Life.begun.set()
    raise ConnectionError(order)


@perdure.step
async def until_begun() -> None:
    await Life.begun.wait()


@perdure.step
async def fails() -> None:
    await Life.begun.wait()
    raise ValueError("the other one")


async def _cancel(run: Any, call: Any) -> Any:
    task = asyncio.create_task(call("1"))
    await until_begun()
    task.cancel("the user left")
    return await task


async def _group(run: Any, call: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(call("1"))
        group.create_task(fails())


async def _timeout(run: Any, call: Any) -> Any:
    async with asyncio.timeout(0.05):
        return await call("1")


async def _wait_for(run: Any, call: Any) -> Any:
    return await asyncio.wait_for(call("1"), 0.05)


async def _gather(run: Any, call: Any) -> Any:
    async with asyncio.timeout(0.05):
        return await asyncio.gather(call("1"), call("2"))


async def _map(run: Any, call: Any) -> Any:
    async with asyncio.timeout(0.05):
        return await run.map(call, ["1", "2"])


CALLS = [probed, made_again, too_late, tried_later, step_tried_later]
WAYS = [_cancel, _group, _timeout, _wait_for, _gather, _map]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_call_that_is_cancelled_as_it_is_resumed_is_so_again(
    runs: Async, crash: Crashes, call: Any, way: Any
) -> None:
    """A process was killed in a payment; the next one's probe asked the bank, which was slow, and a
    timeout struck. The run went another way, took a signal, and was killed once more. Nothing said
    that the payment's task had been cancelled: its call waited for what was recorded behind it, and
    that for its cancellation. The run was stuck, as if its code had changed."""
    Life.first = call in (probed, made_again)

    @perdure.step
    async def note(heard: str) -> str:
        return heard

    @perdure.tool(on_crash="retry")
    async def apologise(approved: str) -> str:
        crash("mail")
        return approved

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        Life.begun = asyncio.Event()
        heard = "paid"
        try:
            await way(run, call)
        except (Exception, asyncio.CancelledError) as error:
            heard = repr(error)
        return [await note(heard), await apologise(await run.wait_for("approved"))]

    if Life.first:
        runs.crash(act)
    runs.store.start(act, "a").signal("approved", "ada")
    crash.arm("mail")
    runs.crash(act)
    heard, approved = runs.run(act)
    assert heard != "paid"
    assert approved == "ada"
    assert replay(runs.store, act).check() == [heard, approved]
