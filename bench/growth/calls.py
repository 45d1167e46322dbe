"""The public calls that are measured, by name: each says what its history is, and how it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.growth.places import Place

Measure = Callable[[Callable[[], object]], None]
"""Makes the call that it is given, once, and takes what that needs."""

Growth = Literal["flat", "logarithmic", "linear"]
"""What is allowed: the same whatever the history is, a little more for each time that it doubles,
or at most in proportion to it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the table.

    Attributes:
        names: of the public calls that it is about, e.g. ``Agent.edit``.
        what: for people; where a call has several lines, what this one is.
        history: the name of the place that grows; see `places`.
    """

    names: tuple[str, ...]
    what: str
    history: str
    growth: Growth
    does: Callable[[Place, Measure], None]


CALLS: list[Call] = []

Does = Callable[[Place, Measure], None]


def call(
    *names: str, history: str, growth: Growth = "flat", what: str = ""
) -> Callable[[Does], Does]:
    """Register a function as what makes these calls."""

    def register(does: Does) -> Does:
        CALLS.append(Call(names, what or ", ".join(names), history, growth, does))
        return does

    return register


def often(measure: Measure, does: Callable[[int], object], times: int = 3) -> None:
    """One after the other, numbered; the first, which makes what is made once, is not measured."""
    does(0)
    for number in range(1, times + 1):
        measure(lambda number=number: does(number))  # type: ignore[misc]
