"""Runs in event loops whose tasks are eager: each begins in the midst of its maker.

What such a task awaited the first time was at hand on replay, and it came further before its maker
went on: a function that followed from that order was told that its code had changed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import replay
from tests.graphs.kinds import KINDS
from tests.graphs.loops import Loop

pytestmark = pytest.mark.skipif(
    not hasattr(asyncio, "eager_task_factory"), reason="there are eager tasks since Python 3.12"
)

MANY = 12


class Own(asyncio.Task[Any]):
    """Of a kind of somebody else's."""


def made_by_a_function(coroutine: Any, **options: Any) -> Own:
    return Own(coroutine, **options)


FACTORIES: dict[str, Callable[[], Any]] = {
    "asyncio's": lambda: asyncio.eager_task_factory,  # type: ignore[attr-defined]
    "of a class": lambda: asyncio.create_eager_task_factory(Own),  # type: ignore[attr-defined]
    "of a function": lambda: asyncio.create_eager_task_factory(  # type: ignore[attr-defined]
        made_by_a_function
    ),
}


@pytest.fixture(params=FACTORIES)
def eager(request: pytest.FixtureRequest) -> Any:
    return FACTORIES[request.param]()


@perdure.step
async def fetch(what: int) -> int:
    await asyncio.sleep(0)
    return what


@perdure.step
async def report(what: list[Any]) -> list[Any]:
    return what


def gone_over_again(function: Any, folder: Path, eager: Any) -> Any:
    async def live() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            return await store.run(function, "a")

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.new_event_loop()
        made.set_task_factory(eager)
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        result = runner.run(live())
    with perdure.open(folder / "a.db") as store:
        assert replay(store, function).check() == result
    return result


def test_tasks_of_a_run_do_not_come_further_on_replay(tmp_path: Path, eager: Any) -> None:
    kinds: set[bool] = set()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[Any]:
        heard: list[Any] = []

        async def task(number: int) -> None:
            kinds.add(isinstance(asyncio.current_task(), Own))
            heard.append(f"begins {number}")
            heard.append(await fetch(number))

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(task(number))
                heard.append(f"made {number}")
        return await report(heard)

    assert gone_over_again(act, tmp_path, eager) == [
        "made 0",
        "made 1",
        "made 2",
        "begins 0",
        "begins 1",
        "begins 2",
        0,
        1,
        2,
    ]
    assert (True in kinds) is (eager is not FACTORIES["asyncio's"]())


def test_tasks_of_a_run_are_cancelled_in_the_order_of_their_making(tmp_path: Path) -> None:
    kinds: list[bool] = []
    for number, name in enumerate(("asyncio's", "of a class")):

        @perdure.agent(dict)
        async def act(run: perdure.AsyncRun[dict]) -> list[int]:
            gave_up: list[int] = []

            async def nap(number: int) -> None:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    gave_up.append(number)
                    raise

            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(nap(number)) for number in range(MANY)]
                    await fetch(1)
                    raise ValueError("no")
            kinds.append(all(isinstance(task, Own) for task in tasks))
            return await report(gave_up)

        folder = tmp_path / str(number)
        folder.mkdir()
        assert gone_over_again(act, folder, FACTORIES[name]()) == [*range(MANY)]
    assert kinds == [False, False, True, False]  # gone over again, it was in another loop


def test_other_tasks_of_that_loop_begin_at_once(eager: Any) -> None:
    @perdure.step
    async def inside() -> list[int]:
        return await begun()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        return await inside()

    async def begun() -> list[int]:
        came: list[int] = []

        async def task() -> None:
            came.append(1)

        made = asyncio.create_task(task())
        came.append(2)
        await made
        return came

    async def live() -> list[list[int]]:
        asyncio.get_running_loop().set_task_factory(eager)
        async with perdure.open_async("memory://") as store:
            return [await store.run(act, "a"), await begun()]

    assert asyncio.run(live()) == [[1, 2], [1, 2]]


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine")
@pytest.mark.parametrize("kind", ["tasks", "timed", "scoped", "told", "wide", "pointed"])
def test_what_was_met_in_a_loop_of_eager_tasks_is_met_again(
    kind: str, eager: Any, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    """Of each ten programs of tasks that chance made, four went another way. anyio's scopes know
    no eager tasks at all."""
    monkeypatch.setattr(Loop, "tasks", staticmethod(eager))
    for seed in range(4):
        KINDS[kind].try_program(seed, 1, None)
    gc.collect()  # of coroutines that were killed before they began, Python tells here
