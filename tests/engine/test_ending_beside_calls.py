"""A run that is to end while tools are under way in its event loop: they come to their end first,
and the function hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch.async_drive import AsyncDrive
from perdure.errors import RunFailed, TimedOut
from tests.engine.conftest import Place
from tests.engine.waits import BOUND_S, HOUR, Clock, until, verify_all

TWO_HOURS = timedelta(hours=2)


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One for each look whether the run is to be left: what it was asked then."""
    found: list[Any] = []
    look = AsyncDrive._leave_if_asked

    def noting(self: AsyncDrive, execution: Any, *args: Any) -> None:
        look(self, execution, *args)
        found.append(execution.asked_to_stop)

    monkeypatch.setattr(AsyncDrive, "_leave_if_asked", noting)
    return found


class Bank:
    """One that takes its time to answer."""

    def __init__(self) -> None:
        self.answers, self.heard = asyncio.Event(), ["nothing"]

    async def pay(self) -> str:
        self.heard = ["request"]
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.heard.append("cut off")
            raise
        self.heard.append("paid")
        return "receipt"


async def come(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.01)


async def states(store: Any, run: str) -> list[str]:
    return [effect.state for effect in await (await store.handle(run)).effects()]


@pytest.mark.parametrize("shape", ["alone", "in a group"])
def test_an_outcome_that_is_being_committed_reaches_the_function(
    place: Place, clock: Clock, looks: list[Any], monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """The deadline passed during the last call. While its outcome was being committed the function
    was left: a payment that was made and recorded ended in a run that failed, and was made again by
    who had asked for it. On a slow disk, all of them did."""
    ended: list[str] = []

    @perdure.tool(on_crash="fail")
    async def pay() -> str:
        clock.forward(3 * HOUR)
        ended.append("paid")
        return "receipt"

    @perdure.agent(dict)
    async def paying(run: perdure.AsyncRun[dict]) -> str:
        if shape == "alone":
            return await pay()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pay())
        return task.result()

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            runner = store._store.runner
            append = runner.context.backend.append

            def slowly(batch: Any) -> Any:
                if ended:
                    ended.clear()
                    before = len(looks)
                    runner.wakeups.ring("a/paying/main")
                    until(lambda: len(looks) > before + 1)
                return append(batch)

            monkeypatch.setattr(runner.context.backend, "append", slowly)
            assert await store.options(deadline=TWO_HOURS).run(paying, "a") == "receipt"
            assert await states(store, "a/paying/main") == ["done"]

    asyncio.run(main())


def test_a_deadline_waits_for_the_tool_of_another_task(place: Place, clock: Clock) -> None:
    """One task awaited a bank's answer as the deadline passed, and another one came to its next
    call. The run was left there: the payment was cut off between request and answer, and in doubt,
    in a run that nobody goes on with."""

    @perdure.step
    async def look(number: int) -> int:
        if number == 0:
            clock.forward(3 * HOUR)
        return number

    async def main() -> None:
        bank = Bank()
        looked: list[int] = []

        @perdure.tool(on_crash="ask")
        async def pay() -> str:
            return await bank.pay()

        @perdure.agent(dict)
        async def both(run: perdure.AsyncRun[dict]) -> None:
            async def search() -> None:
                await come(lambda: bank.heard == ["request"])
                for number in range(3):
                    looked.append(number)
                    await look(number)

            async with asyncio.TaskGroup() as group:
                group.create_task(pay())
                group.create_task(search())

        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.options(deadline=TWO_HOURS).run(both, "a"))
            await come(lambda: looked == [0, 1] or running.done())
            for _ in range(50):
                await asyncio.sleep(0)
            bank.answers.set()
            with pytest.raises(TimedOut, match="deadline"):
                await asyncio.wait_for(running, BOUND_S)
            assert bank.heard == ["request", "paid"] and looked == [0, 1], "nothing more begins"
            assert (await states(store, "a/both/main")).count("in doubt") == 0

    asyncio.run(main())


@pytest.mark.parametrize("beside", ["nothing", "a step", "a boundary"])
def test_a_request_to_cancel_waits_for_tools(place: Place, looks: list[Any], beside: str) -> None:
    """A person cancelled a run that awaited a bank's answer: the payment was cut off, and in doubt.
    A run that awaits only steps, such as a model's answer, is left at once."""

    async def main() -> None:
        bank = Bank()

        @perdure.tool(on_crash="ask")
        async def pay() -> str:
            return await bank.pay()

        @perdure.step
        async def for_ever() -> None:
            await asyncio.Event().wait()

        @perdure.agent(dict)
        async def acting(run: perdure.AsyncRun[dict]) -> None:
            async def other() -> None:
                if beside == "a step":
                    await for_ever()
                while beside == "a boundary":
                    await run.call(str, 1)

            async with asyncio.TaskGroup() as group:
                group.create_task(pay())
                group.create_task(other())

        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(acting, "a"))
            await come(lambda: bank.heard == ["request"] or running.done())
            handle = await store.handle("a/acting/main")
            await handle.cancel("a customer called")
            await come(lambda: (looks and looks[-1] is not None) or running.done())
            for _ in range(50):
                await asyncio.sleep(0)
            bank.answers.set()
            with pytest.raises(RunFailed, match="a customer called"):
                await asyncio.wait_for(running, BOUND_S)
            assert bank.heard == ["request", "paid"]
            assert await handle.status() == "cancelled"
            assert await states(store, "a/acting/main") == ["done"]

    asyncio.run(main())
