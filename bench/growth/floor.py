"""What a replay side by side takes beside one in a row, and how much of that is asyncio's alone.

`python -m bench.growth.floor [STEPS]` prints microseconds of CPU for each step, the least of three:
a replay is timed, so that its counts are not; the ratios are what is to be looked at.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import process_time
from typing import Any

import perdure
from bench.growth.places import Leaving
from perdure.aio import AsyncStore

STEPS, TIMES = 20_000, 3


@perdure.step
async def look(number: int) -> int:
    return number


@perdure.agent(dict)
async def in_a_row(run: perdure.AsyncRun[dict[str, Any]], steps: int) -> None:
    for number in range(steps):
        await look(number)
    raise Leaving


@perdure.agent(dict)
async def side_by_side(run: perdure.AsyncRun[dict[str, Any]], steps: int) -> None:
    await asyncio.gather(*(look(number) for number in range(steps)))
    raise Leaving


async def alone(steps: int) -> None:
    """The same without a library: a future for each task, set one after another, each once the
    loop has nothing left to do for the one before."""
    loop: Any = asyncio.get_running_loop()
    waiting: deque[asyncio.Future[None]] = deque()

    async def one() -> None:
        future = loop.create_future()
        waiting.append(future)
        await future

    def go_round() -> None:
        if not loop._ready and waiting:
            waiting.popleft().set_result(None)
        if waiting:
            loop.call_soon(go_round)

    tasks = [asyncio.ensure_future(one()) for _ in range(steps)]
    await asyncio.sleep(0)
    loop.call_soon(go_round)
    await asyncio.gather(*tasks)


def _least(make: Callable[[], Coroutine[Any, Any, Any]], steps: int) -> float:
    """Microseconds of CPU for each step."""
    found = []
    for _ in range(TIMES):
        start = process_time()
        with suppress(Leaving):
            asyncio.run(make())
        found.append(process_time() - start)
    return min(found) / steps * 1e6


def main(steps: int) -> None:
    with perdure.open("memory://") as store:

        def replay(function: Any) -> float:
            async def make() -> Any:
                return await AsyncStore(store).run(function, function.__name__, steps)

            with suppress(Leaving):
                asyncio.run(make())  # records
            return _least(make, steps)

        row, side, bare = (
            replay(in_a_row),
            replay(side_by_side),
            _least(lambda: alone(steps), steps),
        )
    print(f"in a row      {row:6.1f} µs a step")
    print(f"side by side  {side:6.1f} µs, {side / row:.2f} times that")
    print(f"asyncio alone {bare:6.1f} µs: a row and that are {1 + bare / row:.2f} times a row")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
