"""A share of `make graphs`: what a function of many tasks met, it meets again in that order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing import kill_at_every_boundary
from tests.graphs.checking import Otherwise, compare
from tests.graphs.generate import agent_of, is_racy, program
from tests.graphs.kinds import try_program, try_scoped, try_timed, try_told


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Programs leave tasks behind, of which asyncio and the library tell."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", [0, 10])
def test_what_is_met_is_met_again(first: int) -> None:
    """A timeout at the moment in which a step was through, tasks that had begun side by side, the
    end of a wait, a clean-up: each came otherwise on replay, and the run went another way."""
    for seed in range(first, first + 10):
        try_program(seed, kills=1)


@pytest.mark.parametrize("seed", [119, 1014, 1041, 1127, 1266])
def test_what_was_once_otherwise(seed: int) -> None:
    """Cancelled calls had not their place: one that had begun nothing was left too early, one that
    was cancelled before its turn had no turn. In 119, a timer went off while the block of an edit
    was gone through that it had gone off behind."""
    try_program(seed, kills=2)


def test_what_timers_did_they_do_again_in_a_loop_that_is_held_up() -> None:
    """A timeout whose time had come when it was entered left no word in the log; what a task had
    left behind set a timer that was taken for one that nobody sets; what was to be called soon was
    overtaken by an outcome. Of each hundred of these programs, thirty went another way."""
    for seed in range(12):
        try_timed(seed, kills=1)


@pytest.mark.parametrize("seed", [41, 118, 136, 292, 310, 539])
def test_what_timers_once_did_otherwise(seed: int) -> None:
    """In 310, a timer went off between the end of the function and that of its tasks. In 539, one
    saw an edit of which its task had not heard."""
    try_timed(seed, kills=2)


def test_what_scopes_did_they_do_again_by_the_clock_of_their_run() -> None:
    """anyio's scopes, and code that asks its loop for the time, went by the real one: on replay a
    scope whose timer went off in its place took that for too early. What it cancelled was cancelled
    anew in each round of the loop, so that the function always had something to do still, and what
    had its turn waited for that. Of a hundred of these programs, forty went another way."""
    for seed in range(12):
        try_scoped(seed, kills=1)


@pytest.mark.parametrize("seed", [13, 34, 138, 237, 253])
def test_what_scopes_once_did_otherwise(seed: int) -> None:
    """In 253, a task was cancelled once more while that was recorded, and cleaned up by a call."""
    try_scoped(seed, kills=2)


def test_what_cancellations_said_they_say_again() -> None:
    """Of a task that was cancelled twice, the first cancellation came on replay, and not the second
    that came while the first was recorded: a scope did not know it for its own."""
    for seed in range(12):
        try_told(seed, kills=1)


@pytest.mark.parametrize("seed", range(3))
def test_programs_without_a_race_end_the_same_wherever_they_are_killed(
    seed: int, tmp_path: Path
) -> None:
    numbers = iter(number for number in range(seed * 1000, 10_000) if not _races(number))
    endings = kill_at_every_boundary(agent_of(program(next(numbers), depth=1)), timeout_s=20)
    assert len(endings) > 10


def _races(seed: int) -> bool:
    return is_racy(program(seed, depth=1))


def test_another_order_is_found() -> None:
    """The comparison that the others trust; task groups cancel their tasks in any order."""
    one = [("a/", "1"), ("b/", "2"), ("a/", "3 cancelled"), ("b/", "4 cancelled")]
    compare("", one, [*one[:2], one[3], one[2]])
    for other in ([one[1], one[0], *one[2:]], one[:1], one[:3], [("b/", "1"), *one[1:]]):
        with pytest.raises(Otherwise):
            compare("", one, other)
