"""What each call takes at growing histories, and how much more that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import log2

from bench.growth import agent_calls, run_calls, store_calls
from bench.growth.calls import CALLS, Call
from bench.growth.counting import Meter, Work
from bench.growth.places import Places

MODULES = (agent_calls, store_calls, run_calls)
"""Those that register their calls, but for `LATE`."""

LATE = (
    "bench.growth.framework_calls",
    "bench.growth.session_calls",
    "bench.growth.transfer_calls",
    "bench.growth.command_line_calls",
)
"""Loaded only where they are measured: they load much."""

FLAT_MAX = 1.2
LINEAR_MAX = 1.1
"""Of what a history that is so much longer may take."""

DOUBLED_MAX = 0.1
"""How much more for each time that it doubles."""

FEW_LINES = 60
"""What may come on top: a chunk more of a log."""


@dataclass(frozen=True, slots=True)
class Grown:
    """One call, at histories of several lengths. `few_steps`: see `Counter.few`."""

    call: Call
    lengths: tuple[int, ...]
    works: tuple[Work, ...]
    few_steps: int

    @property
    def longer(self) -> float:
        """How many times as long the longest history is."""
        return self.lengths[-1] / self.lengths[0]

    @property
    def factor_max(self) -> float:
        if self.call.growth == "linear":
            return LINEAR_MAX * self.longer
        doubled = log2(self.longer) if self.call.growth == "logarithmic" else 0.0
        return FLAT_MAX + DOUBLED_MAX * doubled

    @property
    def factor(self) -> float:
        """How many times as much the longest takes as the shortest, by whichever count it is most;
        a little that comes on top left aside."""
        first, last = self.works[0], self.works[-1]
        return max(
            (last.lines - FEW_LINES) / max(first.lines, 1),
            (last.steps - self.few_steps) / max(first.steps, self.few_steps),
        )


def grown(call: Call, lengths: Sequence[int], places: Places, *, timed: bool) -> Grown:
    works = tuple(_work(call, length, places, timed) for length in lengths)
    return Grown(call, tuple(lengths), works, places.counter.few)


def _work(call: Call, length: int, places: Places, timed: bool) -> Work:
    meter = Meter(places.counter)
    if timed:
        with places.open(call.history, length) as place:
            call.does(place, meter.time)
    places.build(call.history, length)
    with places.counter, places.open(call.history, length) as place:
        call.does(place, meter.count)
    return meter.work()


def every(lengths: Sequence[int], places: Places, *, timed: bool = True) -> Iterator[Grown]:
    for module in LATE:
        import_module(module)
    for one in CALLS:
        yield grown(one, lengths, places, timed=timed)
