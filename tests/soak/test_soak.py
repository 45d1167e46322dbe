"""A short soak, whole; the same with planted leaks, which must be reported; and what is steady."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.measuring import Bound, Series
from tests.soak.soak import BOUNDS, MB, Plan, Soak

LIVES, PURGES = 24, 5
SHORT = {
    **BOUNDS,
    # Over so few lives, how many calls are under way at the moment of a sample is chance.
    "descriptors": Bound(0, 10),
    "threads": Bound(0, 15),
    "file less graves": Bound(0, 2 * MB),
    # A handful of agents live, of up to 30 commits each; what is not purged is 500 more.
    "commits": Bound(0, 150),
}


def soak(folder: Path, *plants: str) -> tuple[Soak, list[str]]:
    plan = Plan(
        LIVES,
        LIVES / 6,
        LIVES / 4,
        1,
        by_lives=True,
        plants=frozenset(plants),
        at_once=5,
        kept=2,
        purges_min=PURGES,
        bounds=SHORT,
    )
    short = Soak(folder, plan, print)
    return short, short.run()


def test_a_short_soak_is_steady(tmp_path: Path) -> None:
    short, unsteady = soak(tmp_path)
    assert unsteady == []
    assert short.tally.lives >= LIVES
    assert short.tally.kills >= 3
    assert short.tally.purged > 0
    assert len(short.book.series["memory of worker"].values) >= LIVES // 2
    assert set(short.book.series) == {
        *(
            f"{what} of {of}"
            for what in ("memory", "descriptors", "threads")
            for of in ("worker", "client")
        ),
        *(f"{what} of store" for what in ("file less graves", "log to be moved", "commits")),
    }


def test_planted_leaks_are_reported(tmp_path: Path) -> None:
    """A soak that finds nothing may be blind: workers that leak, and agents that nobody deletes."""
    _, unsteady = soak(tmp_path, "memory", "descriptors", "file")
    reported = {words.partition(" grows")[0] for words in unsteady}
    assert reported >= {"memory of worker", "descriptors of worker", "commits of store"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param([50.0] * 40, "", id="flat"),
        pytest.param([*range(8), *[50.0] * 32], "", id="warm-up"),
        pytest.param([50.0, 50.0, 50.0, 500.0] * 10, "", id="peaks"),
        pytest.param([50.0 + number % 20 for number in range(100)], "", id="saw"),
        pytest.param([50.0 - number / 2 for number in range(80)], "", id="falling"),
        pytest.param([50.0 + number for number in range(80)], "grows", id="leak"),
        pytest.param([50.0 + number // 20 * 10 for number in range(80)], "grows", id="steps"),
        pytest.param([50.0] * 60 + [80.0] * 20, "grows", id="a late step"),
        pytest.param([50.0] * 3, "say nothing", id="too few"),
    ],
)
def test_what_is_steady(values: list[float], words: str) -> None:
    verdict = Series("memory", Bound(0.1, 4), values).verdict()
    assert words in verdict
    assert bool(verdict) == bool(words)


def test_an_amount_counts_where_the_part_is_less() -> None:
    grown = [10.0] * 40 + [13.0] * 40
    assert Series("threads", Bound(0, 4), grown).verdict() == ""
    assert "at most 12 is steady" in Series("threads", Bound(0, 2), grown).verdict()
