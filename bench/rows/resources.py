"""Runs that hold resources, taken up again: what is only replayed opens none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import perdure
from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Workplace
from perdure import Run, Store

TIMES_MAX = 1.2

opened: list[str] = []


class LeavingError(BaseException):
    """Leaves a run in the middle, as `SystemExit` would."""


def opener(name: str) -> Any:
    """A resource whose opener keeps a ticket."""

    def connect(ticket: perdure.Ticket) -> str:
        opened.append(name)
        ticket.keep(f"session of {name}")
        return f"open {name}"

    return perdure.resource(name=name)(connect)


RESOURCES = [opener(name) for name in ("browser", "database", "client")]


@perdure.step
def compute(number: int) -> str:
    return "x" * 500


@perdure.step(name="compute")
def compute_with(number: int) -> str:
    RESOURCES[number % len(RESOURCES)].get()
    return "x" * 500


@perdure.step
def leave() -> None:
    raise LeavingError


@perdure.agent(dict)
def bare(run: Run[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        compute(number)
    leave()


@perdure.agent(dict)
def holding(run: Run[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        compute_with(number)
    leave()


@row("resources")
def resources(workplace: Workplace) -> Iterator[Line]:
    """Taking up a run of 1,000 recorded steps of 500 B that used three resources, to its first new
    step, beside the same run without any. Each resource has a ticket in the log.

    From the call of `store.run`, with finding the run, taking the lease and reading the log.
    """
    number = workplace.sizes.run_steps
    samples = {"resources": Samples(), "none": Samples()}
    with perdure.open(workplace.folder() / "resources.db") as store:
        ways = {"resources": holding, "none": bare}
        for function in ways.values():
            _resumed(store, function, number)  # this time it makes the steps
        opened.clear()
        for _ in range(workplace.sizes.rounds):
            for name, function in ways.items():
                samples[name].values.append(_resumed(store, function, number))
    if opened:
        raise AssertionError(f"a replay opened {opened[0]}")
    own, least = samples["resources"], samples["none"]
    yield Line(
        f"resuming {number:,} steps with three resources, median",
        Figure(own.median),
        Figure(least.median, name="without resources"),
        ratio(own, least),
        Target(TIMES_MAX),
        samples=samples,
    )


def _resumed(store: Store, function: Any, number: int) -> float:
    start = time.perf_counter()
    try:
        store.run(function, function.__name__, number)
    except LeavingError:
        return time.perf_counter() - start
    raise AssertionError("the run did not leave")
