"""Perdure doing what it is asked in a process that may be killed: `FOLDER [URL]`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

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

    def attend() -> Answer:
        """Work for others, for as long as this process lives."""
        worker = perdure.Worker(store, [work])
        threading.Thread(target=worker.run, daemon=True).start()
        return {}

    def spent() -> Answer:
        return {"cpu": time.process_time()}

    def prepare(name: str, agents: int) -> Answer:
        from bench.peers.writing import Writing  # what it needs, no other command waits for

        writing.append(Writing(url))
        answer: Answer = writing[0].prepare(name, agents)
        return answer

    def write(count: int) -> Answer:
        answer: Answer = writing[0].write(count)
        return answer

    writing: list[Any] = []
    result(0)  # makes them all
    serve(
        {"name": "Perdure"},
        {
            "prepare": prepare,
            "write": write,
            "stop_at": stop_at,
            "go_on": go_on,
            "first": gate.first,
            "listen": listening,
            "woken": waked,
            "attend": attend,
            "spent": spent,
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
