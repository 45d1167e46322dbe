"""A share of the lives that are followed, moved, trimmed and restored; `make simulate` has others,
and many more."""

from __future__ import annotations

import itertools

import pytest

from tests.simulation.lives import live

KINDS = ("memory", "sqlite", "postgres")
SEEDS = {"memory": 10, "sqlite": 2, "postgres": 1}
"""How many lives, by the slower of the two."""


@pytest.mark.parametrize("life", ["follow", "move"])
@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, KINDS)), ids="-to-".join)
def test_a_copy_is_the_same_whatever_came_in_whatever_order(
    kinds: tuple[str, str], life: str
) -> None:
    for seed in range(SEEDS[max(kinds, key=KINDS.index)]):
        live(life, seed, kinds)


@pytest.mark.parametrize(
    ("kinds", "seeds"),
    [(("memory",), 12), (("sqlite", "memory"), 3), (("postgres", "sqlite"), 1)],
)
def test_retention_restores_and_moves_agree_in_every_order(
    kinds: tuple[str, ...], seeds: int
) -> None:
    for seed in range(seeds):
        live("journey", seed, kinds)
