"""`python -m bench.profile.work NAME FOLDER COUNT`: work to be looked at.

Ours and the straight line in turns. Prints as JSON how many seconds an operation of each takes, on
average. Under a sampling profiler it does the same, somewhat slower.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import perdure
from bench.fresh import TASKS
from bench.harness import Operation, interleave
from bench.rows.engine import answer
from bench.rows.straight import STRAIGHT, in_a_straight_line, steps_in_a_straight_line
from bench.workplace import Ticket, append, messages, open_ticket, ticket
from perdure import Run

OURS = "ours"
MESSAGES = 10_000
"""Of the state that is rehydrated."""

Means = Mapping[str, float]


def main(name: str, folder: str, count: str) -> None:
    print(json.dumps(WORK[name](Path(folder), int(count))))


def _means(contestants: Mapping[str, Operation], count: int) -> Means:
    samples = interleave(contestants, count)
    return {name: found.mean for name, found in samples.items()}


def _commits(folder: Path, count: int) -> Means:
    given = messages(count + 2)
    with perdure.open(folder / "ours.db") as store:
        agent = open_ticket(store, "a")
        with in_a_straight_line(folder / "straight.db") as straight:
            return _means(
                {
                    OURS: lambda number: append(agent, given[number]),
                    STRAIGHT: lambda number: straight(given[number]),
                },
                count,
            )


def _steps(folder: Path, count: int) -> Means:
    with perdure.open(folder / "ours.db") as store:
        means: Means = store.run(_interleaved, "a", str(folder), count)
    return means


@perdure.agent(dict)
def _interleaved(run: Run[dict[str, object]], folder: str, count: int) -> Means:
    """Both from within one run: what a run costs at its begin and end is not looked at."""
    with steps_in_a_straight_line(Path(folder) / "straight.db") as straight:
        return _means({OURS: _step, STRAIGHT: straight}, count)


def _step(number: int) -> str:
    return answer(number)


def _rehydrations(folder: Path, count: int) -> Means:
    path = folder / "ours.db"
    with perdure.open(path, durability="os") as store:
        agent = store.agent("a", Ticket, initial=ticket(0))
        for message in messages(MESSAGES, seed=9):
            append(agent, message)
    tasks = {OURS: TASKS["ours"], STRAIGHT: TASKS["straight"]}
    seconds = {
        name: [float(str(task(str(path))["s"])) for _ in range(count)]
        for name, task in tasks.items()
    }
    return {name: sum(found) / count for name, found in seconds.items()}


WORK: Mapping[str, Callable[[Path, int], Means]] = {
    "commit": _commits,
    "step": _steps,
    "rehydration": _rehydrations,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
