"""Perdure doing what it is asked in a process that may be killed: `FOLDER [URL]`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

import perdure
from bench.peers.serving import Answer, Gate, result, serve

gate = Gate()
woken: list[float] = []
"""When each signal had come to the run, by the clock that all processes share."""


@perdure.step
def answer(number: int) -> str:
    gate.passed(number)
    return result(number)


@perdure.agent(dict)
def work(run: perdure.Run[dict[str, object]], steps: int) -> int:
    return sum(len(answer(number)) for number in range(1, steps + 1))


@perdure.agent(dict)
def listen(run: perdure.Run[dict[str, object]], signals: int) -> int:
    """One signal a turn, as an agent does that lives for long."""
    run.wait_for("ping")
    woken.append(time.monotonic())
    return run.again(signals - 1) if signals > 1 else 0


@perdure.step
async def answer_soon(number: int) -> str:
    return result(number)


@perdure.agent(dict)
async def work_soon(run: perdure.AsyncRun[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        await answer_soon(number)


async def writing(url: str, name: str, agents: int, count: int) -> None:
    async with perdure.open_async(url) as store:
        await asyncio.gather(
            *(store.run(work_soon, f"{name}-{number}", count) for number in range(agents))
        )


def main(folder: str, url: str = "") -> None:
    store = perdure.open(url or Path(folder) / "ours.db")

    def begin(name: str, count: int) -> None:
        threading.Thread(target=store.run, args=(work, name, count), daemon=True).start()

    def stop_at(name: str, count: int, number: int) -> Answer:
        """Begin a run of `count` steps; answer when step `number` is called, which never ends."""
        gate.close_at(number)
        begin(name, count)
        return gate.first()

    def go_on(name: str, count: int) -> Answer:
        """Make the same call as the process that had, or has, the run: take over from it."""
        begin(name, count)
        return {}

    def listening(name: str, count: int) -> Answer:
        """Begin a run that waits for so many signals, one after the other."""
        threading.Thread(target=store.run, args=(listen, name, count), daemon=True).start()
        return {}

    def waked(number: int) -> Answer:
        """When signal `number`, from 1, had woken the run."""
        while len(woken) < number:
            time.sleep(0.0005)
        return {"at": woken[number - 1]}

    def write(name: str, agents: int, count: int) -> Answer:
        """So many steps on each of so many agents, side by side; with when it began and ended."""
        began = time.monotonic()
        asyncio.run(writing(url, name, agents, count))
        return {"began": began, "ended": time.monotonic()}

    serve({"name": "Perdure"}, {
        "write": write, "stop_at": stop_at, "go_on": go_on, "first": gate.first,
        "listen": listening, "woken": waked,
    })  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
