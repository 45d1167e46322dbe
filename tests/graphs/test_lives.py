"""A share of `make graphs`: runs that are killed, drained, settled, edited and retried by chance
come to the same whenever they are gone over."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest

from tests.graphs import threads, wide
from tests.graphs.kinds import try_pointed, try_threads, try_wide
from tests.graphs.pointed import POINTS, point_of, pointed_program
from tests.graphs.threads import threads_program
from tests.graphs.watching import HangsError, watched
from tests.graphs.wide import kinds_of, wide_program


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Programs leave tasks behind, and call synchronous steps where that holds up their loop."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(12))
def test_what_tasks_do_beside_each_other(seed: int) -> None:
    with watched(f"seed {seed}", limit_s=20):
        try_wide(seed, kills=4)


@pytest.mark.parametrize("seed", [87, 90, 145, 293, 3058])
def test_what_tasks_once_did_otherwise(seed: int) -> None:
    """In 87, 90 and 145, steps that caught their cancellation; in 293, a cancelled map whose thread
    went on; in 3058, an edit that was cancelled before its block."""
    with watched(f"seed {seed}", limit_s=20):
        try_wide(seed, kills=4)


@pytest.mark.parametrize("seed", range(8))
def test_what_threads_do_beside_each_other(seed: int) -> None:
    with watched(f"seed {seed}", limit_s=20):
        try_threads(seed, kills=4)


@pytest.mark.parametrize("seed", [2, 5, 8, 11, 14, 20])
def test_what_is_said_not_to_be_done_shows_nothing(seed: int) -> None:
    """Tools that people settled behind edits of theirs, beside tasks that look at the state: those
    saw the edits live, and not on replay."""
    assert point_of(seed) == "settled"
    with watched(f"seed {seed}", limit_s=20):
        try_pointed(seed, kills=6)


def test_each_point_is_made_of_all_its_kinds() -> None:
    for name, point in POINTS.items():
        made = (pointed_program(seed) for seed in range(300) if point_of(seed) == name)
        assert {*point.leaves, *point.nests} <= set().union(*map(kinds_of, made))


def test_there_are_programs_of_all_kinds() -> None:
    kinds = {*wide.LEAVES, *wide.NESTS}
    assert kinds <= set().union(*(kinds_of(wide_program(seed)) for seed in range(200)))
    kinds = {*threads.LEAVES, *threads.ALONE, *threads.NESTS}
    assert kinds <= set().union(*(kinds_of(threads_program(seed)) for seed in range(100)))


def test_what_hangs_is_broken_off_and_says_where() -> None:
    """Else a thousand programs would wait for one."""
    from tests.graphs.loops import Loop

    loop = Loop()

    async def never() -> None:
        await loop.create_future()

    with pytest.raises(HangsError, match=r"never[\s\S]*MainThread"), watched("this", 0.05):
        try:
            loop.run_until_complete(never())
        finally:
            loop.close()
