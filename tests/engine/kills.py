"""Kills at some of a scenario's boundaries: for scenarios of which others go through all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.testing.boundaries import BOUNDARIES_MAX, Ending, Scenario, run_with_kills


def kill_program_at_every_other_boundary(
    scenario: Scenario, check: Callable[[Ending], None], folder: Path, first: int = 0
) -> int:
    """As `kill_program_at_every_boundary`, from boundary `first` on; returns the number of
    kills."""
    for number in range(first, BOUNDARIES_MAX, 2):
        place = folder / str(number)
        place.mkdir()
        end = run_with_kills(scenario, place, (number,))
        check(end)
        if not end.killed_at:
            return (number - first) // 2
    raise AssertionError(f"more than {BOUNDARIES_MAX} boundaries: does the scenario end?")
