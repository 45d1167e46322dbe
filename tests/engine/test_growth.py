"""What a run costs grows with what it does, and no faster: counted by lines, not by time.

A crash after `asyncio.gather` of 3,000 recorded steps left a run that did not come back within two
minutes of CPU: each release looked at all who waited, each of those looked twice a second, and each
task's end went over the whole journal. So was a run stranded (I8) in all but name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.engine.conftest import CrashError, Place
from tests.work import work_of

FEW, MANY = 40, 160
GROWTH_MAX = 1.15 * MANY / FEW

crashes = True
"""Whether a function crashes at its end: then all that it did is recorded."""


gates: list[asyncio.Event] = []


def _end(result: int) -> int:
    if crashes:
        raise CrashError
    return result


@perdure.step
async def fetch(number: int) -> int:
    return number


@perdure.step
async def late(number: int) -> int:
    """The last that was asked comes back first."""
    await gates[number + 1].wait()
    gates[number].set()
    return number


@perdure.step
def look(number: int) -> int:
    return number


@perdure.tool(on_crash="retry")
async def pay(number: int) -> int:
    return number


async def one(number: int) -> int:
    return await fetch(number)


async def ten(number: int) -> int:
    return sum(await asyncio.gather(*(one(10 * number + n) for n in range(10))))


async def group_of_ten(number: int) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(10 * number + n)) for n in range(10)]
    return sum(task.result() for task in tasks)


@perdure.agent(dict)
async def in_a_row(run: perdure.AsyncRun[Any], n: int) -> int:
    return _end(sum([await fetch(number) for number in range(n)]))


@perdure.agent(dict)
async def gathered(run: perdure.AsyncRun[Any], n: int) -> int:
    return _end(sum(await asyncio.gather(*(fetch(number) for number in range(n)))))


@perdure.agent(dict)
async def in_reverse(run: perdure.AsyncRun[Any], n: int) -> int:
    gates[:] = [asyncio.Event() for _ in range(n + 1)]
    gates[n].set()
    return _end(sum(await asyncio.gather(*(late(number) for number in range(n)))))


@perdure.agent(dict)
async def tools(run: perdure.AsyncRun[Any], n: int) -> int:
    return _end(sum(await asyncio.gather(*(pay(number) for number in range(n)))))


@perdure.agent(dict)
async def nested(run: perdure.AsyncRun[Any], n: int) -> int:
    return _end(sum(await asyncio.gather(*(ten(number) for number in range(n // 10)))))


@perdure.agent(dict)
async def groups(run: perdure.AsyncRun[Any], n: int) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(group_of_ten(number)) for number in range(n // 10)]
    return _end(sum(task.result() for task in tasks))


@perdure.agent(dict)
async def mapped_in_tasks(run: perdure.AsyncRun[Any], n: int) -> int:
    numbers: list[int] = await run.map(one, range(n), limit=8)
    return _end(sum(numbers))


@perdure.agent(dict)
async def editing(run: perdure.AsyncRun[Any], n: int) -> int:
    async def edit(number: int) -> int:
        async with run.edit("count") as draft:
            draft["n"] = number
        return number

    return _end(sum(await asyncio.gather(*(edit(number) for number in range(n)))))


@perdure.agent(dict)
async def values(run: perdure.AsyncRun[Any], n: int) -> int:
    async def draw(number: int) -> int:
        run.uuid()
        return await fetch(number)

    return _end(sum(await asyncio.gather(*(draw(number) for number in range(n)))))


@perdure.agent(dict)
def mapped(run: perdure.Run[Any], n: int) -> int:
    return _end(sum(run.map(look, range(n), limit=8)))


@perdure.agent(dict)
def threads(run: perdure.Run[Any], n: int) -> int:
    with run.executor(8) as executor:
        futures = [executor.submit(look, number) for number in range(n)]
        return _end(sum(future.result() for future in futures))


@perdure.agent(dict)
def loop_inside(run: perdure.Run[Any], n: int) -> int:
    """A loop in a synchronous function: its tasks share a scope, and come in any order."""

    async def main() -> int:
        async def step(number: int) -> int:
            return await run_fetch(number)

        order = list(range(n))
        random.Random(n if crashes else 1).shuffle(order)
        return sum(await asyncio.gather(*(step(number) for number in order)))

    async def run_fetch(number: int) -> int:
        return await fetch(number)

    return _end(asyncio.run(main()))


@perdure.agent(dict)
def signals(run: perdure.Run[Any], n: int) -> int:
    return _end(sum(run.wait_for(f"s{number}") for number in reversed(range(n))))


@perdure.agent(dict)
def shuffled(run: perdure.Run[Any], n: int) -> int:
    """A run that does the same in another order than it did."""
    numbers = [*range(n)] if crashes else [*reversed(range(n))]
    return _end(sum(look(number) for number in numbers))


async def _run_async(url: str, function: Any, n: int) -> Any:
    async with perdure.open_async(url, durability="os") as store:
        return await store.run(function, "a", n)


@pytest.fixture
def make_place(tmp_path: Path) -> Iterator[Callable[[], Place]]:
    places: list[Place] = []

    def make() -> Place:
        places.append(Place(f"sqlite:///{tmp_path / str(len(places))}.db"))
        return places[-1]

    yield make
    for place in places:
        place.close()


def _run(place: Place, function: Any, n: int) -> Any:
    if asyncio.iscoroutinefunction(function):
        return asyncio.run(_run_async(place.url, function, n))
    return place.opened[0].run(function, "a", n)


def _crash(place: Place, function: Any, n: int) -> None:
    with pytest.raises(CrashError):
        _run(place, function, n)


def _prepare(place: Place, function: Any, n: int) -> None:
    store = place.open()
    if function is signals:
        handle = store.start(function, "a", n)
        for number in range(n):
            handle.signal(f"s{number}", number)


@pytest.mark.parametrize(
    "function",
    [
        in_a_row,
        gathered,
        in_reverse,
        tools,
        nested,
        groups,
        mapped_in_tasks,
        editing,
        values,
        mapped,
        threads,
        loop_inside,
        signals,
        shuffled,
    ],
    ids=lambda function: function.__name__,
)
def test_i8_a_run_and_its_replay_take_work_in_proportion(
    make_place: Callable[[], Place], function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: list[int] = []
    resumed: list[int] = []
    for _ in range(2):  # on a machine that is busy, what looks now and then does so more often
        live, resumed = [], []
        for n in (10, FEW, MANY):  # the first warms up
            place = make_place()
            _prepare(place, function, n)
            monkeypatch.setattr(f"{__name__}.crashes", True)
            live.append(work_of(partial(_crash, place, function, n)))
            monkeypatch.setattr(f"{__name__}.crashes", False)
            resumed.append(work_of(partial(_run, place, function, n)))
            assert _run(place, function, n) == sum(range(n))
        if max(live[2] / live[1], resumed[2] / resumed[1]) <= GROWTH_MAX:
            break
    assert live[2] <= GROWTH_MAX * live[1], f"a live run: {live[1:]} lines"
    assert resumed[2] <= GROWTH_MAX * resumed[1], f"a replay: {resumed[1:]} lines"


INLINE_MAX = 30
"""The most attributes of an object that CPython keeps in the object itself."""


def test_a_run_has_its_attributes_at_hand(place: Place) -> None:
    """A run had grown to 33 attributes. CPython keeps 30 of an object in the object; with more,
    each look at one is a look-up in a dict, and each call of a method two: all that a run did took
    longer, an asynchronous step by one part in twenty."""
    numbers = {}

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        async with run.edit("begin") as draft:
            draft["pages"] = 1
        for one in (run._execution, run._execution.working, run._execution.async_performer):
            numbers[type(one).__name__] = len(vars(one))
        return await fetch(1)

    async def main() -> None:
        async with perdure.open_async(place.url) as store:
            await store.run(act, "a")

    asyncio.run(main())
    assert len(numbers) == 3
    assert {name: many for name, many in numbers.items() if many > INLINE_MAX} == {}
