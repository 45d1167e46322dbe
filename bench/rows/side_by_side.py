"""Replays of what ran side by side, beside replays of as much in a row."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Thread
from typing import Any

import perdure
from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Workplace
from perdure import AsyncRun, Run, Store

RATIO_MAX = 1.5
GROUP = 10
THREADS = 8
CHILDREN = "children"
"""Their queue: whoever runs them leaves the run alone that started them."""


class Leaving(BaseException):
    """Leaves a run in the middle, as `SystemExit` would."""


@perdure.step
async def fetch(number: int) -> int:
    return number


@perdure.step
def look(number: int) -> int:
    return number


async def one(number: int) -> int:
    return await fetch(number)


async def ten(number: int) -> int:
    return sum(await asyncio.gather(*(one(GROUP * number + n) for n in range(GROUP))))


async def group_of_ten(number: int) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(GROUP * number + n)) for n in range(GROUP)]
    return sum(task.result() for task in tasks)


@perdure.agent(dict)
async def in_a_row(run: AsyncRun[dict[str, Any]], n: int) -> None:
    _leave(sum([await fetch(number) for number in range(n)]), n)


@perdure.agent(dict)
async def tasks_in_a_row(run: AsyncRun[dict[str, Any]], n: int) -> None:
    """What a task costs is in both then."""
    _leave(sum([await asyncio.create_task(one(number)) for number in range(n)]), n)


@perdure.agent(dict)
async def gathered(run: AsyncRun[dict[str, Any]], n: int) -> None:
    _leave(sum(await asyncio.gather(*(fetch(number) for number in range(n)))), n)


@perdure.agent(dict)
async def nested(run: AsyncRun[dict[str, Any]], n: int) -> None:
    _leave(sum(await asyncio.gather(*(ten(number) for number in range(n // GROUP)))), n)


@perdure.agent(dict)
async def groups(run: AsyncRun[dict[str, Any]], n: int) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(group_of_ten(number)) for number in range(n // GROUP)]
    _leave(sum(task.result() for task in tasks), n)


@perdure.agent(dict)
async def mapped_in_tasks(run: AsyncRun[dict[str, Any]], n: int) -> None:
    numbers: list[int] = await run.map(one, range(n), limit=THREADS)
    _leave(sum(numbers), n)


@perdure.agent(dict)
def looked_at_in_a_row(run: Run[dict[str, Any]], n: int) -> None:
    _leave(sum(look(number) for number in range(n)), n)


@perdure.agent(dict)
def mapped(run: Run[dict[str, Any]], n: int) -> None:
    _leave(sum(run.map(look, range(n), limit=THREADS)), n)


@perdure.agent(dict)
def executed(run: Run[dict[str, Any]], n: int) -> None:
    with run.executor(THREADS) as executor:
        futures = [executor.submit(look, number) for number in range(n)]
        total = sum(future.result() for future in futures)
    _leave(total, n)


@perdure.agent(dict)
def child(run: Run[dict[str, Any]], number: int) -> int:
    return number


@perdure.agent(dict)
def children_in_a_row(run: Run[dict[str, Any]], n: int) -> None:
    start = run.options(queue=CHILDREN).start
    _leave(sum(start(child, f"child-{number}", number).result() for number in range(n)), n)


@perdure.agent(dict)
def children(run: Run[dict[str, Any]], n: int) -> None:
    start = run.options(queue=CHILDREN).start
    started = [start(child, f"child-{number}", number) for number in range(n)]
    _leave(sum(one.result() for one in started), n)


def _leave(total: int, n: int) -> None:
    if total != sum(range(n)):
        raise AssertionError("the log holds other steps")
    raise Leaving


WAYS: dict[str, tuple[Any, Any]] = {
    "gather": (gathered, in_a_row),
    "gather, over a task each in a row": (gathered, tasks_in_a_row),
    "gather of gathers": (nested, in_a_row),
    "groups of tasks": (groups, in_a_row),
    "run.map in a loop": (mapped_in_tasks, in_a_row),
    "run.map on threads": (mapped, looked_at_in_a_row),
    "run.executor": (executed, looked_at_in_a_row),
}
"""What ran side by side, and the same in a row."""


@row("replay-side-by-side", long=True)
def replay_side_by_side(workplace: Workplace) -> Iterator[Line]:
    """Going over recorded steps that ran side by side, beside as many in a row; at three numbers
    of steps, each twice the one before.

    In turns, from the call of `store.run` to the function's end, which leaves the run as a crash
    would. Each way has a store of its own, at durability "os".
    """
    for steps in workplace.sizes.side_by_side_steps:
        folder = workplace.folder()
        used = {one.__name__: one for pair in WAYS.values() for one in pair}
        samples = _replays(used, folder, steps, workplace.sizes.rounds)
        for what, pair in WAYS.items():
            ours, theirs = (samples[one.__name__] for one in pair)
            yield Line(
                f"replay of {steps:,}: {what}",
                Figure(ours.median),
                Figure(theirs.median, name="in a row"),
                ratio(ours, theirs),
                Target(RATIO_MAX),
                f"{Figure(ours.median / steps)} a step",
                samples={"ours": ours, "row": theirs},
            )


@row("replay-children", long=True)
def replay_children(workplace: Workplace) -> Iterator[Line]:
    """The same for runs that a run started: each recorded as two, a start and an end."""
    for runs in workplace.sizes.side_by_side_children:
        ways = {"ours": children, "row": children_in_a_row}
        samples = _replays(ways, workplace.folder(), runs, workplace.sizes.rounds)
        ours, theirs = samples["ours"], samples["row"]
        yield Line(
            f"replay of {runs:,} children",
            Figure(ours.median),
            Figure(theirs.median, name="in a row"),
            ratio(ours, theirs),
            Target(RATIO_MAX),
            f"{Figure(ours.median / runs)} a child",
            samples=samples,
        )


def _replays(
    functions: dict[str, Any], folder: Path, steps: int, rounds: int
) -> dict[str, Samples]:
    samples = {name: Samples() for name in functions}
    ways = {
        name: partial(_left, str(folder / f"{name}.db"), function, steps)
        for name, function in functions.items()
    }
    for way in ways.values():
        way()  # this time it makes the steps
    for _ in range(rounds):
        for name, way in ways.items():
            samples[name].values.append(way())
    return samples


def _left(url: str, function: Any, steps: int) -> float:
    """Seconds to where the function leaves."""
    gc.collect()  # what one way left is not the next one's to clear away
    take: Callable[[], float] = (
        partial(asyncio.run, _left_async(url, function, steps))
        if iscoroutinefunction(function)
        else partial(_left_sync, url, function, steps)
    )
    return take()


def _left_sync(url: str, function: Any, steps: int) -> float:
    worker = _working if function in (children, children_in_a_row) else nullcontext
    with perdure.open(url, durability="os") as store, worker(store):
        start = time.perf_counter()
        try:
            store.run(function, "a", steps)
        except Leaving:
            return time.perf_counter() - start
    raise AssertionError("the run ended")


@contextmanager
def _working(store: Store) -> Iterator[None]:
    """While somebody runs children."""
    worker = perdure.Worker(store, [child], queues=[CHILDREN])
    thread = Thread(target=lambda: worker.run(signals=False))
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


async def _left_async(url: str, function: Any, steps: int) -> float:
    async with perdure.open_async(url, durability="os") as store:
        start = time.perf_counter()
        try:
            await store.run(function, "a", steps)
        except Leaving:
            return time.perf_counter() - start
    raise AssertionError("the run ended")
