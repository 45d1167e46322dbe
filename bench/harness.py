"""Measuring contestants side by side: interleaved turns, medians, and ratios of medians.

A busy machine slows everybody down, so an absolute time says little and a ratio within one run
says much. Contestants take turns of a few operations each, A B C, B C A, C A B …, until each has
done its share: whatever the neighbours do hits them all alike.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from time import perf_counter, process_time

PARTS = 3
"""A run is also evaluated in so many parts: how much their ratios differ says what to trust."""


@dataclass(slots=True)
class Samples:
    """What one contestant needed, operation by operation, in the order of the run."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def p99(self) -> float:
        return sorted(self.values)[math.ceil(len(self.values) * 0.99) - 1]

    @property
    def p10(self) -> float:
        """What an operation takes when nothing disturbs it."""
        return sorted(self.values)[math.ceil(len(self.values) * 0.1) - 1]

    def parts(self) -> list[Samples]:
        """The beginning, the middle and the end of the run; all of it where that is too short."""
        size = len(self.values) // PARTS
        if size == 0:
            return [self]
        return [Samples(self.values[part * size : (part + 1) * size]) for part in range(PARTS)]


Statistic = Callable[[Samples], float]


def middle(samples: Samples) -> float:
    return samples.median


def average(samples: Samples) -> float:
    return samples.mean


def undisturbed(samples: Samples) -> float:
    """The 10th percentile."""
    return samples.p10


def worst(samples: Samples) -> float:
    """The 99th percentile."""
    return samples.p99


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over theirs; `low` and `high` are the ratios in the parts of the run."""

    value: float
    low: float
    high: float


def ratio(ours: Samples, theirs: Samples, statistic: Statistic = middle) -> Ratio:
    parts = [
        statistic(a) / statistic(b) for a, b in zip(ours.parts(), theirs.parts(), strict=False)
    ]
    return Ratio(statistic(ours) / statistic(theirs), min(parts), max(parts))


Operation = Callable[[int], object]
"""Does the operation of that number. Its inputs are ready: making them is not measured."""


def interleave(
    contestants: Mapping[str, Operation], count: int, *, turn: int = 10, warm_up: int = 2
) -> dict[str, Samples]:
    """Wall-clock seconds of each operation, each contestant doing `count` of them.

    Args:
        turn: operations in a row before the next contestant's turn.
        warm_up: operations of each before the first turn; they are not in the samples.
    """
    samples = {name: Samples() for name in contestants}
    for operation in contestants.values():
        for number in range(warm_up):
            operation(number)
    gc.collect()
    order = list(contestants)
    for first in range(warm_up, warm_up + count, turn):
        numbers = range(first, min(first + turn, warm_up + count))
        for name in order:
            _take_turn(contestants[name], numbers, samples[name].values)
        order = order[1:] + order[:1]
    return samples


def _take_turn(operation: Operation, numbers: Sequence[int], values: list[float]) -> None:
    for number in numbers:
        start = perf_counter()
        operation(number)
        values.append(perf_counter() - start)


@dataclass(slots=True)
class Costs:
    """What turns of many operations cost: per operation, one sample a turn."""

    wall: Samples = field(default_factory=Samples)
    cpu: Samples = field(default_factory=Samples)

    @property
    def waiting(self) -> float:
        """Seconds of an operation in which this process did not run."""
        return max(self.wall.median - self.cpu.median, 0.0)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn in another process cost, as that one measured it: operations and seconds."""

    count: int
    wall: float
    cpu: float


Turn = Callable[[], int | Spent]
"""Does many operations, and says how many; where another process does them, what they cost."""


def interleave_turns(contestants: Mapping[str, Turn], rounds: int) -> dict[str, Costs]:
    """Wall-clock and CPU seconds per operation of whole turns, by round.

    CPU is user and system time of the process, all threads: also what they do behind the
    operation's back. One round before the first is not in the samples.
    """
    costs = {name: Costs() for name in contestants}
    order = list(contestants)
    for number in range(rounds + 1):
        for name in order:
            cpu, wall = process_time(), perf_counter()
            done = contestants[name]()
            wall, cpu = perf_counter() - wall, process_time() - cpu
            spent = done if isinstance(done, Spent) else Spent(done, wall, cpu)
            if number:
                costs[name].wall.values.append(spent.wall / spent.count)
                costs[name].cpu.values.append(spent.cpu / spent.count)
        order = order[1:] + order[:1]
    return costs
